"""What a record adds to a run's Activity, and the samplers that changed the distributions of a step."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from decodescope.engine.core.activity import Activity
from decodescope.engine.core.roles import TARGET
from decodescope.engine.trace.records.events import CacheChange, Prefill, Step

from ..bases.sampler import Sampler
from ..bases.state import Move, State


def count_record(did: Activity, record: Prefill | Step, room: int = 0, packed: int = 0) -> None:
    """Count the activity in a record. room: tokens that the step could have guessed; packed: entries that the target's cache
    now holds in fewer bits, which records of the level "summary" leave out."""
    did.packed = max(did.packed, packed)
    for one in record.passes:
        if one.lane == TARGET and one.phase not in ("draft", "score"):
            did.passes += isinstance(record, Step)
            did.short += any(x is not None for x in (one.attn, one.ffn, one.rows, one.routed))
            did.picked += one.read is not None
    for change in record.cache:
        if change.lane == TARGET:
            _count_cache_change(did, change)
    if isinstance(record, Step):
        did.steps += 1
        did.lanes |= {one.lane for one in record.passes}
        did.drafts[room, record.drafted] += 1
    elif record.cut is not None:
        did.left_out = did.prompt - len(record.cut.kept)


def _count_cache_change(did: Activity, change: CacheChange) -> None:
    did.held = change.held
    did.evicted += change.evicted_count
    did.added += len(change.augmented or ())


def note_acting_samplers(did: Activity, s: State, move: Move) -> None:
    """Note the samplers that changed the distribution of a token just emitted. Each is looked at until it did so once. A single
    one that constrains nothing is not looked at: it is why tokens are drawn, or it takes the likeliest, which costs no look."""
    stages = s.sampler.in_order
    if len(stages) < 2 and not any(stage.constrains for stage in stages):
        return
    if did.blind or not move.emitted or all(map(did.has_acted, stages)):
        return
    path = [] if move.verdict is None else move.verdict.path
    rows = [0, *(node + 1 for node in path)] if move.verdict is not None else [*range(len(move.emitted))]
    state = s.sampler_state if move.sampler_state is None and not s.sampler.stateful else move.sampler_state
    missing = s.sampler.stateful and state is None
    if (
        missing
        or move.logits is None
        or len(move.logits) < len(move.emitted)
        or len(rows) < len(move.emitted)
    ):
        did.blind = True
        return
    for row, token in zip(rows, move.emitted, strict=False):
        logits = move.logits[row]
        _note_acting_stages(
            did, stages, logits, [state] if stages[0] is s.sampler else cast(list[Any], state)
        )
        if all(map(did.has_acted, stages)):
            return
        state = s.sampler.update(state, token, logits) if s.sampler.stateful else state


def _note_acting_stages(did: Activity, stages: list[Sampler], logits: Tensor, states: list[Any]) -> None:
    """Note the stages that change logits [V]. states: of each stage."""
    for stage, own in zip(stages, states, strict=True):
        after = stage.warp(logits, own)
        if not did.has_acted(stage) and stage.has_effect(logits, after):
            did.acted.append(stage)
        logits = after
