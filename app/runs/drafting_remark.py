"""Drafting remarks: how many tokens a draft model with another tokenizer shares with the target, and where drafts cannot pay on
this machine; a sentence before the run, with the figures.

It reads curves that were measured when the models were loaded. Nothing is measured or loaded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from decodescope.engine.core.roles import TARGET
from decodescope.engine.cost.pass_curve import PassCurve

from .composition import Composition

if TYPE_CHECKING:
    from decodescope.engine.session.load import Model
    from decodescope.engine.session.method import Method

    from .run_service import RunService

DRAFT = "draft"  # the only role whose passes are counted


def drafting_remarks(play: RunService, composed: Composition) -> list[str]:
    """Remarks on what the page's controls describe: a draft model with another tokenizer, and drafts that cannot pay."""
    if composed.method is None or composed.why:
        return []
    from decodescope.engine.session.compatibility import vocabulary_remarks

    readers = play.models.readers(play.model_keys(composed.choice))
    shared = vocabulary_remarks(composed.method, readers) if TARGET in readers else []
    threads = play.models.threads
    models = play.models.loaded_models(play.model_keys(composed.choice))
    said = drafting_remark(composed.method, models, None if threads is None else threads.number)
    return [*shared, *([said] if said else [])]


def drafting_remark(method: Method, models: Mapping[str, Model], threads: int | None) -> str:
    """Why the drafts of this method cannot pay with these models (role -> model), even if all of a draft is accepted.

    Empty if they can, and if something about them is not known: the size of a draft, or the cost of a pass.
    """
    drafter = method.drafter
    largest = drafter.largest_draft
    if "drafter" not in method.used_parts or not drafter.drafts or largest is None:
        return ""
    if not {*method.lanes} <= {DRAFT}:
        return ""
    curves = {role: measured_curve(models.get(role), threads) for role in (TARGET, *method.lanes)}
    target, draft = curves[TARGET], curves.get(DRAFT)
    if target is None or (method.lanes and draft is None):
        return ""
    level = 0.0 if draft is None else draft.time_us(1) / target.time_us(1)
    return payoff_problem(target, *largest, level)


def measured_curve(model: Model | None, threads: int | None) -> PassCurve | None:
    """The curve of a loaded model that was measured undisturbed; None if there is none of several points."""
    from decodescope.engine.decoding.shared.verify_cost import known_curve

    curve = None if model is None else known_curve(model.decoder, threads, undisturbed=True)
    return curve if curve is not None and len(curve.us) > 1 else None


def payoff_problem(curve: PassCurve, nodes: int, levels: int, level: float) -> str:
    """Why drafts of so many nodes and levels cannot pay, as a sentence; empty if they can, or if the curve ends too early.

    level: what drafting a level costs, in passes over one row of the target. A chain may also be shorter than it is set, so
    every length of it must fail.
    """
    if not curve.covers(nodes + 1):
        return ""
    chain = nodes == levels
    sizes = [(n, n) for n in range(1, levels + 1)] if chain else [(nodes, levels)]
    if any(deep + 1 > curve.ratio(rows + 1) + deep * level for rows, deep in sizes):
        return ""
    draft = f", and the draft {levels * level:.1f} more" if level else ""
    return (
        f"Drafting cannot pay on this machine: a pass of {nodes + 1} rows costs {curve.ratio(nodes + 1):.1f} passes of one "
        f"row{draft}, and writes at most {levels + 1} tokens."
    )
