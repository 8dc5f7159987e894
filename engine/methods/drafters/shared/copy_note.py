"""Copied: what a drafter tells of tokens that stand in the text already."""

from __future__ import annotations

from decodescope.engine.core.note import PLACE, Note

COPIED = Note(
    "node", "copied from", PLACE, "where in prompt and text the token stands that this is a copy of"
)
