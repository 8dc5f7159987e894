"""`check` finds the contracts that a part breaks, and `new` writes a part and a test that keep all contracts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import toys
from sizes import by_turns

from decodescope.app.basis.parser import ALL_KINDS
from decodescope.app.basis.parser import KINDS as PARSER_KINDS
from decodescope.app.cli import main
from decodescope.app.commands import new
from decodescope.engine.core import component as components
from decodescope.engine.core.component import FOLDERS, KINDS
from decodescope.engine.session import own_parts
from decodescope.testing.contracts import contracts
from decodescope.testing.contracts.exact_law import NotCounted


@pytest.fixture(autouse=True)
def unloaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Unload after each test the parts that the test loaded."""
    monkeypatch.setattr(components, "_ADDED", {})
    monkeypatch.setattr(own_parts, "_FILES", {})
    yield
    components.forget_registry()


def test_the_parser_knows_the_kinds_without_loading_them() -> None:
    assert PARSER_KINDS == KINDS and tuple(FOLDERS) == ALL_KINDS


def test_every_kind_has_templates_of_a_part_and_its_test() -> None:
    names = {path.stem for path in new.TEMPLATES.iterdir()}
    assert names == {"test", *FOLDERS, *(f"{kind}_test" for kind in FOLDERS)}


def checked(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict]]:
    """Exit code, and title -> contract, for the part in a file."""
    code = main(["--parts", str(path), "check", path.stem, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] == (code == 0)
    return code, {row["contract"]: row for row in found["contracts"]}


@pytest.mark.parametrize("kind", by_turns(2, ALL_KINDS))
def test_a_new_part_keeps_what_its_kind_keeps(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", kind, f"my_{kind}", "--into", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"my_{kind}.py" in said and "pytest" in said and f"check my_{kind}" in said
    code, rows = checked(tmp_path / f"my_{kind}.py", capsys)
    assert code == 0 and len(rows) > 5 and {row["state"] for row in rows.values()} <= {"kept", "not counted"}
    assert main(["new", kind, f"my_{kind}", "--into", str(tmp_path)]) == 2
    assert "already" in capsys.readouterr().err


def run_own_tests(folder: Path, chosen: str) -> str:
    """The output of pytest for the chosen tests in a folder."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    return done.stdout + done.stderr


@pytest.mark.nightly
def test_its_test_passes_as_it_is_written(tmp_path: Path) -> None:
    for kind in ALL_KINDS:
        assert main(["new", kind, f"my_{kind}", "--into", str(tmp_path)]) == 0
    # the test above checks the contracts of every kind
    printed = run_own_tests(tmp_path, "drafter or strategy or not it_keeps")
    assert re.search(r"(?m)^\d+ passed", printed) and " failed" not in printed, printed


def test_its_files_are_written_as_the_check_of_the_code_wants_them(tmp_path: Path) -> None:
    for kind in ALL_KINDS:
        assert main(["new", kind, f"my_{kind}", "--into", str(tmp_path)]) == 0
    config = ["--config", str(new.ROOT / "pyproject.toml"), str(tmp_path)]
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *config], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


# kind -> a piece of the part's code that has an effect, and the same piece without the effect
IDLE = {
    "strategy": ('self.price else "dear"', '2 else "dear"'),
    "drafter": ("context.tokens[-self.max_draft_tokens :]", "context.tokens[:0]"),
    "schedule": ("if self._rejected else", "if False else"),
    "acceptance": ("r * self.gain", "r"),
    "prompt_compression": ("if len(place) <= self.budget", "if True"),
    "policy": ("keep=self.recent", "keep=10_000"),
    "kv_compression": ('{"codes": (x / scale).round().to(torch.int8)', '{"codes": (x / scale)'),
    "adaptive_depth": ("if position % self.interval else NOTHING", "if False else NOTHING"),
    "unmasking": ("min(self.places, open_places)", "1"),
    "router": ("float(len(answers[0].tokens))", "0.0"),
    "guidance": ("logits + self.bonus * asked", "logits + 0 * asked"),
    "sampler": ("logits < cut", "logits < -torch.inf"),
    "weights": ("smallest, 0.0", "smallest[:0], 0.0"),
}


@pytest.mark.nightly
def test_its_test_fails_where_the_part_does_nothing(tmp_path: Path) -> None:
    assert IDLE.keys() == {*ALL_KINDS}
    for kind, (does, undone) in IDLE.items():
        assert main(["new", kind, f"my_{kind}", "--into", str(tmp_path)]) == 0
        path = tmp_path / f"my_{kind}.py"
        text = path.read_text(encoding="utf-8")
        assert does in text
        path.write_text(text.replace(does, undone), encoding="utf-8")
    printed = run_own_tests(tmp_path, "not it_keeps")
    failed = {x for x in ALL_KINDS if f"FAILED test_my_{x}.py" in printed}
    assert failed == {*ALL_KINDS} and " passed" not in printed, printed


BUGS = {
    "a drafter that drafts beyond the room": (
        "drafter", "[: context.room]", "", "Drafts are no deeper than the room"
    ),
    "a drafter that draws beside the chance": (
        "drafter",
        "Draft.chain(newest[: context.room]",
        "Draft.chain([__import__('random').randrange(9)] * min(2, context.room)",
        "Two sampled runs with one seed",
    ),
    "a policy that evicts the newest entry": (
        "policy", "keep=self.recent", "keep=0", "A step does not evict"
    ),
    "a policy that keeps more than its zones say": (
        "policy", "keep=self.recent", "keep=self.recent + 3", "A policy holds no more entries"
    ),
    "a strategy whose record says what did not happen": (
        "strategy", '{"bought": count}', '{"bought": 2}', "A run at each recording level"
    ),
    "a sampler without a source": (
        "sampler", "the paper and section, or the repository", "", "It has a title, a source"
    ),
    "a rule that is called lossless and is not": (
        "acceptance",
        '    lossless = False\n    changes = "tests are easier than the target\'s distribution"\n',
        "",
        "Every text of three tokens",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_part_with_a_bug_breaks_the_contract(
    bug: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, right, wrong, title = BUGS[bug]
    assert main(["new", kind, "buggy", "--into", str(tmp_path)]) == 0
    capsys.readouterr()
    path = tmp_path / "buggy.py"
    text = path.read_text(encoding="utf-8")
    assert right in text
    path.write_text(text.replace(right, wrong), encoding="utf-8")
    code, rows = checked(path, capsys)
    broken = [name for name, row in rows.items() if row["state"] == "broken"]
    assert code == 1 and any(name.startswith(title) for name in broken), broken
    assert all(row["why"] for row in rows.values() if row["state"] == "broken")


def test_a_name_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments, says in (
        (["check", "promt_lookup"], "prompt_lookup"),
        (["check", "none", "--kind", "policy"], "There is no part"),
        (["check", "prompt_lookup", "--set", "max_draft_tokens"], "write knob=value"),
        (["check", "prompt_lookup", "--set", "max_draft_tokens=9999"], "must lie in"),
        (["new", "drafter", "prompt_lookup", "--into", str(tmp_path)], "already"),
        (["new", "drafter", "My-Part", "--into", str(tmp_path)], "cannot name a part"),
        (["new", "rooter", "mine"], "invalid choice"),
    ):
        assert main(arguments) == 2
        said = capsys.readouterr().err
        assert says in said and said.count("\n") == 1, said


SAMPLE = [
    ("drafter", "prompt_lookup"),
    ("policy", "h2o"),
    ("sampler", "top_p"),
    ("kv_compression", "kivi"),
    ("adaptive_depth", "patience"),
]


@pytest.mark.parametrize(("kind", "name"), SAMPLE)
def test_parts_of_the_package_keep_their_contracts(kind: str, name: str) -> None:
    for contract in contracts(kind, name, toys.settings_of(kind, name)[0]):
        try:
            contract.run()
        except NotCounted as why:
            assert str(why).endswith(".")
