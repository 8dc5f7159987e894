"""The figure of repetition: three curves by copy, and every token of one sentence in every copy."""

from __future__ import annotations

import pytest

from decodescope.lab.figures import repetition

RECORD = {
    "settings": {"model": "toy", "sentences": 2, "times": 2},
    "curve": [{"n": 1, "tp": 0.2, "ip": 0.0, "wr": 0.1}, {"n": 2, "tp": 0.6, "ip": 0.5, "wr": 0.4}],
    "sentences": [
        {
            "prefix": "A.",
            "text": "b c.",
            "pieces": [" <b>", " c", "."],
            "p": [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]],
            "best": [],
        },
        {"prefix": "A.", "text": "d", "pieces": [" d"], "p": [[0.1], [0.9]], "best": []},
    ],
}


def test_curves_and_tokens_are_those_of_the_record() -> None:
    *curves, heat = repetition.figure(RECORD).data
    assert [list(x.y) for x in curves] == [[0.2, 0.6], [0.0, 0.5], [0.1, 0.4]] and all(
        list(x.x) == [1, 2] for x in curves
    )
    assert [x.name[:2] for x in curves] == ["TP", "IP", "WR"]
    assert [list(x) for x in heat.z] == RECORD["sentences"][0]["p"] and list(heat.y) == [1, 2]
    drawing = repetition.figure(RECORD)
    assert "<b>" not in str(drawing.layout.xaxis2.ticktext), "a token is no markup"
    assert [list(x) for x in repetition.figure(RECORD, 1).data[-1].z] == [[0.1], [0.9]]
    assert repetition.table(RECORD).to_dict("list") == {
        "copy": [1, 2],
        "TP": [0.2, 0.6],
        "IP": [0.0, 0.5],
        "WR": [0.1, 0.4],
    }


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="sentence is 0 to 1"):
        repetition.figure(RECORD, 2)
    with pytest.raises(ValueError, match="nothing was measured"):
        repetition.figure({**RECORD, "sentences": []})
