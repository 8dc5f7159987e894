"""The command `train`: a head is trained, kept, drawn and goes on; refusals are one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

PROMPTS = [f"Once upon a time there were {i} owls." for i in range(6)]
ASKED = (
    "train",
    "head",
    "eagle3",
    "--model",
    "lab-draft",
    "--tokens",
    "60",
    "--answer-tokens",
    "12",
    "--window",
    "64",
)
SIZES = (
    "--rank",
    "8",
    "--d-ff",
    "16",
    "--kept-tokens",
    "64",
    "--every",
    "1",
    "--batch-tokens",
    "96",
    "--threads",
    "1",
)


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.txt"
    path.write_text("\n".join(PROMPTS) + "\n", encoding="utf-8")
    return str(path)


def test_a_head_is_trained_drawn_and_drafts(said, prompts: str, tmp_path: Path) -> None:
    out, html = tmp_path / "out", tmp_path / "out.html"
    words = (*ASKED, *SIZES, "--prompts", prompts, "--out", str(out))
    code, text, err = said(*words, "--html", str(html))
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert code == 0 and len(rows) > 1 and rows[-1]["tokens"] >= 60, err
    assert (
        f"{rows[-1]['tokens']:,} tokens in {rows[-1]['steps']:,} steps" in text
        and str(out / "eagle3") in text
    )
    assert err.count("tokens a pass") == len(rows)
    drawn = html.read_text(encoding="utf-8")
    assert all(x in drawn for x in ("eagle3 head for lab", "position 1", "position 3", "loss"))
    shape = json.loads((out / "eagle3" / "config.json").read_text())["shape"]
    assert (shape["rank"], shape["d_ff"], shape["kept"]) == (8, 16, 64)
    assert 'http-equiv="refresh"' not in drawn, "the training is over"
    code, text, err = said(*words, "--html", str(html), "--json")
    record = json.loads(text)
    assert code == 0 and record["metrics"] == rows and record["accepted"] == rows[-1]["accepted"], (
        "it was finished"
    )
    draft = ("--drafter", "eagle3", "--head", f"eagle3={out / 'eagle3'}", "--max-new-tokens", "6", "--json")
    code, text, err = said("run", "--model", "lab-draft", "--prompt", PROMPTS[0], *draft)
    plain = said("run", "--model", "lab-draft", "--prompt", PROMPTS[0], "--max-new-tokens", "6", "--json")[1]
    assert code == 0 and json.loads(text)["text"] == json.loads(plain)["text"], err
    assert json.loads(text)["drafted"] > 0
    code, text, err = said(*words[:-1], str(out), "--seed", "3")
    assert (code, text, err.count("\n")) == (2, "", 2) and "whose seed was 0 and not 3" in err, err


def test_the_picture_of_a_training_that_goes_on_asks_for_news(
    said, prompts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from decodescope.engine.training.run import HeadTraining

    def fails(training: HeadTraining) -> None:
        raise KeyboardInterrupt

    out, html = tmp_path / "out", tmp_path / "out.html"
    words = (*ASKED, *SIZES, "--prompts", prompts, "--out", str(out), "--html", str(html))
    with monkeypatch.context() as patched:
        patched.setattr(HeadTraining, "_save", fails)
        assert said(*words)[0] == 130
    assert '<meta http-equiv="refresh" content="10">' in html.read_text(encoding="utf-8")
    assert said(*words)[0] == 0 and "http-equiv" not in html.read_text(encoding="utf-8")


def test_what_cannot_be_trained_is_one_sentence(said, prompts: str, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("Once\n")
    new = str(tmp_path / "new")
    for words, why in (
        (("train", "head", "nothing", *ASKED[3:], "--prompts", prompts), "choose one of medusa"),
        ((*ASKED, "--prompts", str(tmp_path / "none")), "cannot be read"),
        ((*ASKED, "--prompts", prompts, "--window", "12"), "leaves no room for a prompt"),
        ((*ASKED, "--prompts", prompts, "--lr", "0"), "--lr"),
        (
            ("train", "head", "medusa", *ASKED[3:], "--prompts", prompts, "--rank", "3"),
            "medusa heads have no rank",
        ),
        ((*ASKED, "--prompts", prompts, "--kept-tokens", "60000"), "choose fewer"),
        (("train", "head", "eagle3", "--model", "lab-mdm", "--prompts", prompts), "lab-mdm"),
    ):
        code, text, err = said(*words, "--out", new, "--threads", "1")
        notes = [x for x in err.splitlines() if "has a chat template" not in x and not x.startswith("Note: ")]
        assert (code, text, len(notes)) == (2, "", 1) and why in notes[0], (words, err)
