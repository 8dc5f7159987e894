"""What-if: parse the page's question, and format the answer with nodes as on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.runs.catalogue.parts import knob_record
from decodescope.app.runs.forks import admit_files
from decodescope.app.runs.record_stream import RecordStream
from decodescope.app.runs.run_service import RunService
from decodescope.engine.trace.records.events import Step
from decodescope.engine.trace.records.prompt import effective_prompt
from decodescope.lab.formatting.style import STATUS_OF_ORIGIN
from decodescope.lab.wire.wire import Wire

if TYPE_CHECKING:
    from decodescope.engine.decoding.values.draft import Trial
    from decodescope.engine.session.replay.whatif import DerivedVerdict

PAST = 512  # number of earlier steps that may already have drawn at its positions


def whatif(play: RunService, channel: RecordStream, body: dict[str, Any]) -> dict[str, Any]:
    """A verdict derived again with something changed, or the reason why that needs a run."""
    from decodescope.engine.session.replay.whatif import NeedsRunError, WhatIfChange, derive

    number, node = body.get("step"), body.get("node")
    if type(number) is not int or not 0 <= number < channel.count or channel.wire is None:
        raise RequestRefusal(
            f"step = {str(number)[:20]}: the run has {channel.count} steps, counted from 0; choose one of them."
        )
    if type(node) is not int or node < 1:
        raise RequestRefusal(f"node = {str(node)[:20]}: choose a drafted node, or the target's own token.")
    settings = body.get("rule_settings") or {}
    rule, ties = (body.get(x) or None for x in ("rule", "ties"))
    if not isinstance(settings, dict) or not all(isinstance(x, str | None) for x in (rule, ties)):
        raise RequestRefusal("rule and ties are names, and rule_settings an object of numbers.")
    u, heat = (_float_field(body, x) for x in ("u", "temperature"))
    *before, step = channel.steps(max(0, number - PAST), number + 1)
    if step.step != number:
        raise RequestRefusal("The steps before this one are not in the record any more.")
    count = (0 if step.draft is None else len(step.draft.tokens)) + (step.extra is not None)
    if node > count:
        raise RequestRefusal(f"node = {node}: step {number} has {count} nodes besides the root.")
    admit_files(play, channel.wire.header)
    try:
        read = len(effective_prompt(channel.wire.header, channel.wire.prefill))
        derived = derive(
            channel.wire.header, before, step, node - 1, WhatIfChange(u, rule, settings, heat, ties), read
        )
    except NeedsRunError as needs:
        return {"kind": "rerun", "why": str(needs)}
    return _whatif_answer(channel.wire, step, node, derived)


def _whatif_answer(wire: Wire, step: Step, node: int, derived: DerivedVerdict) -> dict[str, Any]:
    """The answer of a what-if, with nodes as on the wire."""
    own = 0 if step.draft is None else len(step.draft.tokens)
    trials = {x.node: x for x in derived.trials}
    recorded = wire.nodes(step)[node]
    assert recorded is not None
    row: dict[str, Any] = dict(
        zip(("parent", "text", "token", "q", "p", "u", "status", "r", "threshold"), recorded, strict=False)
    )
    was = row.get("status", "unreached")
    if node <= own:
        trial = trials.get(node - 1)
        if node - 1 in derived.path:
            status = "accept"
        elif trial is None or trial.ok:
            status = "unreached"
        else:
            status = "reject"
        numbers = (
            {"p": None, "u": None, "r": None, "threshold": None} if trial is None else _trial_numbers(trial)
        )
        row |= numbers
        unknown = trial is None and bool(derived.missing)
        flips = not unknown and status != was
    else:
        status = STATUS_OF_ORIGIN.get(derived.origin, "target") if derived.token is not None else "unreached"
        row |= {
            "token": derived.token,
            "text": None if derived.token is None else wire.text(derived.token),
            "u": derived.u,
        }
        row |= {"parent": derived.path[-1] + 1 if derived.path else 0, "p": None}
        flips = derived.token is not None and (step.extra is None or derived.token != step.extra.token)
    emitted = [
        [token, wire.text(token), STATUS_OF_ORIGIN.get(origin, "target")]
        for token, origin in zip(derived.emitted, derived.origins, strict=True)
    ]
    return {
        "kind": "derived",
        "node": {"index": node, "q": None, **row, "status": status},
        "path": [0, *(x + 1 for x in derived.path)],
        "emitted": emitted,
        "drawn": derived.u is not None,
        "lines": derived.lines,
        "flips": flips,
        "missing": derived.missing or None,
    }


def _trial_numbers(trial: Trial) -> dict[str, Any]:
    return {"p": trial.p, "u": trial.u, "r": trial.r, "threshold": trial.threshold, "q": trial.q}


def _float_field(body: dict[str, Any], name: str) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e300 < value < 1e300:
        raise RequestRefusal(f"{name} = {str(value)[:20]} is no number.")
    return float(value)


def rules() -> list[dict[str, Any]]:
    """The acceptance rules that can derive a verdict again, with their knobs."""
    from decodescope.engine.core.component import registry
    from decodescope.engine.decoding.bases.acceptance import AcceptanceRule

    return [
        {
            "name": name,
            "title": part.title,
            "params": [{**knob_record(x), "step": x.step} for x in part.params()],
        }
        for name, part in registry("acceptance").items()
        if cast(type[AcceptanceRule], part).from_laws
    ]
