"""Weight reports: findings of weight transforms, at the places of the original model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from decodescope.engine.core.note import Finding
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.trace.records.weight_reports import Made

MOST = 4096  # values of a finding that are sent; a larger finding is not sent


def encode_weight_reports(spec: ModelSpec, reports: Sequence[Made]) -> dict[str, Any]:
    """findings: [{"by", "word", "unit", "what", "over", "values"}, ...] in the order of the transforms.
    Over "head" there is a row per layer with a value for each query head of the uncut model, None if an earlier transform
    removed the head. there: by layer and query head of the uncut model, whether it is in the new model; None if the reports
    do not say so or contradict the shape. kept: transforms that were read from an earlier load instead of being done again."""
    if not reports:
        return {"findings": [], "there": None, "kept": []}
    findings, truths = [], False
    left = [_head_groups([spec.group] * spec.n_kv_heads) for _ in range(spec.n_layers)]
    for one in reports:
        fates = None
        for finding in one.findings.values():
            values: Any = finding.values
            if finding.over == "head":
                values = _place_values(values, left, spec.n_heads)
            if values is None:
                continue
            if finding.over == "head" and _are_booleans(values):
                fates, truths = values, True
            elif _count_values(values) <= MOST:
                findings.append({"by": one.weights, **_encode_finding(finding), "values": values})
        if fates is not None:
            left = [_groups_after_cut(groups, row) for groups, row in zip(left, fates, strict=True)]
    remaining = [{x for group in groups for x in group} for groups in left]
    there = [[h in heads for h in range(spec.n_heads)] for heads in remaining] if truths else []
    fits = all([len(x) for x in groups] == list(spec.groups_at(i)) for i, groups in enumerate(left))
    kept = [one.weights for one in reports if one.kept]
    return {
        "findings": findings,
        "there": there if truths and fits and _count_values(there) <= MOST else None,
        "kept": kept,
    }


def _encode_finding(finding: Finding) -> dict[str, Any]:
    return {"word": finding.word, "unit": finding.unit, "what": finding.what, "over": finding.over}


def _head_groups(sizes: Sequence[int]) -> list[list[int]]:
    """Query heads, numbered from 0, by KV head."""
    return [list(range(end - size, end)) for end, size in zip(accumulate(sizes), sizes, strict=True)]


def _groups_after_cut(groups: list[list[int]], fates: Sequence[Any]) -> list[list[int]]:
    """The remaining KV heads in the order of a cut model: the largest groups first, of equals the first (slicing.py)."""
    some = [[h for h in group if fates[h]] for group in groups]
    return sorted((x for x in some if x), key=lambda x: -len(x))


def _place_values(rows: list[list[Any]], left: list[list[list[int]]], heads: int) -> list[list[Any]] | None:
    """Values by head of a transform's input model, at the places of the uncut model; None if they do not fit."""
    order = [[h for group in groups for h in group] for groups in left]
    if [len(row) for row in rows] != [len(x) for x in order]:
        return None
    placed = [dict(zip(own, row, strict=True)) for own, row in zip(order, rows, strict=True)]
    return [[row.get(h) for h in range(heads)] for row in placed]


def _are_booleans(rows: list[list[Any]]) -> bool:
    some = [x for row in rows for x in row if x is not None]
    return bool(some) and all(isinstance(x, bool) for x in some)


def _count_values(values: Any) -> int:
    return sum(map(_count_values, values)) if isinstance(values, list) else 1
