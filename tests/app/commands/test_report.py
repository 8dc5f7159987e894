"""The command `report`: over files and over prompts, what it writes, and what it refuses."""

from __future__ import annotations

import html
import json
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
from waiting import eventually

from decodescope.app.cli import main
from decodescope.app.commands import report as reporting
from decodescope.app.runs.compare.batch import PromptBatch
from decodescope.app.runs.compare.measurements import RecordFolder
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.session.load import load
from decodescope.engine.trace import open_trace
from decodescope.lab import report

METHOD = [
    "--model",
    "lab-draft",
    "--draft",
    "lab-draft",
    "--drafter",
    "draft_model",
    "--set",
    "drafter.max_draft_tokens=3",
]
SHORT = [*METHOD, "--max-new-tokens", "12"]
PROMPTS = ["def add(a, b):", "Once upon a time"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The runs over PROMPTS, with a sampler that draws."""
    place = tmp_path_factory.mktemp("report")
    (place / "prompts.txt").write_text("\n".join(["", *PROMPTS, ""]), encoding="utf-8")
    drawn = ["--sampler", "temperature", "--seed", "5", "--traces", str(place / "runs")]
    assert main(["report", "--prompts", str(place / "prompts.txt"), *SHORT, *drawn, "--json"]) == 0
    return [str(x) for x in sorted((place / "runs").iterdir())]


def test_runs_over_prompts_are_kept_and_say_the_same_when_read(said, recorded: list[str]) -> None:
    assert [Path(x).name for x in recorded] == ["prompt-0001.dstrace", "prompt-0002.dstrace"]
    traces = [open_trace(x) for x in recorded]
    assert [x.text().startswith(p) for x, p in zip(traces, PROMPTS, strict=True)] == [True, True]
    assert [x.header.seed for x in traces] == [5, 6] and {x.header.levels[-1] for x in traces} == {
        "decisions"
    }
    code, out, err = said("report", *recorded, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "") and (found["runs"], found["tokens"], found["html"]) == (2, 24, None)
    assert found["accepted"] == sum(s.accepted for x in traces for s in x.steps)
    assert {
        "depths",
        "entropy",
        "kinds",
        "bins",
        "confusions",
        "spent",
        "advice",
        "curve",
        "fates",
        "notes",
    } <= set(found)
    assert found["depths"][0]["share"] == 1.0, "the draft model is the target"


TURNS = [{"question_id": i, "turns": [text, "And why?", "Go on."]} for i, text in enumerate(PROMPTS)]


@pytest.mark.parametrize(
    ("more", "puts", "hints"),
    [([], "The prompts were put as raw text, without a chat template.", True),
     (["--chat"], "Every prompt was put through the model's chat template.", False)],
)  # fmt: skip
def test_a_report_says_how_prompts_were_put_and_which_turns_were_not(
    said, tmp_path: Path, more: list[str], puts: str, hints: bool
) -> None:
    (file := tmp_path / "asked.jsonl").write_text("\n".join(map(json.dumps, TURNS)), encoding="utf-8")
    page, runs = tmp_path / "report.html", tmp_path / "runs"
    given = [
        "--prompts",
        str(file),
        *METHOD,
        "--max-new-tokens",
        "4",
        "--html",
        str(page),
        "--traces",
        str(runs),
        *more,
    ]
    _, out, _ = said("report", *given)
    left = "Only first turns were asked. Left out: 4 later turns, of 2 of 2 prompts."
    for text in (out, html.unescape(page.read_text(encoding="utf-8"))):
        assert puts in text and left in text
    assert ("lab-draft has a chat template: --chat puts every prompt through it." in out) == hints
    assert {open_trace(x).header.chat for x in runs.iterdir()} == {not hints}, "the sentence is what was done"


def test_prompts_of_two_sorts_are_refused_before_any_is_decoded_and_reported_apart(
    said, tmp_path: Path
) -> None:
    words = (
        "Tell a story of a dog.",
        "Once there was a dog named Rex. He liked to play.",
        "Tell another story of a cat.",
    )
    roles = ("user", "assistant", "user")
    talk = [{"role": role, "content": x} for role, x in zip(roles, words, strict=True)]
    lines = [{"prompt": PROMPTS[0]}, {"messages": talk}, {"prompt": PROMPTS[1]}]
    (file := tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    given = ["--prompts", str(file), *SHORT]
    code, out, err = said("report", *given)
    assert (code, out) == (2, "") and "prompt 1 of" not in err
    assert "Prompt 2 is a later turn of a conversation" in err and "--apart for a report on each" in err
    code, out, _ = said("report", *given, "--apart", "--json")
    assert code == 0
    assert [(x["reading"], x["runs"]) for x in json.loads(out)["apart"]] == [("raw", 2), ("later", 1)]
    code, out, err = said("report", *given, "--apart", "--metrics")
    assert (code, out) == (2, "") and "--metrics is of one" in err


def test_a_file_that_is_named_twice_is_counted_once(said, recorded: list[str], monkeypatch) -> None:
    one = Path(recorded[0])
    monkeypatch.chdir(one.parent)
    code, out, err = said("report", *recorded, recorded[0], one.name, "--json")
    assert code == 0 and json.loads(out)["runs"] == 2
    assert err == "".join(f"Note: {name} is there twice and is counted once.\n" for name in (one, one.name))


def test_the_text_names_what_ran_and_the_page_is_written_once(
    said, recorded: list[str], tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    code, out, _ = said("report", *recorded, "--html", str(page))
    assert code == 0 and out.startswith(
        "2 runs of lab-draft with lab-draft: draft_model max_draft_tokens=3 width=1 draft_temperature=auto "
        "with lossless, "
    )
    for title in (
        "What became of the drafts",
        "By depth",
        "By the target's entropy",
        "Where the time went",
        "What to try",
    ):
        assert f"\n\n{title}\n" in out
    assert f"\n\n{page}: " in out and page.read_text(encoding="utf-8").startswith("<!doctype html>")
    before = page.read_bytes()
    code, out, err = said("report", *recorded, "--html", str(page))
    assert (code, out) == (2, "") and "exists already" in err and page.read_bytes() == before


def test_prompts_come_from_lines_of_json_and_from_labbench(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(
        '{"prompt": "one\\ntwo"}\n\n{"turns": ["first", "second"], "question_id": 1}\n', encoding="utf-8"
    )
    assert [x.text for x in reporting.read_prompts(str(file))] == ["one\ntwo", "first"]
    whole, short = reporting.read_prompts("labbench"), reporting.read_prompts("labbench", short=True)
    assert len(whole) == 560 and 0 < len(short) < 200 and set(short) <= set(whole)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "Line 1 of .* is no JSON"),
        ("[1]", "has no prompt"),
        ('{"prompt": " "}', "has no prompt"),
        ('{"turns": []}', "has no prompt"),
        ('{"prompt": "x"}\n{"turns": [3]}', "Line 2 of"),
        ("\n", "There is no prompt in"),
    ],
)
def test_lines_that_hold_no_prompt_are_named(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(Refusal, match=says):
        reporting.read_prompts(str(tmp_path / "p.jsonl"))


def test_prompts_that_do_not_fit_are_left_out_and_said_to_be(said, tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    file.write_text("one two three " * 1500 + "\ndef add(a, b):\n", encoding="utf-8")
    code, out, err = said("report", "--prompts", str(file), *SHORT, "--json")
    assert code == 0 and json.loads(out)["runs"] == 1
    assert err.startswith("Left out: 1. The first, prompt 1: ") and "2048" in err
    file.write_text("one two three " * 1500 + "\n", encoding="utf-8")
    code, out, err = said("report", "--prompts", str(file), *SHORT, "--json")
    assert (code, out) == (2, "") and err.startswith("No prompt could be decoded; prompt 1: ")


def test_an_interrupt_reports_on_the_prompts_before_it(
    said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = reporting.DecodedRuns.run

    def run(self: Any, i: int) -> Any:
        made = honest(self, i)
        if i == 1:
            signal.raise_signal(signal.SIGINT)
        return made

    monkeypatch.setattr(reporting.DecodedRuns, "run", run)
    (tmp_path / "p.txt").write_text("one\ntwo\nthree\nfour\n", encoding="utf-8")
    code, out, err = said("report", "--prompts", str(tmp_path / "p.txt"), *SHORT, "--json")
    assert code == 130 and json.loads(out)["runs"] == 2 and "2 prompts before" in err


TIMED = {
    "speed",
    "widths",
    "tokens_per_s",
    "spent",
    "advice",
    "curve",
    "clock",
    "payoff",
}  # figures of a report that depend on times


def on_the_page(folder: Path, file: Path, batch: int) -> dict[str, Any]:
    """The report that the page computes from the same numbers."""
    model, play = load("lab-draft"), RunService("lab-draft", "lab-draft", folder)
    play.models.put(target=model, draft=model)
    names, knobs = (
        {"drafter": "draft_model", "sampler": ["temperature"]},
        {"drafter": {"max_draft_tokens": 3}},
    )
    choice = RunChoice("", names, knobs, seed=5, max_new=12)
    runs = PromptBatch(
        play, choice, reporting.read_prompts(str(file)), RecordFolder(folder / "kept"), batch
    ).begin()
    record = eventually(lambda: runs.over and runs.record())
    play.close()
    return json.loads(
        json.dumps(report([open_trace(folder / f"{x}.dstrace") for x in record["runs"]]).record())
    )


def test_prompts_that_go_together_are_reported_on_as_those_that_do_not(
    said, recorded: list[str], tmp_path: Path
) -> None:
    """Rows keep the order of the prompts, although the first takes longest to read; one prompt does not fit."""
    file, long = tmp_path / "p.txt", "one two three " * 1500
    file.write_text("\n".join([PROMPTS[0], long, PROMPTS[1]]), encoding="utf-8")
    drawn = ["--sampler", "temperature", "--seed", "5", "--traces", str(tmp_path / "runs"), "--json"]
    code, out, err = said("report", "--prompts", str(file), *SHORT, *drawn, "--batch", "2")
    assert code == 0 and err.startswith("Left out: 1. The first, prompt 2: ")
    traces = [open_trace(x) for x in sorted((tmp_path / "runs").iterdir())]
    assert [x.text().startswith(p) for x, p in zip(traces, PROMPTS, strict=True)] == [True, True]
    assert traces[0].text() == open_trace(recorded[0]).text() and [x.header.seed for x in traces] == [5, 7]
    together = [x.together for trace in traces for step in trace.steps for x in step.passes]
    assert together.count(2) > 8
    told = json.loads(out)
    assert told["runs"] == 2 and any(
        "target passes were run for several texts at once" in x for x in told["notes"]
    )
    page = on_the_page(tmp_path / "page", file, batch=2)
    for one in (told, page):
        del one["steps_of"]["spent"]  # the steps that took longest
    assert {k: told[k] for k in page.keys() - TIMED} == {k: page[k] for k in page.keys() - TIMED}, (
        "the page says the same"
    )


def test_an_interrupt_stops_those_that_go_together(
    said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from decodescope.engine.session.session import Session

    honest, made = Session.step, list[Session]()

    def step(self: Session) -> Any:
        if self not in made:
            made.append(self)
        if len(made) == 4:  # the first two have ended
            signal.raise_signal(signal.SIGINT)
        return honest(self)

    monkeypatch.setattr(Session, "step", step)
    (tmp_path / "p.txt").write_text("one\ntwo\nthree\nfour\nfive\n", encoding="utf-8")
    code, out, err = said("report", "--prompts", str(tmp_path / "p.txt"), *SHORT, "--json", "--batch", "2")
    assert code == 130 and json.loads(out)["runs"] == 2 and "2 prompts before" in err


BAD = {
    "nothing to report on": "report",
    "both": "report a.dstrace --prompts p --model lab",
    "a method for recorded runs": "report a.dstrace --drafter draft_model",
    "a knob for recorded runs": "report a.dstrace --set drafter.max_draft_tokens=2",
    "absent": "report /no/such/trace",
    "no trace": f"report {shlex.quote(__file__)}",
    "no model": "report --prompts p",
    "no prompts": "report --prompts /no/such/file --model lab",
    "nothing drafted": f"report --prompts {shlex.quote(__file__)} --model lab",
    "short of a file": f"report --prompts {shlex.quote(__file__)} --short --model lab --drafter draft_model",
    "a strategy without drafts": f"report --prompts {shlex.quote(__file__)} --model lab --strategy jacobi",
    "page over a file": f"report a.dstrace --html {shlex.quote(__file__)}",
    "page in no folder": "report a.dstrace --html /no/such/folder/r.html",
    "traces in no folder": f"report --prompts {shlex.quote(__file__)} --model lab --traces /no/such/folder/t",
}


@pytest.mark.parametrize("command", BAD.values(), ids=BAD.keys())
def test_bad_input_is_refused_in_one_sentence(said, command: str) -> None:
    code, out, err = said(*shlex.split(command))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and "Traceback" not in err and err.endswith(".\n")


def test_runs_of_two_methods_are_refused(said, recorded: list[str], tmp_path: Path) -> None:
    other = tmp_path / "other.dstrace"
    run = ["run", *METHOD, "--prompt", "x", "--max-new-tokens", "6", "--trace", str(other), "--json"]
    assert said(*run)[0] == 0
    code, out, err = said("report", *recorded, str(other))
    assert (code, out) == (2, "") and "other.dstrace has another method" in err


def test_traces_need_a_folder_without_any(said, recorded: list[str], tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("x", encoding="utf-8")
    command = [
        "report",
        "--prompts",
        str(tmp_path / "p.txt"),
        *SHORT,
        "--traces",
        str(Path(recorded[0]).parent),
    ]
    code, out, err = said(*command)
    assert (code, out) == (2, "") and "holds traces already" in err


def test_a_report_is_priced_for_another_machine_and_printed_as_numbers(said, recorded: list[str]) -> None:
    code, out, err = said("report", *recorded, "--machine", "h100-sxm", "--sequences", "16")
    assert (code, err) == (0, "") and "priced for H100 SXM, 16 texts at a time" in out
    code, out, err = said("report", *recorded, "--metrics")
    numbers = json.loads(out)
    assert (code, err) == (0, "") and numbers["runs"] == 2 and numbers["acceptance.depth.1"] == 1


def test_a_report_beside_another_one_lists_what_changed(said, recorded: list[str]) -> None:
    code, out, _ = said("report", *recorded, "--beside", *recorded)
    assert code == 0 and "\n\nBeside: 2 runs of lab-draft" in out and "\n\nWhat changed\n" in out
    code, out, _ = said("report", *recorded, "--beside", *recorded, "--json")
    beside = json.loads(out)["beside"]
    assert code == 0 and beside["report"]["runs"] == 2 and beside["check"] is None


@pytest.mark.parametrize(
    ("more", "says"),
    [(["--fail-below", "0.9"], "--fail-below needs a report to compare with"),
     (["--sequences", "4"], "--sequences belongs to --machine"),
     (["--machine", "abacus"], "No machine 'abacus'"),
     (["--fail-below", "0.9", "--beside", "SAME"], "have 2 prompts in common, and 5 are needed")],
)  # fmt: skip
def test_options_of_a_gate_or_a_machine_that_cannot_work_are_refused(
    said, recorded: list[str], more: list[str], says: str
) -> None:
    given = [y for x in more for y in (recorded if x == "SAME" else [x])]
    code, out, err = said("report", *recorded, *given)
    assert (code, out) == (2, "") and says in err and err.count("\n") == 1
