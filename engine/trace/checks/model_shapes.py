"""Shapes of the models in a header: the types of their fields, and how large they may be.

Readers build lists of layers x heads from these numbers, so a header of a few bytes must not make them large.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodescope.engine.core.spec import ModelSpec

from ..encoding.record_decoder import check_known_fields
from ..records.events import Header
from ..values.limits import TraceError

MOST_LAYERS = 1024
MOST_HEADS = 1024  # of a layer
MOST_HEADS_IN_ALL = 1 << 16  # of all layers together
_LARGEST = {
    "n_layers": MOST_LAYERS,
    "n_heads": MOST_HEADS,
    "n_kv_heads": MOST_HEADS,
    **dict.fromkeys(("head_dim", "d_model", "d_ff"), 1 << 24),
    "vocab": 1 << 31,
}


def validate_models(header: Header) -> None:
    """Refuse a target or a further model whose record has a field of a wrong type, or a size beyond the limits."""
    validate_model(header.model, "model")
    for role, record in header.lanes.items():
        validate_model(record, f"lanes.{role[:40]}")


def validate_model(record: Any, where: str) -> None:
    """Refuse the record of one model; a field that it lacks is not missed. Raises TraceError."""
    if not isinstance(record, Mapping):
        raise TraceError(f"{where} must be an object")
    check_known_fields(ModelSpec, record, where)
    for name, most in _LARGEST.items():
        if name in record and not 1 <= record[name] <= most:
            raise TraceError(f"{where}.{name} is {record[name]:,}; it must be from 1 to {most:,}")
    layers = record.get("n_layers", 1)
    for name in ("n_heads", "n_kv_heads"):
        if layers * record.get(name, 1) > MOST_HEADS_IN_ALL:
            raise TraceError(
                f"{where}.{name} is {record[name]:,} in each of {layers:,} layers; "
                f"a model has at most {MOST_HEADS_IN_ALL:,} heads in all"
            )
