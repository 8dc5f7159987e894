"""The command `measure`: it prints what was measured, and the loops that it reports are in the text."""

from __future__ import annotations

import json
from pathlib import Path

from decodescope.app.commands.measure import repetition_text

ASKED = ["measure", "repetition", "--model", "lab-draft", "--threads", "1"]


def test_repetition_prints_writes_and_draws_one_measurement(said, tmp_path: Path) -> None:
    out, html = tmp_path / "found.json", tmp_path / "found.html"
    asked = [*ASKED, "--sentences", "6", "--times", "3"]
    code, text, err = said(*asked, "--out", str(out), "--html", str(html))
    record = json.loads(out.read_text(encoding="utf-8"))
    assert (code, text.strip()) == (0, repetition_text(record).strip()), err
    assert [x["n"] for x in record["curve"]] == [1, 2, 3] and record["curve"][0]["ip"] == 0
    assert len(record["sentences"]) == 6 and sum(x["sentences"] for x in record["starts"]) == 6
    for one in record["sentences"]:
        assert "".join(one["pieces"]) == f" {one['text']}" and len(one["p"]) == len(one["best"]) == 3
        assert all(len(row) == len(one["pieces"]) and all(0 <= x <= 1 for x in row) for row in one["p"])
    assert "more likely than in the first copy" in html.read_text(encoding="utf-8")
    code, text, _ = said(*asked, "--json")
    again = json.loads(text)
    assert code == 0 and again["curve"] == record["curve"] and again["sentences"] == record["sentences"]


def test_loops_of_a_text_and_of_a_trace(said, tmp_path: Path) -> None:
    file, trace = tmp_path / "text.txt", tmp_path / "run.dstrace"
    file.write_text("So it went." + " and round the house it went" * 3, encoding="utf-8")
    code, text, _ = said("measure", "loops", str(file), "--json")
    record = json.loads(text)
    (one,) = record["repeats"]
    assert (
        code == 0 and one["loop"] and one["ending"] and one["text"].endswith(" and round the house it went")
    )
    assert record["said_again"] > 0.3 and one["at"] + one["lasts"] == record["tokens"]
    code, text, _ = said("measure", "loops", str(file))
    assert (
        code == 0
        and f"The text ends in a loop: from token {one['at']} on every {one['period']} tokens." in text
    )
    file.write_text("Nothing here is said twice.", encoding="utf-8")
    assert said("measure", "loops", str(file))[:2] == (1, "No 4 tokens occur twice among 10.\n")
    said(
        "run",
        "--model",
        "lab-draft",
        "--prompt",
        "One, two, one, two,",
        "--max-new-tokens",
        "24",
        "--trace",
        str(trace),
    )
    code, text, _ = said("measure", "loops", str(trace), "--grams", "1", "--json")
    record = json.loads(text)
    assert code == 0 and record["tokens"] == 24 and record["repeats"], (
        "written tokens alone, not the prompt's"
    )


def test_what_cannot_be_measured_is_one_sentence(said, tmp_path: Path) -> None:
    (there := tmp_path / "there.json").write_text("{}", encoding="utf-8")
    free = str(tmp_path / "free")
    for words, why in (
        ([*ASKED, "--out", str(there)], "exists"),
        ([*ASKED, "--html", str(tmp_path / "no" / "x.html")], "There is no folder"),
        ([*ASKED, "--out", free, "--html", free], "--out and --html name the same file"),
        ([*ASKED, "--text", str(there)], "has no sentence"),
        ([*ASKED, "--times", "1"], "--times"),
        ([*ASKED, "--sentences", "2", "--times", "900"], "choose --times"),
        (["measure", "repetition", "--model", "lab-mdm"], "lab-mdm"),
        (["measure", "loops", str(tmp_path / "none.txt")], "cannot be read"),
        (["measure", "loops", str(tmp_path / "none.dstrace")], "none.dstrace"),
    ):
        code, text, err = said(*words)
        assert (code, text, err.count("\n")) == (2, "", 1) and why in err, (words, err)
