"""The depth map as a chart: each cell shows the record of its layer, and the line runs where passes exited."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import toys
from source import ROOT

from decodescope.engine.trace import Trace
from decodescope.lab import figure
from decodescope.lab.figures.layers import DID, pass_columns

LAYERS = 6
DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=LAYERS), 3, torch.float64))


def run(**parts: Any) -> Trace:
    return toys.decode(toys.method(**parts), count=16, pair=(DEEP, DEEP)).sink


def cells(trace: Trace) -> list[str]:
    """For each column the letters that are drawn, read back from the bars."""
    drawing = figure(trace, "layers")
    drawn: dict[tuple[int, int], str] = {}
    for bars in (x for x in drawing.data if x.type == "bar"):
        letter = next(x for x, (sign, word, *_) in DID.items() if f"{sign} {word}".strip() == bars.name)
        for n, base in zip(bars.x, bars.base, strict=True):
            place = (int(n), int(base + 0.5))
            assert place not in drawn, "a cell says one thing"
            drawn[place] = letter
    many = max(n for n, _ in drawn) + 1
    return ["".join(drawn[n, layer] for layer in range(LAYERS)) for n in range(many)]


def line(trace: Trace) -> list[float | None]:
    """For each column the layer at which the line runs."""
    marks = [x for x in figure(trace, "layers").data if x.name == "where passes left"]
    return [None if y is None else y + 0.5 for y in marks[0].y[::2]] if marks else []


def test_cells_and_line_are_the_exits_of_the_record() -> None:
    trace = run(adaptive_depth=("confidence_exit", {"threshold": 0.9, "min_layers": 1}))
    depths = [step.exits[0].depth for step in trace.steps]
    assert len(set(depths)) > 2, "the test needs passes that leave at several depths"
    assert cells(trace) == ["r" * x + "p" * (LAYERS - x) for x in depths]
    assert line(trace) == depths
    assert not any(x.name == "the full depth's own choice" for x in figure(trace, "layers").data)
    ticks = figure(trace, "layers").layout
    assert ticks.yaxis.range[0] > ticks.yaxis.range[1], "layer 0 stands at the top"
    assert [int(x) for x in ticks.xaxis.ticktext] == [trace.steps[n].step for n in ticks.xaxis.tickvals]


def test_a_layer_that_waited_says_so_until_the_token_went_on() -> None:
    trace = run(adaptive_depth=("free", {"min_layers": 2, "threshold": 0.5, "max_pending": 4}))
    ran = ["".join(x.letters) for x in pass_columns(trace.steps, LAYERS)]
    early = sum(step.exits[0].depth < LAYERS for step in trace.steps if step.exits)
    assert early > 2 and "w" not in "".join(ran) and sum(x == "rrllll" for x in ran) == early
    assert cells(trace) == ran
    first = next(i for i, step in enumerate(trace.steps) if step.exits and step.exits[0].depth < LAYERS)
    before = pass_columns(trace.steps[: first + 1], LAYERS)
    assert before[-1].letters == [*"rrwwww"], "what comes later is not told sooner"


def test_drafts_stand_before_their_check_which_has_no_line() -> None:
    trace = run(
        drafter=(
            "early_exit",
            {"criterion": "confidence_exit threshold=0.6 min_layers=1", "max_draft_tokens": 3},
        )
    )
    shown = pass_columns(trace.steps, LAYERS)
    drafted = next(step for step in trace.steps if step.draft)
    own = [x for x in shown if x.step == drafted.step]
    assert [x.token for x in own][: len(drafted.draft.tokens)] == drafted.draft.tokens and own[
        -1
    ].token == drafted.emitted[-1]
    assert own[-1].left is None and own[-1].drafted is None and all(x.left is not None for x in own[:-1])
    assert own[-1].letters[0] == "b", "what drafts ran is in another pass of the step"
    exits = [x.exit for x in own if x.exit is not None]
    assert exits == drafted.exits and [x.depth for x in exits] == [x.left for x in own if x.exit is not None]
    assert [x is None for x in line(trace)] == [x.left is None for x in shown]


def test_a_diamond_stands_where_an_oracle_left() -> None:
    trace = run(adaptive_depth=("confidence_exit", {"criterion": "oracle", "min_layers": 1}))
    (marks,) = [x for x in figure(trace, "layers").data if x.name == "the full depth's own choice"]
    due = [
        (n, step.exits[0].depth - 0.5) for n, step in enumerate(trace.steps) if step.exits[0].depth < LAYERS
    ]
    assert due and [*zip(marks.x, marks.y, strict=True)] == due


def test_letters_and_words_are_the_pages() -> None:
    script = (ROOT / "lab" / "web" / "scope" / "model" / "depth.js").read_text(encoding="utf-8")
    theirs = re.findall(r'"?([a-z-])"?: \["(\w?)", "([^"]+)", "\w*"\]', script)
    assert len(theirs) == len(DID) and {x: (sign, word) for x, sign, word in theirs} == {
        x: DID[x][:2] for x in DID
    }


def test_a_run_over_all_layers_has_no_map() -> None:
    with pytest.raises(ValueError, match="ran all layers"):
        figure(run(), "layers")
