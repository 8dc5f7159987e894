"""Passage: the part of a prompt between two texts."""

from __future__ import annotations

import numpy as np

from decodescope.engine.decoding.bases.state import State
from decodescope.engine.model.forward.executor import EngineFault

from .strategy_text import ids_of


def find_passage(s: State, name: str, after: str, until: str) -> tuple[int, int]:
    """Find the (start, stop) positions of the passage in the prompt; an empty text is not searched for.

    The passage has the whole tokens before the last `until`, and behind the last `after` before that. name: the part with these
    knobs. Raises EngineFault.
    """
    pieces = s.stop.pieces or (lambda token: b"<%d>" % token)
    begins, ends = (
        x.encode() if s.stop.pieces else b"".join(map(pieces, ids_of(s, x))) for x in (after, until)
    )
    units = list(map(pieces, s.tokens[: s.prompt]))
    text, edges = b"".join(units), np.cumsum([0, *map(len, units)])
    stop = text.rfind(ends) if until else len(text)
    start = text.rfind(begins, 0, max(stop, 0)) if after else 0
    for knob, given, asked, at in (
        ("passage_end", until, ends, stop),
        ("passage_start", after, begins, start),
    ):
        if at < 0 or (given and not asked):
            where = (
                "in the prompt"
                if knob == "passage_end" or not until
                else "in the prompt before `passage_end`"
            )
            raise EngineFault("bad_input", f"{name}.{knob} does not occur {where}: give a text that does.")
    first = int(np.searchsorted(edges, start + len(begins)))
    behind = int(np.searchsorted(edges, stop, "right")) - 1
    if first >= behind:
        raise EngineFault(
            "bad_input",
            f"{name} finds no whole token between `passage_start` and `passage_end`: move them apart.",
        )
    return first, behind
