"""Draft, verify, commit: autoregressive decoding and every speculative method."""

from __future__ import annotations

from dataclasses import replace

from ..acceptance.base import Cursor
from ..component import component
from ..draft import Draft, Verdict
from ..drafters.base import Outcome
from ..state import Move, State
from .base import Strategy


@component
class DraftVerify(Strategy):
    """A drafter proposes a tree, the target reads it in one pass, a rule decides, the accepted rows are committed.

    Plain decoding is the empty draft. The verdict is cut at the first stop token and at the length limit before anything
    is committed: what was never emitted is in no cache, no statistic and no sampler's state.
    """

    title = "Draft and verify"
    source = "Leviathan et al. 2023, arXiv:2211.17192; trees: Miao et al. 2023, arXiv:2305.09781"
    uses = frozenset({"drafter", "schedule", "acceptance", "policy", "depth", "sampler"})

    def begin(self, s: State) -> None:
        s.depth.begin(s.target.decoder.spec)
        s.schedule.begin(s.context)
        s.drafter.begin(s.context)

    def step(self, s: State) -> Move:
        clock = s.target.executor
        root, position = s.tokens[-1], len(s.tokens)
        started = clock.mark()
        draft = s.drafter.propose(s.context)
        drafted = clock.mark()
        s.depth.start_pass(position - s.prompt)
        depth = None if s.depth.exact else s.depth
        logits = s.target.forward(draft.feed(root, position - 1, s.target.decoder.device), depth=depth)[0]
        at = Cursor(draft, logits, s.target.best, s.sampler, s.sampler_state, position)
        verdict = s.acceptance.verify(draft, at, s.chance)
        verified = clock.mark()

        emitted, origins = told(draft, verdict)
        count, end = s.cut(emitted)
        if count < len(emitted):
            emitted, origins = emitted[:count], origins[:count]
            verdict = replace(verdict, path=verdict.path[:count], token=None)
        # the last emitted token is the next root: whatever it is, its row is not committed
        s.target.commit([0, *(node + 1 for node in verdict.path[: count - 1])])
        before = s.sampler_state
        if s.sampler.stateful:
            for i, token in enumerate(emitted):
                s.sampler_state = at.after(token)
                if i < len(verdict.path):
                    at = at.descend(verdict.path[i])
        s.tokens += emitted
        s.chance.forget(len(s.tokens))
        hidden = {} if s.target.probe is None else s.target.probe.hidden
        outcome = Outcome(root, draft, verdict, logits, s.target.best, hidden)
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


def told(draft: Draft, verdict: Verdict) -> tuple[list[int], list[str]]:
    """The tokens that a verdict emits, and the origin of each."""
    emitted = [draft.tokens[node] for node in verdict.path]
    origins = ["accepted"] * len(emitted)
    if verdict.token is not None:
        emitted.append(verdict.token)
        origins.append(verdict.origin)
    return emitted, origins
