"""Picture shape: the shape of the picture that a run writes, for a view."""

from __future__ import annotations

from typing import Any

from decodescope.engine.trace.details.picture_passes import picture_start
from decodescope.engine.trace.records.events import Header

MOST = 4096  # maximum cells of a drawn picture


def encode_picture_shape(header: Header) -> dict[str, Any]:
    """picture: {"height", "width", "levels": ids of the grey levels from the background on, "begin": position of its first
    cell, "known": ids of the cells that the prompt ends with}; nothing for a model of text, or for more cells than are drawn.
    """
    picture = header.model.get("picture")
    shape: dict[str, Any] = picture if isinstance(picture, dict) else {}
    height, width, levels = (shape.get(name) for name in ("height", "width", "levels"))
    if type(height) is not int or type(width) is not int or height < 1 or width < 1 or height * width > MOST:
        return {}
    if not isinstance(levels, list) or len(levels) < 2 or not all(type(x) is int for x in levels):
        return {}
    ids = header.prompt.tolist()
    begin = picture_start(ids, levels)
    return {
        "picture": {"height": height, "width": width, "levels": levels, "begin": begin, "known": ids[begin:]}
    }
