"""An interrupt in a long command: exit status 130, no stack trace, and no half-written file under a final name."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sizes import first_of

from decodescope.app.basis.parser import BENCHES
from decodescope.app.commands.notebooks import COURSE
from decodescope.engine.bench import repetition as repetition_bench
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.session.batch import shared_passes
from decodescope.engine.timing import measure
from decodescope.engine.trace.file.named_trace import EXAMPLES
from decodescope.lab.views import export
from decodescope.lab.views import gallery as pages

Said = Callable[..., tuple[int, str, str]]
MODEL = ("--model", "lab-draft")
LOOKUP = (*MODEL, "--drafter", "prompt_lookup")
LENGTH = ("--max-new-tokens", "12", "--ignore-eos")
PASSES = {  # commands that run passes of a model
    "run": ("run", *LOOKUP, "--prompt", "one two one two", *LENGTH, "--json"),
    "batch": ("batch", *MODEL, "--prompts", "prompts", *LENGTH, "--out", "out.jsonl"),
    "batch by a method": ("batch", *LOOKUP, "--prompts", "prompts", *LENGTH, "--out", "out.jsonl"),
    "workload": (
        "workload",
        *MODEL,
        "--prompts",
        "prompts",
        *LENGTH,
        "--out",
        "out.jsonl",
        "--html",
        "out.html",
    ),
    "calibrate": (
        *(
            "calibrate",
            *MODEL,
            "--texts",
            "prompts",
            "--knob",
            "policy.window",
            "--grid",
            "9,8",
            "--policy",
            "window",
        ),
        *("--name", "./out.json", "--max-new-tokens", "12"),
    ),
    "cache save": ("cache", "save", "out.dscache", *MODEL, "--prompt", "one two three " * 600),
    **{
        f"bench {x}": ("bench", x, "--short", "--out", "out.json")
        for x in BENCHES
        if x not in ("decode", "cloze", "models")
    },
}
LINES = ("batch", "batch by a method")  # an interrupted batch keeps its finished texts, one whole line each


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "prompts").write_text("one two one two\nthree four three four\n")
    shutil.copy(EXAMPLES / "h2o.dstrace", tmp_path / "run.dstrace")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def after(number: int, call: Callable[..., Any], sent: int = signal.SIGINT) -> Callable[..., Any]:
    """`call`, with Ctrl-C, or another signal, before its call of this number, counted from 1."""
    numbers = itertools.count(1)

    def interrupted(*rest: Any, **more: Any) -> Any:
        if next(numbers) == number:
            signal.raise_signal(sent)
        return call(*rest, **more)

    return interrupted


def written(folder: Path) -> Iterator[Path]:
    """The files that a command left under final names."""
    for path in folder.rglob("*"):
        first = path.relative_to(folder).parts[0]
        if (
            path.is_file()
            and first not in ("prompts", "run.dstrace", "data")
            and path.suffix not in (".partial", ".part")
        ):
            yield path


def interrupted(said: Said, *words: str, due: int = 130) -> None:
    """The command ends with the status that is `due` and without a stack trace."""
    code, _, err = said(*words)
    assert code == due, (words, code, err)
    assert not [x for x in ("Traceback", "went wrong inside", "Error") if x in err], err


SLOW = (
    "bench labbench",
    "bench speculation",
    "bench cascade",
    "bench depth",
)  # these take seconds until their first pass


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=pytest.mark.nightly if x in SLOW else ()) for x in PASSES]
)
def test_an_interrupt_inside_a_pass(
    name: str, folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, call = (Decoder, "forward")
    if name == "batch by a method":  # in this case several texts share a pass
        home, call = shared_passes, "forward_batched"
    monkeypatch.setattr(home, call, after(3, getattr(home, call)))
    interrupted(said, *PASSES[name])
    files = [*written(folder)]
    assert name in LINES or not files, files
    for path in files:
        assert all(isinstance(json.loads(line)["tokens"], list) for line in path.read_text().splitlines())


@pytest.mark.parametrize("name", ("run", *LINES))
def test_the_systems_signal_ends_commands_as_an_interrupt_does(
    name: str, folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, call = (shared_passes, "forward_batched") if name == "batch by a method" else (Decoder, "forward")
    monkeypatch.setattr(home, call, after(3, getattr(home, call), signal.SIGTERM))
    interrupted(said, *PASSES[name], due=143)
    texts = [line for path in written(folder) for line in path.read_text().splitlines()]
    assert all(isinstance(json.loads(line)["tokens"], list) for line in texts) and bool(texts) == (
        name in LINES
    )
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize(("sent", "due"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_interrupted_keeps_its_steps(
    sent: int, due: int, folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its trace is complete: it is sealed, and its end records the reason."""
    with monkeypatch.context() as patch:
        patch.setattr(Decoder, "forward", after(6, Decoder.forward, sent))
        words = ("run", *LOOKUP, "--prompt", "one two one two", *LENGTH, "--trace", "out.dstrace")
        interrupted(said, *words, due=due)
    assert [x.name for x in written(folder)] == ["out.dstrace"]
    code, out, _ = said("trace", "show", "out.dstrace", "--json")
    assert code == 0 and json.loads(out)["end"] == "stopped_by_user" and json.loads(out)["steps"] > 0
    assert said("trace", "check", "out.dstrace")[0] == 0


WORK: dict[
    str, tuple[tuple[str, ...], Any, str, int]
] = {  # the words of the command, and where the interrupt comes: the function and the number of its call
    "hardware": (("hardware", "--data", "data"), measure, "_bandwidth", 1),
    "measure repetition": (
        ("measure", "repetition", "--out", "out.json", "--html", "out.html"),
        repetition_bench,
        "copies",
        1,
    ),
    "trace export": (("trace", "export", "run.dstrace", "--html", "out.html"), export, "export_html", 1),
    "gallery": (("gallery", "out", "h2o", "beam"), pages, "_write", 2),
    "notebooks": (("notebooks", "out"), shutil, "copyfile", 3),
}


@pytest.mark.parametrize("name", first_of(*WORK))
def test_an_interrupt_in_other_long_work(
    name: str, folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, home, call, count = WORK[name]
    monkeypatch.setattr(home, call, after(count, getattr(home, call)))
    interrupted(said, *words)
    files = [*written(folder)]
    if name == "notebooks":  # complete copies
        assert len(files) == count - 1 and all(
            x.read_bytes() == (COURSE / x.name).read_bytes() for x in files
        )
    else:
        assert not files, files


@pytest.mark.parametrize(("sent", "due"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_while_texts_are_written_keeps_what_was_decoded(
    sent: int, due: int, folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two texts was kept when it ended; the interrupt comes before the second line of the file of all texts."""
    with monkeypatch.context() as patch:
        patch.setattr(json, "dumps", after(4, json.dumps, sent))
        interrupted(said, *PASSES["batch"], due=due)
    assert not [*written(folder)]
    lines = (folder / "out.jsonl.partial").read_text().splitlines()
    assert [json.loads(line)["end"] for line in lines] == ["max_new_tokens"] * 2
