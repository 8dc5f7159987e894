"""If a user follows the recommendation of a refusal on the command line, the command is accepted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from decodescope.engine.trace.file.named_trace import EXAMPLES

Said = Callable[..., tuple[int, str, str]]
RUN = ("run", "--model", "lab-draft", "--prompt", "one two one two", "--max-new-tokens", "2", "--json")
FILLED = ("run", "--model", "lab-mdm", *RUN[3:])
BATCH = ("batch", "--model", "lab-draft", "--prompts", "prompts", "--max-new-tokens", "2", "--json")
REPORT = ("report", "--prompts", "prompts", "--max-new-tokens", "6", "--json")
DRAFT = ("--drafter", "draft_model")
PAIR = ("--model", "lab", "--draft", "lab-draft", *DRAFT)
SHADOW = (*RUN, "--reference", "--trace", "run.dstrace")
SAVE = ("cache", "save", "c.dscache", "--model", "lab-draft", "--prompt")
KIVI, JACOBI = (*RUN, "--kv-compression", "kivi"), (*RUN, "--strategy", "jacobi")

# the typed command, the recommendation of the refusal, and the command that follows it
ADVICE: list[tuple[tuple[str, ...], str, tuple[str, ...]]] = [
    ((*RUN, *DRAFT), "give --draft NAME", (*RUN, *DRAFT, "--draft", "lab-draft")),
    ((*RUN, "--stop", ""), "leave --stop out", RUN),
    ((*RUN, "--stop", ""), "give the text to end at", (*RUN, "--stop", "x")),
    ((*SHADOW, "--trace-level", "summary"), "leave --reference or --trace-level out", SHADOW),
    (
        (*SHADOW, "--trace-level", "summary"),
        "--reference or --trace-level out",
        (*RUN, "--trace", "run.dstrace", "--trace-level", "summary"),
    ),
    (
        (*RUN, *DRAFT, "--draft", "lab-draft", "--role", "draft=lab"),
        "give it one",
        (*RUN, *DRAFT, "--draft", "lab-draft"),
    ),
    ((*KIVI, "--policy", "h2o"), "choose the policy keep_all", (*KIVI, "--policy", "keep_all")),
    (
        (*KIVI, "--policy", "h2o"),
        "or the kv_compression unpacked",
        (*RUN, "--kv-compression", "unpacked", "--policy", "h2o"),
    ),
    (
        (*JACOBI, "--policy", "h2o", "--adaptive-depth", "layer_plan"),
        "leave the adaptive_depth out",
        (*JACOBI, "--policy", "h2o"),
    ),
    (FILLED, "or the strategy edit_tags", (*FILLED, "--strategy", "edit_tags")),
    (
        (*FILLED, "--unmasking", "explore"),
        "or the strategy masked",
        (*FILLED, "--unmasking", "explore", "--strategy", "masked"),
    ),
    ((*SAVE, "one " * 3000), "shorten the prompt.\n", (*SAVE, "one one")),
    (
        (*BATCH, "--plan-only", "--policy", "h2o"),
        "leave the method and --traces out",
        (*BATCH, "--plan-only"),
    ),
    (
        (*BATCH, "--trace-level", "full"),
        "give that too",
        (*BATCH, "--trace-level", "full", "--traces", "runs"),
    ),
    ((*BATCH, "--trace-level", "full"), "or leave it out", BATCH),
    ((*REPORT, *DRAFT), "give --model lab", (*REPORT, *PAIR)),
    ((*REPORT, "--model", "lab"), "e.g. --drafter draft_model --draft M", (*REPORT, *PAIR)),
    ((*REPORT, *PAIR, "--short"), "leave it out", (*REPORT, *PAIR)),
    (("trace", "export", "FILE"), "--csv OUT", ("trace", "export", "FILE", "--csv", "out.csv")),
]


@pytest.mark.parametrize(
    ("typed", "advice", "then"), ADVICE, ids=[f"{i}-{x[0][0]}" for i, x in enumerate(ADVICE)]
)
def test_advice_of_the_command_line_works(
    typed: tuple[str, ...],
    advice: str,
    then: tuple[str, ...],
    tmp_path: Path,
    said: Said,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prompts").write_text("one two one two\nthree four three four\n")
    Path("FILE").write_bytes((EXAMPLES / "h2o.dstrace").read_bytes())
    code, out, err = said(*typed)
    assert (code, out) == (2, "") and advice in err, err
    code, out, err = said(*then)
    assert code == 0 and out, err
