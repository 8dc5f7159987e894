"""The transforms that a model's weights went through, and the findings of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from decodescope.engine.core.note import Finding

from ..values.limits import TraceError

MOST = 16  # transforms of a model, findings of a transform


@dataclass
class Made:
    """What one transform of a model's weights found in the model that it received from the transform before it.

    weights: its name and knobs, as `load` takes them
    kept:    whether its result was read from the user's folder, where an earlier load had stored it
    findings: name -> finding; empty if there is nothing to record
    """

    weights: str
    kept: bool = False
    findings: dict[str, Finding] = field(default_factory=dict)


def validate_reports(reports: Mapping[str, list[Made]], models: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse what is too much, and findings that have not the shape of their model; models: role -> as the header has them."""
    for role, rows in reports.items():
        model = models.get(role)
        if model is None:
            raise TraceError(f"reports.{role[:20]} is of no model of this run")
        if len(rows) > MOST:
            raise TraceError(f"reports.{role} has {len(rows)} transforms, and at most {MOST} are recorded")
        layers, heads = (x if type(x := model.get(name)) is int else None for name in ("n_layers", "n_heads"))
        for i, one in enumerate(rows):
            where = f"reports.{role}.{i}"
            if len(one.findings) > MOST:
                raise TraceError(f"{where} has {len(one.findings)} findings, and at most {MOST} are recorded")
            for name, finding in one.findings.items():
                if why := finding.shape_problem(layers, heads):
                    raise TraceError(f"{where}.findings.{name[:20]} {why}")
