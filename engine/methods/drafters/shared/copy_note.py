"""Copied: the note of a drafter that copies tokens from the text."""

from __future__ import annotations

from decodescope.engine.core.note import PLACE, Note

COPIED = Note(
    "node", "copied from", PLACE, "where in prompt and text the token stands that this is a copy of"
)
