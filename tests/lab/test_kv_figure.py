"""The curves of bench kv: one line per method, over bytes, compared with the full cache."""

from __future__ import annotations

from typing import Any

import pytest
from toylab import HOSTILE as TEXTS

from decodescope.app.commands.bench import kv as bench_kv
from decodescope.lab.figures.measured import kv_price

HOSTILE = TEXTS[0]


def point(share: float | None, size: float | None, nats: float) -> dict[str, Any]:
    one = {"nats": nats, "kl": nats / 10, "same": 0.5}
    keys = {"asked": 0 if size is None else 4, "right": 3, "bytes": size and size / 2}
    kinds = {"text": one, "copy": one}
    return {"share": share, "bytes": size, "entries": size, "faults": [], "by_kind": kinds, "passkey": keys}


FOUND = {
    "settings": {"model": HOSTILE},
    "kinds": {"text": 1, "copy": 0, "passkey": 4},
    "methods": {
        "autoregressive": [point(1.0, 1.0, 2.0)],
        HOSTILE: [point(0.5, 0.55, 2.1), point(0.1, 0.15, 2.9)],
        "packed": [point(None, 0.2, 2.2)],
        "broken": [point(0.5, None, 0.0)],
    },
}


def test_each_method_is_a_curve_over_its_bytes_and_the_full_cache_a_line() -> None:
    drawing = kv_price.figure(FOUND)
    first, packed, broken = drawing.data
    assert list(first.x) == pytest.approx([15, 55]) and list(first.y) == [2.9, 2.1]
    assert list(first.text) == ["budget 10 %", "budget 50 %"]
    assert list(packed.text) == ["as set"] and not broken.x
    assert [x.y0 for x in drawing.layout.shapes] == [2.0]
    assert HOSTILE not in drawing.to_json().replace("\\u003c", "<"), "names are text, not markup"
    assert [round(y, 2) for y in kv_price.figure(FOUND, shows="kl").data[0].y] == [0.29, 0.21]


def test_pass_keys_are_a_share_of_those_asked_over_the_bytes_behind_the_answers() -> None:
    drawing = kv_price.figure(FOUND, shows="keys")
    assert list(drawing.data[0].x) == pytest.approx([7.5, 27.5]) and list(drawing.data[0].y) == [0.75, 0.75]
    assert not drawing.data[2].x and drawing.layout.yaxis.title.text == "pass keys answered"


def test_results_from_before_pass_keys_were_asked_are_read() -> None:
    methods = {
        name: [{k: x[k] for k in x if k != "passkey"} for x in points]
        for name, points in FOUND["methods"].items()
    }
    old = {**FOUND, "kinds": {"text": 1, "copy": 0}, "methods": methods}
    assert kv_price.figure(old).data and list(kv_price.table(old)["asked"]) == [0] * 5
    assert bench_kv.rows(old)[0][-1] == "-" and "0 pass keys" in bench_kv.sizes(
        {**old, "settings": {"prompt": 9, "words": 3}}
    )
    with pytest.raises(ValueError, match="run decodescope bench kv first"):
        kv_price.figure(old, shows="keys")


def test_nothing_measured_is_said_and_the_table_has_a_row_a_point() -> None:
    with pytest.raises(ValueError, match="run decodescope bench kv first"):
        kv_price.figure(FOUND, "copy")
    table = kv_price.table(FOUND)
    assert len(table) == 5 and list(table["method"])[1] == HOSTILE and table["text: nats a word"][2] == 2.9
    assert list(table["pass keys"])[:2] == [3, 3] and list(table["asked"]) == [4, 4, 4, 4, 0]
