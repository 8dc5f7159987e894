"""The picture of an examination: every share that the doctor measured is drawn, a sound draft beside it, names as text."""

from __future__ import annotations

from typing import Any

import pytest

from decodescope.lab.figures.measured.draft_examination import PANELS, figure

NAME = "<b>draft</b>"
RECORD: dict[str, Any] = {
    "target": "lab",
    "draft": NAME,
    "overlap": 0.25,
    "findings": [{"title": "the draft guesses another place", "cause": "place_shift", "certainty": 0.9}],
    "experiments": [{"cause": "place_shift", "how": "one place earlier", "before": 0.25, "after": 0.8}],
    "ranks": [
        {"from": 1, "to": 1, "share": 0.3},
        {"from": 2, "to": 4, "share": 0.5},
        {"from": 5, "to": None, "share": 0.2},
    ],
    "by_offset": [
        {"offset": o, "agree": a, "overlap": 0.1} for o, a in ((-1, 0.9), (0, 0.3), (1, 0.1), (2, None))
    ],
    "by_id_distance": [{"distance": 0, "share": 0.3}, {"distance": 1, "share": 0.05}],
    "by_position": [{"from": 0, "to": 31, "overlap": 0.4}, {"from": 32, "to": 63, "overlap": 0.15}],
    "by_class": [
        {"class": "digits", "places": 9, "overlap": 0.6},
        {"class": "tokens after line ends", "places": 0, "overlap": None},
    ],
    "by_template": [
        {"chat": False, "places": 30, "overlap": 0.35},
        {"chat": True, "places": 12, "overlap": 0.12},
    ],
}
DUE = {
    "ranks": (["1", "2–4", "5+"], [0.3, 0.5, 0.2]),
    "offsets": (["-1", "0", "+1", "+2"], [0.9, 0.3, 0.1, None]),
    "ids": (["0", "+1"], [0.3, 0.05]),
    "positions": (["0", "32"], [0.4, 0.15]),
    "kinds": (["digits", "plain prompts", "chat template"], [0.6, 0.35, 0.12]),
}


def test_every_share_is_drawn() -> None:
    before, after, *bars = figure(RECORD).data
    assert [(list(x.y), list(x.x)) for x in (before, after)] == [
        (["one place earlier"], [0.25]),
        (["one place earlier"], [0.8]),
    ]
    assert [(list(x.x), list(x.y)) for x in bars] == [DUE[name] for name in PANELS]


@pytest.mark.parametrize("name", PANELS)
def test_a_sound_draft_stands_beside(name: str) -> None:
    sound = {**RECORD, "overlap": 0.9, "by_position": [{"from": 0, "to": 31, "overlap": 0.9}]}
    one, other = figure(RECORD, sound, [name]).data
    assert (list(one.x), list(one.y)) == DUE[name] and list(other.x) == list(
        DUE[name][0][:1] if name == "positions" else DUE[name][0]
    )
    assert [one.name, other.name] == [
        "this draft",
        "a sound draft",
    ] and one.marker.color != other.marker.color


def test_names_are_no_markup_and_an_unknown_panel_is_refused() -> None:
    assert NAME not in figure(RECORD).layout.title.text and "25%" in figure(RECORD).layout.title.text
    with pytest.raises(ValueError, match="there is no panel 'rank': there are readings, ranks"):
        figure(RECORD, panels=["rank"])
