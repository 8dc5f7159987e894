"""Copies: what a view is told of where the tokens of a text were copied from."""

from __future__ import annotations

from typing import Any

from decodescope.engine.trace.detail_checks.copies import emitted_sources
from decodescope.engine.trace.records.events import Header, Step


def encode_copies(header: Header, step: Step) -> dict[str, Any]:
    """from: of each token that a step made, where in prompt and text the token stands that it is a copy of, counted in what the
    target read, or null; nothing where none is told."""
    places = emitted_sources(header, step)
    return {"from": places} if places else {}
