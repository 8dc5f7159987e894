"""Copies: the message field on where the tokens of a text were copied from."""

from __future__ import annotations

from typing import Any

from decodescope.engine.trace.detail_checks.copies import emitted_sources
from decodescope.engine.trace.records.events import Header, Step


def encode_copies(header: Header, step: Step) -> dict[str, Any]:
    """from: for each token of a step, the position in prompt and text that it was copied from, or null.
    Positions are counted in what the target read. Nothing is sent if no position is recorded."""
    places = emitted_sources(header, step)
    return {"from": places} if places else {}
