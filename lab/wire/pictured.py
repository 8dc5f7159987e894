"""Pictured: the shape of the picture that a run writes, for a view."""

from __future__ import annotations

from typing import Any

from decodescope.engine.trace.events import Header
from decodescope.engine.trace.pictured import begins

MOST = 4096  # cells of a picture that is drawn


def picture_shown(header: Header) -> dict[str, Any]:
    """picture: {"height", "width", "levels": ids of the grey levels from the background on, "begin": position of its first
    cell, "known": ids of the cells that the prompt ends with}; nothing for a model of text, or for more cells than are drawn.
    """
    shape = header.model.get("picture")
    sides = [shape.get(side) for side in ("height", "width")] if isinstance(shape, dict) else []
    if not sides or not all(type(x) is int and x > 0 for x in sides) or sides[0] * sides[1] > MOST:
        return {}
    levels, ids = shape.get("levels") if isinstance(shape, dict) else None, header.prompt.tolist()
    if not isinstance(levels, list) or len(levels) < 2 or not all(type(x) is int for x in levels):
        return {}
    begin = begins(ids, levels)
    return {"picture": {"height": sides[0], "width": sides[1], "levels": levels, "begin": begin, "known": ids[begin:]}}
