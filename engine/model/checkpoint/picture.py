"""The pictures that a model writes, as its config.json describes them in a key of ours; other readers ignore it. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodescope.engine.core.spec import PictureSpec

from .folder import LoadError

WORDS = ("height", "width", "levels", "cells")


def read_picture(config: Mapping[str, Any], name: str, vocab: int) -> PictureSpec | None:
    """The pictures of a model of `vocab` ids; None if its config has none. Raises LoadError for invalid pictures.

    `"picture": {"height": 8, "width": 8, "levels": [ids], "cells": [ids]}`, the last only for a model that writes its cells
    in any order.
    """
    said = config.get("picture")
    if said is None:
        return None
    if not isinstance(said, Mapping) or not set(WORDS[:3]) <= set(said) <= set(WORDS):
        raise LoadError(
            f"{name}: config.json gives picture as {str(said)[:40]}; it must hold {', '.join(WORDS[:3])}, and may hold cells."
        )
    for word in WORDS[:2]:
        if type(said[word]) is not int:
            raise LoadError(
                f"{name}: config.json gives the picture's {word} as {str(said[word])[:40]}; it must be a whole number."
            )
    for word in WORDS[2:]:
        ids = said.get(word, [])
        if not isinstance(ids, list) or any(type(x) is not int for x in ids):
            raise LoadError(
                f"{name}: config.json gives the picture's {word} as {str(ids)[:40]}; it must be a list of ids."
            )
    shape = PictureSpec(said["height"], said["width"], tuple(said["levels"]), tuple(said.get("cells", [])))
    if wrong := shape.vocab_problem(vocab):
        raise LoadError(f"{name}: config.json gives its picture {wrong}.")
    return shape
