"""The figure of LabBench: every number in it comes from the result, and names are text."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from toylab import HOSTILE

from decodescope.lab.figures.measured import labbench


def one(
    accuracies: list[float | None], kinds: list[str], *, exactness: str = "lossless", **more: Any
) -> dict[str, Any]:
    """The figures of one method."""
    usual = dict(
        accuracy=0.5, tau=2.5, tokens_per_s=80.0, ratio=1.6, target_passes=40, peak_kv_bytes=3 << 20, step_kv_bytes=2 << 20,
        alike=1.0, identity={"equal": 3, "tied": 0, "parted": 0}, exactness=exactness,
    )  # fmt: skip
    by_kind = {kind: {"accuracy": x} for kind, x in zip(kinds, accuracies, strict=True)}
    return {**usual, "by_kind": by_kind, **more}


def result(kinds: list[str], methods: dict[str, dict[str, Any]], model: str = "toy") -> dict[str, Any]:
    settings = {"model": model, "temperature": 0.0, "questions": {"count": 9}}
    return {"settings": settings, "kinds": dict.fromkeys(kinds, 3), "methods": methods}


KINDS = ["copy", "math", "open"]
FOUND = result(
    KINDS,
    {
        "autoregressive": one([1.0, 0.5, None], KINDS, tau=1.0, ratio=1.0),
        "draft_model": one([1.0, 0.5, None], KINDS),
        "h2o": one([0.25, 0.0, None], KINDS, exactness="lossy", ratio=0.8, tau=None, alike=0.9),
    },
)


def test_the_strip_holds_accuracy_by_method_and_kind() -> None:
    strip, tau, ratio = labbench.figure(FOUND).data
    assert [list(row) for row in strip.z] == [[1.0, 0.5, None], [1.0, 0.5, None], [0.25, 0.0, None]]
    assert [list(row) for row in strip.text] == [["100", "50", "–"], ["100", "50", "–"], ["25", "0", "–"]]
    assert (strip.zmin, strip.zmax) == (0, 1)
    assert list(tau.x) == [1.0, 2.5, None] and list(ratio.x) == [1.0, 1.6, 0.8]
    assert list(tau.y) == list(ratio.y) == list(strip.y) == [0, 1, 2], "one row a method"
    assert (tau.xaxis, ratio.xaxis) == ("x2", "x3") and list(ratio.text) == ["1.00", "1.60", "0.80"]


def test_rows_and_columns_are_named_and_what_changes_the_text_is_marked() -> None:
    layout = labbench.figure(FOUND).layout
    assert list(layout.yaxis.ticktext) == list(FOUND["methods"]) and layout.yaxis.autorange == "reversed"
    assert list(layout.xaxis.ticktext) == KINDS
    marks = [x for x in layout.annotations if x.text == "changes the text"]
    assert [round(x.y) for x in marks] == [2]
    assert (
        layout.xaxis2.title.text == "tokens per target pass"
        and layout.xaxis3.title.text == "speed, plain = 1"
    )
    assert "9 questions to toy, greedy" in layout.title.text
    assert [x.x0 for x in layout.shapes] == [1] and layout.shapes[0].xref == "x3"


def test_the_three_parts_stand_beside_each_other() -> None:
    layout = labbench.figure(FOUND).layout
    domains = [layout.xaxis.domain, layout.xaxis2.domain, layout.xaxis3.domain]
    assert all(a[1] < b[0] for a, b in pairwise(domains))
    assert domains[0][0] == 0 and domains[2][1] == 1
    assert layout.xaxis2.range[1] > 1.3 * 2.5 and layout.xaxis3.range[1] > 1.3 * 1.6, (
        "room for the numbers beside the bars"
    )


def test_the_table_says_the_same() -> None:
    table = labbench.table(FOUND)
    assert list(table["method"]) == list(FOUND["methods"])
    assert list(table["copy"]) == [100.0, 100.0, 25.0] and list(table["math"]) == [50.0, 50.0, 0.0]
    assert table["open"].isna().all()
    assert list(table["× plain decoding"]) == [1.0, 1.6, 0.8] and list(table["text alike"]) == [
        "100 %",
        "100 %",
        "90 %",
    ]
    assert list(table["most KV, MiB"]) == [3.0] * 3 and list(table["most KV while writing, MiB"]) == [2.0] * 3


def test_hostile_names_are_no_tags() -> None:
    kinds = [f"{x}{i}" for i, x in enumerate(HOSTILE)]
    made = labbench.figure(
        result(kinds, {x: one([0.5] * len(kinds), kinds) for x in HOSTILE}, model=HOSTILE[0])
    )
    strip, tau, _ = made.data
    texts = [
        *made.layout.yaxis.ticktext,
        *made.layout.xaxis.ticktext,
        made.layout.title.text,
        *tau.customdata,
    ]
    texts += [x for row in strip.customdata for x in row]
    assert len(texts) > 100 and not [x for x in texts if "<" in x or ">" in x or "\u202e" in x or "\0" in x]


def test_a_result_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="run decodescope bench labbench first"):
        labbench.figure(result([], {"autoregressive": one([], [])}))
