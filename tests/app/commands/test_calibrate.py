"""The command `calibrate`, and `calibrated:NAME` in place of a number."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from decodescope.app.commands.calibrate import parse_grid
from decodescope.engine.core.calibration import load_calibration
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.trace import open_trace

DEPTH = ["--adaptive-depth", "confidence_exit", "--set", "adaptive_depth.min_layers=1"]


def test_a_calibrated_number_runs_as_it_was_found_and_on_no_other_model(said, tmp_path: Path) -> None:
    lines, file, out = tmp_path / "texts.txt", tmp_path / "calm.json", tmp_path / "run.dstrace"
    lines.write_text(
        "\n".join(f"The {x} was" for x in ("dog", "cat", "house", "girl", "sun", "boat", "tree", "cake"))
    )
    asked = [
        "calibrate",
        "--model",
        "lab-draft",
        *DEPTH,
        "--knob",
        "adaptive_depth.threshold",
        "--texts",
        str(lines),
    ]
    more = ["--name", str(file), "--delta", "0.6", "--eps", "0.2", "--max-new-tokens", "4"]
    code, text, err = said(*asked, *more, "--grid", "1.01:0.01:3")
    found = load_calibration(file)
    assert (code, err, found.name, found.value) == (0, "", "calm", found.chosen_point.value) and found.curve[
        0
    ].risk == 0.0
    assert (
        f"--set adaptive_depth.threshold=calibrated:{file}" in text
        and "adaptive_depth.threshold = 1.01: risk 0.0000" in text
    )
    ran = [
        "--prompt",
        "The dog was",
        *DEPTH,
        "--set",
        f"adaptive_depth.threshold=calibrated:{file}",
        "--max-new-tokens",
        "4",
        "--json",
    ]
    code, text, err = said("run", "--model", "lab-draft", *ran, "--trace", str(out))
    assert (
        code == 0
        and f"adaptive_depth.threshold = {found.value:g}, from calibrated:calm"
        in json.loads(text)["notes"][0]
    )
    with closing(open_trace(out)) as trace:
        assert trace.header.method["adaptive_depth"]["threshold"] == found.value
        assert trace.header.parts["adaptive_depth"]["calibrated"]["threshold"]["name"] == "calm"
    for branch, set_, name in (("same", [], "calm"),
                               ("again", ["--set", f"adaptive_depth.threshold=calibrated:{file}"], "calm"),
                               ("other", ["--set", "adaptive_depth.threshold=0.42"], None)):  # fmt: skip
        code, _, err = said(
            "trace", "fork", str(out), "--step", "1", "--trace", str(tmp_path / branch), *set_
        )
        with closing(open_trace(tmp_path / branch)) as trace:
            assert (
                code == 0
                and trace.header.parts["adaptive_depth"]
                .get("calibrated", {})
                .get("threshold", {})
                .get("name")
                == name
            )
            due = {"settings": {"adaptive_depth": {"threshold": "calibrated:calm"}}}
            assert branch != "again" or trace.header.fork["change"] == due
    code, _, err = said("run", "--model", "lab", *ran)
    assert code == 2 and "was found on lab-draft" in err and err.count("\n") == 1
    code, _, err = said(*asked, *more, "--grid", "1.01,0.5")
    assert code == 2 and "exists already" in err
    other = ["--name", str(tmp_path / "b.json"), "--grid", "1.01", "--delta", "0.01", "--max-new-tokens", "2"]
    code, _, err = said(*asked, *other)
    assert code == 1 and "safe end of the grid" in err and not (tmp_path / "b.json").exists()


def test_thresholds_by_exit_are_found_and_run(said, tmp_path: Path) -> None:
    lines, file, out = tmp_path / "texts.txt", tmp_path / "cats.json", tmp_path / "run.dstrace"
    lines.write_text("\n".join(f"The {x} was" for x in ("dog", "cat", "house", "girl", "sun", "boat")))
    asked = ["calibrate", "--model", "lab-draft", *DEPTH, "--texts", str(lines), "--max-new-tokens", "4"]
    code, text, err = said(*asked, "--how", "shared", "--eps", "0.4", "--name", str(file))
    one = load_calibration(file)
    assert (code, err, one.name, one.how, one.tokens) == (0, "", "cats", "shared", 24)
    assert (
        f"--set adaptive_depth.thresholds=calibrated:{file}" in text
        and "24 tokens of 6 texts" in text
        and "at most 0.4" in text
    )
    ran = [
        "--prompt",
        "The dog was",
        *DEPTH,
        "--set",
        f"adaptive_depth.thresholds=calibrated:{file}",
        "--max-new-tokens",
        "4",
        "--json",
    ]
    code, text, err = said("run", "--model", "lab-draft", *ran, "--trace", str(out))
    assert (
        code == 0
        and "from calibrated:cats: by exit, shared, eps 0.4, 24 tokens of 6 texts"
        in json.loads(text)["notes"][0]
    )
    with closing(open_trace(out)) as trace:
        assert trace.header.parts["adaptive_depth"]["calibrated"]["thresholds"] == one.header_record()
    code, text, _ = said(*asked, "--how", "naive", "--name", str(tmp_path / "naive.json"), "--json")
    assert code == 0 and json.loads(text)["value"] == [0.95] * len(one.value)
    for option in (
        ["--knob", "adaptive_depth.threshold"],
        ["--grid", "1,0.5"],
        ["--delta", "0"],
        ["--risk", "edit"],
        ["--whole"],
    ):
        code, _, err = said(*asked, "--how", "shared", "--name", str(tmp_path / "b.json"), *option)
        assert code == 2 and f"{option[0]} is for --how tested" in err and err.count("\n") == 1
    code, _, err = said(*asked, "--name", str(tmp_path / "b.json"))
    assert code == 2 and "Give --knob and --grid" in err
    code, _, err = said(
        *asked[:4], "patience", *asked[5:], "--how", "shared", "--name", str(tmp_path / "b.json")
    )
    assert code == 2 and "no thresholds by exit" in err


def test_grids() -> None:
    assert parse_grid("1:0.5:3") == [1.0, 0.75, 0.5] and parse_grid("3,2") == [3.0, 2.0]
    for text in ("1:2", "a", "1:0:1", "1:0:x", ""):
        with pytest.raises(Refusal, match="--grid"):
            parse_grid(text)
