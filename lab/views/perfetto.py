"""Perfetto: the timing lanes of a trace as trace events, for ui.perfetto.dev and other viewers of that format."""

from __future__ import annotations

from typing import Any

from decodescope.engine.trace import Step, Trace
from decodescope.engine.trace.file.named_trace import trace_of
from decodescope.engine.trace.records.events import Pass
from decodescope.engine.trace.records.phases import DECIDES

PHASES = ("draft", "verify", "commit", "policy")
# numbers of threads
_STEPS = 1
_PHASES = 2
_LANES = 3  # number of the first lane; each lane of the cache has one more


def export_perfetto(given: Any) -> dict[str, Any]:
    """Steps, their phases, and the passes of every lane, as {"traceEvents": [...]}; times in microseconds. `given` is a trace,
    the result of `run`, or a path.

    A trace records how long a pass took, not when it began: passes are placed one after another in their phase.
    """
    trace, lanes = trace_of(given), dict[str, int]()
    events: list[dict[str, Any]] = []
    if trace.prefill is not None:
        events += _slice("prefill", 0.0, trace.prefill.wall_us, _STEPS, tokens=trace.prefill.n)
        events += _pass_events(trace.prefill.passes, 0.0, lanes)
    for step in trace.steps:
        events += _step_events(trace, step, lanes)
    names = {
        _STEPS: "steps",
        _PHASES: "phases",
        **{thread: f"passes of {lane}" for lane, thread in lanes.items()},
    }
    entries = [_name_event("process_name", 0, f"decodescope, {trace.header.model.get('name', 'model')}")]
    entries += [_name_event("thread_name", thread, name) for thread, name in names.items()]
    entries += [
        {"ph": "M", "pid": 1, "tid": t, "name": "thread_sort_index", "args": {"sort_index": t}} for t in names
    ]
    about = {
        "run": trace.header.run,
        "seed": trace.header.seed,
        "device": trace.header.device,
        "dtype": trace.header.dtype,
    }
    return {
        "traceEvents": entries + events,
        "displayTimeUnit": "ms",
        "otherData": {k: str(v) for k, v in about.items()},
    }


def _step_events(trace: Trace, step: Step, lanes: dict[str, int]) -> list[dict[str, Any]]:
    said = {"text": trace.text(step.emitted), "drafted": step.drafted, "accepted": step.accepted, "n": step.n}
    events = _slice(f"step {step.step}", step.t_us, step.wall_us, _STEPS, **said)
    at = step.t_us
    for part in PHASES:
        took = getattr(step, part + "_us")
        if took > 0:
            events += _slice(part, at, took, _PHASES)
        of_part = (
            [p for p in step.passes if (p.phase in DECIDES) == (part == "verify")]
            if part in PHASES[:2]
            else []
        )
        events += _pass_events(of_part, at, lanes)
        at += took
    return events


def _pass_events(passes: list[Pass], at: float, lanes: dict[str, int]) -> list[dict[str, Any]]:
    events = []
    for p in passes:
        thread = lanes.setdefault(p.lane, _LANES + len(lanes))
        name = f"{p.phase.replace('_', ' ')}, {p.tokens} token{'' if p.tokens == 1 else 's'}"
        events += _slice(name, at, p.wall_us, thread, tokens=p.tokens, held=p.held, batch=p.batch)
        at += p.wall_us
    return events


def _slice(name: str, at: float, took: float, thread: int, **args: Any) -> list[dict[str, Any]]:
    return [
        {
            "ph": "X",
            "pid": 1,
            "tid": thread,
            "name": name,
            "ts": round(at, 3),
            "dur": round(took, 3),
            "args": args,
        }
    ]


def _name_event(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": 1, "tid": thread, "name": what, "args": {"name": name}}
