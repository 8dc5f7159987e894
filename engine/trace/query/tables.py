"""Tables: the records of a trace as pandas tables, for questions that no picture answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from decodescope.engine.core.extras import require
from decodescope.engine.core.tree import depths

from ..checks.notes import declared_notes, iter_note_values
from ..checks.step_probabilities import StepProbabilities
from ..file.named_trace import trace_of
from ..file.trace import Trace

if TYPE_CHECKING:
    from pandas import DataFrame

Table = Literal["steps", "decisions", "cache", "passes", "notes"]


def frame(given: Any, table: Table = "steps") -> DataFrame:
    """One table of a trace, of what `run` returned, or of a file: a row per step, per decision (trial), per lane and step of
    its cache, per pass, or per value that a part told; of those `at` is the node (-1: the root) or the row of a grid.

    The columns' names include units. Step -1 is the reading of the prompt; a field that was not recorded is missing.

    In "decisions", `p` and `r` come from the sampling distribution, after the sampler: under a greedy sampler they are 1 or 0.
    There `p_model` comes from the model distribution, before the sampler; under another sampler it was not recorded.
    `entropy_nats` is that of the model distribution under a greedy sampler, else that of the sampling distribution.
    """
    require("notebooks", "frame", ("pandas",))
    import pandas

    trace = trace_of(given)
    if table not in _ROWS:
        raise ValueError(f"There is no table {table!r}; choose one of {', '.join(_ROWS)}.")
    columns, rows = _ROWS[table]
    return pandas.DataFrame(list(rows(trace)), columns=list(columns))


def _step_rows(trace: Trace) -> Iterator[tuple[Any, ...]]:
    for s in trace.steps:
        target = next((c for c in s.cache if c.lane == "target"), None)
        held = (
            (target.held, target.held_bytes, target.evicted_count)
            if target is not None
            else (None, None, None)
        )
        clock = (s.t_us, s.wall_us, s.draft_us, s.verify_us, s.commit_us, s.policy_us)
        tried = len(s.trials.ok) if s.trials is not None else None
        yield (
            s.step,
            s.n,
            len(s.emitted),
            trace.text(s.emitted),
            s.drafted,
            tried,
            s.accepted,
            *clock,
            len(s.passes),
            *held,
        )


def _decision_rows(trace: Trace) -> Iterator[tuple[Any, ...]]:
    for s in trace.steps:
        if s.trials is None or s.draft is None:
            continue
        depth = depths(s.draft.parents)
        t = s.trials
        kept = set(s.path or [])
        shares = StepProbabilities(trace.header, s)
        for node, p, r, q, u, threshold, ok in zip(
            t.node, t.p, t.r, t.q, t.u, t.threshold, t.ok, strict=True
        ):
            token, parent = s.draft.tokens[node], s.draft.parents[node]
            place = (s.step, node, parent, depth[node], token, trace.piece(token))
            law = (p, shares.model(parent, token), shares.entropy(parent))
            yield *place, *law, r, q, u, threshold, ok, node in kept


def _cache_rows(trace: Trace) -> Iterator[tuple[Any, ...]]:
    begun = [] if trace.prefill is None else [(-1, trace.prefill.cache)]
    for step, changes in (*begun, *((s.step, s.cache) for s in trace.steps)):
        for c in changes:
            sizes = (c.appended, c.held, c.evicted_count, c.held_bytes, c.peak_bytes, c.full_bytes)
            costs = (None, None) if c.reference is None else (c.reference.lost_mass, c.reference.drift)
            yield (
                step,
                c.lane,
                *sizes,
                *(float(x.mean()) if x is not None and x.size else None for x in costs),
            )


def _pass_rows(trace: Trace) -> Iterator[tuple[Any, ...]]:
    begun = [] if trace.prefill is None else [(-1, trace.prefill.passes)]
    for step, passes in (*begun, *((s.step, s.passes) for s in trace.steps)):
        for p in passes:
            yield step, p.lane, p.phase, p.tokens, p.batch, p.max_entries, p.wall_us, *p.layers


def _note_rows(trace: Trace) -> Iterator[tuple[Any, ...]]:
    for s in trace.steps:
        nodes = 0 if s.draft is None else len(s.draft.tokens)
        for part, values in declared_notes(trace.header, s).items():
            for name, value in values.items():
                note = trace.header.tells[part][name]
                for at, one in iter_note_values(note, value, nodes):
                    yield s.step, part, name, note.word, at, one, note.unit


_STEPS = (
    "step", "n", "tokens", "text", "drafted", "tried", "accepted",
    "t_us", "wall_us", "draft_us", "verify_us", "commit_us", "policy_us", "passes", "held", "held_bytes", "evicted",
)  # fmt: skip
_DECISIONS = (
    "step", "node", "parent", "depth", "token", "text",
    "p", "p_model", "entropy_nats", "r", "q", "u", "threshold", "ok", "kept",
)  # fmt: skip
_CACHE = (
    "step",
    "lane",
    "appended",
    "held",
    "evicted",
    "held_bytes",
    "peak_bytes",
    "full_bytes",
    "lost_mass",
    "drift_nats",
)
_PASSES = ("step", "lane", "phase", "tokens", "batch", "held", "wall_us", "attn", "ffn", "propagated")
_NOTES = ("step", "part", "name", "word", "at", "value", "unit")
_ROWS: dict[str, tuple[tuple[str, ...], Callable[[Trace], Iterator[tuple[Any, ...]]]]] = {
    "steps": (_STEPS, _step_rows),
    "decisions": (_DECISIONS, _decision_rows),
    "cache": (_CACHE, _cache_rows),
    "passes": (_PASSES, _pass_rows),
    "notes": (_NOTES, _note_rows),
}
