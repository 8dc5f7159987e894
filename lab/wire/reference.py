"""Reference: the divergence of each token's distribution from the reference run's, and the token that it would have chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from decodescope.engine.core.roles import WHOLE
from decodescope.engine.trace.records.events import Header, Piece, Step


def reference_name(header: Header) -> str | None:
    """The name of the reference that ran too; None: there was none."""
    if not header.reference:
        return None
    return (
        str(header.lanes[WHOLE].get("name", "the whole model"))
        if header.reference_kind == "model"
        else "a full cache"
    )


def encode_reference(step: Step, text: Callable[[int], Piece]) -> dict[str, Any]:
    """`encode_reference`: for each token of a step [KL in nats, the reference's choice, None if it is the same].
    Empty if no reference ran, or if its rows are not those before the tokens."""
    reference = next((x.reference for x in step.cache if x.lane == "target"), None)
    if reference is None or len(reference.drift) != len(step.emitted):
        return {}
    rows = zip(reference.drift.tolist(), reference.ids, step.emitted, strict=True)
    return {"beside": [[round(kl, 6), None if other == token else text(other)] for kl, other, token in rows]}
