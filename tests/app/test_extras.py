"""Extras: what works after `pip install decodescope` alone, and the message when more packages are needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from source import ROOT

from decodescope.engine.core.extras import EXTRAS

# the last three are installed together with the extras
LEFT_OUT = sorted({*sum(EXTRAS.values(), ()), "starlette", "h11", "IPython"})
BARE = """
import sys
class Bare:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in {left_out!r} else self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = [Bare(finder) for finder in sys.meta_path]
{code}
"""
COMMANDS = """
import contextlib, io, json
from decodescope.app.cli import main
for argv in {commands!r}:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(argv)
        except SystemExit as ended:
            code = ended.code or 0
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
EXAMPLE = next(iter(sorted((ROOT / "assets" / "traces").glob("*.dstrace"))))
PROMPTS = "Once upon a time there was a small owl.\nIn a town by the sea lived a fox.\n"


def bare(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run this code in a Python that finds none of the extras' packages."""
    program = BARE.format(left_out=LEFT_OUT, code=code)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=folder)


def said_bare(folder: Path, *commands: list[str]) -> list[tuple[int, str, str]]:
    """Run commands in such a Python, one after the other, which starts once: exit code, output and errors of each."""
    done = bare(COMMANDS.format(commands=list(commands)), folder)
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def test_a_command_names_the_extra_that_it_needs_before_it_begins(tmp_path: Path) -> None:
    model = ["--model", "lab"]
    prompts = ["--prompts", "prompts.txt", "--html", "out.html"]
    due = [
        ("app", ["app", "--no-browser"]),
        ("notebooks", ["gallery", "out", EXAMPLE.stem, "--course"]),
        ("bench", ["workload", *model, *prompts]),
        ("bench", ["measure", "repetition", *model, "--html", "out.html"]),
        ("bench", ["train", "head", "eagle3", *model, *prompts]),
    ]
    (tmp_path / "prompts.txt").write_text(PROMPTS, encoding="utf-8")
    said = said_bare(tmp_path, *(argv for _, argv in due))
    for (extra, argv), (code, out, err) in zip(due, said, strict=True):
        assert code == 2 and not out, argv
        (sentence,) = err.splitlines()
        assert sentence.startswith(f"decodescope {argv[0]}") and sentence.endswith(
            f'pip install "decodescope[{extra}]"'
        )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["prompts.txt"]


def test_a_command_that_needs_no_extra_works_without(tmp_path: Path) -> None:
    due = [
        (["--version"], "decodescope "),
        (["run", "--model", "lab", "--prompt", "Once upon a time", "--max-new-tokens", "4"], "there"),
        (["methods"], "prompt_lookup"),
        (["trace", "show", str(EXAMPLE)], "steps"),
        (["trace", "export", str(EXAMPLE), "--html", "trace.html", "--csv", "trace.csv"], "trace.html"),
        (["report", str(EXAMPLE), "--html", "report.html"], "report.html"),
        (["gallery", "gallery", EXAMPLE.stem], "gallery"),
        (["notebooks", "chapters"], 'pip install "decodescope[notebooks]"'),
    ]
    said = said_bare(tmp_path, *(argv for argv, _ in due))
    for (argv, text), (code, out, err) in zip(due, said, strict=True):
        assert code == 0, (argv, err)
        assert text in out + err, argv


def test_the_lab_explains_a_trace_without_widgets_and_says_what_widgets_need(tmp_path: Path) -> None:
    code = f"""
from decodescope.engine.core.extras import MissingExtra
from decodescope.lab import decisions, explain, export_html, frame, open_trace, report
trace = open_trace({str(EXAMPLE)!r})
step, node = next(decisions(trace))
print(explain(trace, step, node))
print(type(report([trace])).__name__)
import decodescope.lab
for name in ("show", "compare", "controls", "Scope", "figure"):
    try:
        getattr(decodescope.lab, name)
    except MissingExtra as error:
        print("refused:", error)
course, drawn = "decodescope.lab.course", "decodescope.lab.figures.tree"
for call in (lambda: frame(trace), lambda: __import__(course), lambda: __import__(drawn)):
    try:
        call()
    except MissingExtra as error:
        print("refused:", error)
"""
    done = bare(code, tmp_path)
    assert done.returncode == 0, done.stderr
    refused = [line for line in done.stdout.splitlines() if line.startswith("refused: ")]
    assert len(refused) == 8 and all(
        line.endswith('pip install "decodescope[notebooks]"') for line in refused
    )


NEED_THEM = (
    *("lab.figures", "lab.charts", "lab.course", "lab.notebook", "lab.reports.figures"),
    *("lab.views.compare", "lab.views.controls", "lab.views.scope", "lab.views.run_widget"),
    *("app.http", "app.page", "app.routes", "app.server"),
)


@pytest.mark.nightly
def test_all_other_modules_load_without_extras(tmp_path: Path) -> None:
    code = f"""
import importlib, pkgutil
import decodescope.engine, decodescope.lab, decodescope.app
for top in (decodescope.engine, decodescope.lab, decodescope.app):
    for m in pkgutil.walk_packages(top.__path__, top.__name__ + ".", onerror=lambda name: None):
        if not (m.name.removeprefix("decodescope.") + ".").startswith({tuple(x + "." for x in NEED_THEM)!r}):
            importlib.import_module(m.name)
"""
    done = bare(code, tmp_path)
    assert done.returncode == 0, done.stderr
