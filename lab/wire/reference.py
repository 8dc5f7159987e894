"""Beside: how far the law behind each token is from that of what read along, and what that would have said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from decodescope.engine.core.roles import WHOLE
from decodescope.engine.trace.records.events import Header, Piece, Step


def along(header: Header) -> str | None:
    """Who read along, in words; None: nobody."""
    if not header.shadow:
        return None
    return (
        str(header.lanes[WHOLE].get("name", "the whole model")) if header.along == "model" else "a full cache"
    )


def beside(step: Step, text: Callable[[int], Piece]) -> dict[str, Any]:
    """`beside`: of each token of a step [KL in nats, what it would have been, None where it is the same]; nothing where nobody
    read along, or the rows are not those before the tokens."""
    shadow = next((x.shadow for x in step.cache if x.lane == "target"), None)
    if shadow is None or len(shadow.drift) != len(step.emitted):
        return {}
    rows = zip(shadow.drift.tolist(), shadow.ids, step.emitted, strict=True)
    return {"beside": [[round(kl, 6), None if other == token else text(other)] for kl, other, token in rows]}
