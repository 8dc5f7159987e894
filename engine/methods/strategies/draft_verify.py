"""Draft, verify, commit: autoregressive decoding and every speculative method."""

from __future__ import annotations

import torch

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.acceptance import Cursor
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.commit_verdict import commit_verdict
from decodescope.engine.decoding.values.draft import Draft


@component
class DraftVerify(Strategy):
    """A drafter proposes a tree, the target reads it in one pass, a rule decides, and the accepted rows are committed.

    Plain decoding is the empty draft. Nodes that continue the text by the same tokens are judged by one distribution, that of
    the first of them, however the pass rounds their rows. If guidance replaces the target's distribution, everything after the
    pass sees the guided rows. The verdict is cut at the first stop token and at the length limit before anything is committed.
    So a token that was never emitted is in no cache, no statistic and no sampler's state.
    """

    title = "Draft and verify"
    source = "Leviathan et al. 2023, arXiv:2211.17192; trees: Miao et al. 2023, arXiv:2305.09781"
    uses = frozenset(
        {
            "drafter",
            "schedule",
            "acceptance",
            "prompt_compression",
            "policy",
            "kv_compression",
            "adaptive_depth",
            "guidance",
            "sampler",
        }
    )
    verdicts = True

    def begin(self, s: State) -> None:
        s.adaptive_depth.attach_lane(s.target)
        s.adaptive_depth.begin(s.target.decoder.spec)
        s.schedule.begin(s.context)
        s.acceptance.begin(s.target.decoder)
        s.guidance.begin(s.context)
        s.drafter.begin(s.context)

    def step(self, s: State) -> Move:
        clock = s.target.executor
        root, position = s.tokens[-1], len(s.tokens)
        ctx, law = s.context, None if s.guidance.own else s.guidance
        started = clock.mark()
        draft = propose_scheduled(s, ctx)
        drafted = clock.mark()
        feed = draft.build_feed(root, position - 1, s.target.decoder.device)
        depth = None if s.adaptive_depth.exact else s.adaptive_depth
        skip = None if depth is None else depth.plan(position - s.prompt, feed)
        rows = s.target.forward(feed, skip=skip, depth=depth)[0]
        logits, slots = rows[: len(draft) + 1], None if draft.slots is None else rows[len(draft) + 1 :]
        hidden, best = {} if s.target.probe is None else s.target.probe.hidden, s.target.best
        if (firsts := draft.first_rows) is not None:
            every = [*firsts, *range(len(firsts), len(rows))]  # rows of slots stay
            logits, best = logits[firsts], [best[row] for row in firsts]
            hidden = {place: states[:, every] for place, states in hidden.items()}
        final = hidden["final"][0] if "final" in hidden else None
        if law is not None:
            raw, logits = logits, law.rows(logits, hidden, draft, ctx)
            if not s.did.has_acted(law) and not torch.equal(raw, logits):
                s.did.acted.append(law)
            best = logits.argmax(-1).tolist()
        at = Cursor(draft, logits, best, s.sampler, s.sampler_state, position, hidden=final)
        verdict = s.acceptance.verify(draft, at, s.chance)
        verified = clock.mark()

        emitted, origins, end, verdict, before = commit_verdict(s, draft, verdict, at)
        if end is not None:
            s.target.flush_deferred()
        outcome = DraftOutcome(root, draft, verdict, logits, best, hidden, slots)
        if law is not None:
            law.observe(outcome)
        s.drafter.observe(outcome)
        s.schedule.observe(outcome)
        committed = clock.mark()
        return Move(
            emitted,
            origins,
            end,
            draft,
            verdict,
            logits,
            clock.elapsed_us(started, drafted),
            clock.elapsed_us(drafted, verified),
            clock.elapsed_us(verified, committed),
            sampler_state=before,
        )


def propose_scheduled(s: State, ctx: Context) -> Draft:
    """The drafter's draft, in the room that a gating schedule leaves it; a draft that the schedule left out is counted."""
    if s.schedule.gates:
        room = s.schedule.draft_room(ctx)
        s.did.held_back += ctx.room > room == 0
        ctx.room = room
    draft = s.drafter.propose(ctx)
    s.did.held_back += s.schedule.refused_draft
    if s.schedule.gates and draft.tokens:
        draft.notes = {**(draft.notes or {}), **s.schedule.notes()}
    return draft
