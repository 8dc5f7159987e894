"""Model build: the structure of a run's models, matrix by matrix, and what is missing compared with the original ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import DTYPE_BITS
from decodescope.engine.cost.passes import spec_of
from decodescope.engine.trace.records.events import Header
from decodescope.engine.trace.values.limits import TraceError

from .weight_reports import encode_weight_reports


def encode_models(header: Header) -> dict[str, dict[str, Any]]:
    """Role -> the message fields on a model, "target" first; models without a shape in the header are left out.

    name, made: as the header has them, `made` the transforms; changed: whether anything of it differs from the original
    usual: bits of a number of the model's type;  params, bytes: of all of it;  dense: bytes of the model that it was made from
    kinds: layers that differ, {"parts": [[rows, columns, bits], ...] of qkv, out, gate_up and down, "groups": query heads by KV
    head};  layers: which of them each layer is;  whole: [rows, columns] and groups of a layer of the uncut model
    ends: [[name, rows, columns, bits], ...] of the embedding and of a separate head;  rest: bytes of norms and biases
    findings, there: what the transforms found, and which heads are left (`weight_reports.py`)
    """
    bits = DTYPE_BITS.get(header.dtype)
    specs = [("target", header.model), *header.lanes.items()]
    models = {}
    for role, record in specs if bits is not None else ():
        try:
            spec = spec_of(record)
        except TraceError:  # a header without a model's shape
            continue
        models[role] = _encode_model(spec, bits or 0) | encode_weight_reports(
            spec, (header.reports or {}).get(role, [])
        )
    return models


def _encode_model(spec: ModelSpec, usual: float) -> dict[str, Any]:
    whole = replace(spec, groups=(), widths=(), bits=())
    itemsize = int(usual // 8)
    layers = [_encode_layer(spec, i, usual) for i in range(spec.n_layers)]
    of_kind: dict[str, int] = {}
    numbers = [of_kind.setdefault(repr(layer), len(of_kind)) for layer in layers]
    kinds = [layers[numbers.index(k)] for k in range(len(of_kind))]
    table, head = (spec.vocab, spec.d_model), spec.head_bits(usual)
    ends: list[list[Any]] = [["embedding and head", *table, usual]]
    if not spec.tied or head != usual:
        ends = [["embedding", *table, usual], ["head", *table, head]]
    parts = [part for layer in layers for part in layer["parts"]] + [end[1:] for end in ends]
    total = spec.weight_bytes(itemsize)
    return {
        "name": spec.name,
        "made": spec.weights,
        "changed": bool(spec.weights or spec.bits or spec.groups or spec.widths),
        "usual": usual,
        "params": spec.params,
        "bytes": total,
        "dense": whole.weight_bytes(itemsize),
        "kinds": kinds,
        "layers": numbers,
        "whole": {"parts": [list(x) for x in whole.matrices_at(0)], "groups": list(whole.groups_at(0))},
        "ends": ends,
        "rest": total - round(sum(rows * columns * bits / 8 for rows, columns, bits in parts)),
    }


def _encode_layer(spec: ModelSpec, layer: int, usual: float) -> dict[str, Any]:
    shapes = spec.matrices_at(layer)
    parts = [[rows, columns, spec.bits_at(layer, k, usual)] for k, (rows, columns) in enumerate(shapes)]
    return {"parts": parts, "groups": list(spec.groups_at(layer))}
