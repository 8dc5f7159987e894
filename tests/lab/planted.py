"""A part that no file of the package knows, which records notes of each kind; and a handwritten run of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.trace import Header, Step, Trace
from decodescope.engine.trace.records.events import DraftTree

NOTES = {
    "sure": Note("node", "sureness", "nats", "how sure it was of the node", line="bar"),
    "before": Note("node", "hung on", "node", "the node before"),
    "bar": Note("series", "bar", "nats", "what the sureness must reach", line="floor"),
    "level": Note("series", "level", "points", "of what is planted", line="bar"),
    "on": Note("series", "planted", what="whether it is on"),
    "reach": Note("span", "reach", "positions", "from where to where it looks"),
    "crew": Note("set", "crew", "layer", "who is in it"),
    "seen": Note("set", "seen", "token", "what was looked up"),
    "sowing": Note("clock", "sowing", "µs", "time to sow"),
    "reaping": Note("clock", "reaping", "µs", "time to reap"),
    "beds": Note("grid", "beds", "plants", "how many stand in each", rows=["left", "right"]),
    "rows": Note("track", "rows", "hours", "in which they grew", rows=["stands", "grows", "wilts"]),
}
HELD = {**NOTES, "bar": replace(NOTES["bar"], at=1.5)}  # as they appear in a header
MODEL = {"name": "toy", "vocab": 50, "params": 1234, "rope": {}}
METHOD = {
    "strategy": {"name": "draft_verify"},
    "drafter": {"name": "planter"},
    "acceptance": {"name": "lossless"},
}


def values(k: int) -> dict[str, Any]:
    """The notes of step k. In every seventh step notes of some kinds are missing."""
    told: dict[str, Any] = {
        "sure": [2.25, 1.0 + k / 8, 0.5],  # the root comes first
        "before": [-1, 0],
        "bar": 1.5 if k < 6 else 2.0,
        "level": 10.0 + 3 * (k % 4),
        "on": k % 3 == 0,
        "reach": [k, k + 4] if k % 2 else [[k, k + 1], [k + 6, k + 9]],
        "crew": [k % 5, 7, 11],
        "seen": [8, 9],
        "sowing": 1500.0 + 100 * k,
        "reaping": 500.0,
        "beds": [k, 2.5],
        "rows": [
            [0, 4 * k, 4 * k + 4, 8, "stands"],
            [1, 4 * k + 2, 4 * k + 4, 9, "grows" if k % 2 else "wilts"],
        ],
    }
    return {
        name: None if k % 7 == 6 and name in ("level", "reach", "crew", "beds") else x
        for name, x in told.items()
    }


@component
class Planter(Drafter):
    """Draft the last two tokens again, and record in each step the notes that `values` returns."""

    title = "Planter"
    source = "made up for a test"
    tells: ClassVar[dict[str, Note]] = NOTES

    floor: float = param(1.5, low=0.0, high=9.0, help="what the bar is held against")

    def begin(self, ctx: Context) -> None:
        self._steps = 0

    def propose(self, ctx: Context) -> Draft:
        if ctx.room < 2:
            return Draft()
        self._steps += 1
        return Draft.chain(ctx.tokens[-2:], source="planted", notes=values(self._steps - 1))


def planted(count: int = 20) -> Trace:
    """A run of so many steps, each with one token from a draft of two nodes."""
    pieces: dict[str, Any] = {"1": "a", "2": " b", "8": "x", "9": ["e2", "96"]}
    more: dict[str, Any] = dict(
        run="cd" * 8, levels=["summary", "decisions"], pieces=pieces, tells={"drafter": dict(HELD)}
    )
    trace = Trace([Header(MODEL, METHOD, np.array([1, 2], "<i4"), 7, **more)])
    for k in range(count):
        draft = DraftTree([8, 9], [-1, 0], [0.5, 0.25], "iid", notes=values(k))
        trace.write(
            Step(k, 2 + k, 1e4 * k, 9e3, [8], ["accepted"], drafted=2, accepted=1, draft=draft, path=[0])
        )
    return trace
