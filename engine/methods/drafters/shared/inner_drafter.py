"""Inner drafter: a drafter that another one uses, written as text with its knobs, e.g. "medusa nodes=24"."""

from __future__ import annotations

from typing import cast

from decodescope.engine.core.component import parse_component
from decodescope.engine.decoding.bases.drafter import Drafter


def parse_drafter(text: str, where: str) -> Drafter:
    """A new drafter as `text` names it; messages name `where`, the knob that holds the text.

    Raises ParamError if there is no such drafter or knob.
    """
    return cast(Drafter, parse_component("drafter", text, where))


def refuse_files(inner: Drafter, text: str, where: str) -> str | None:
    """Why `inner`, made of `text`, cannot be used: it names a file, which a record of the outer drafter would not hold.
    None if it names none."""
    if not inner.file_knobs():
        return None
    return f"{where} = {text!r}: a file cannot be named here; leave it out, or use {inner.name} alone."
