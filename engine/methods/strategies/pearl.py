"""PEARL: the draft model writes the next block while the target verifies the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.cost.hardware import DEVICES
from decodescope.engine.decoding.bases.acceptance import Cursor
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.commit_verdict import commit_verdict
from decodescope.engine.decoding.shared.pass_time import LinearPassTime
from decodescope.engine.model.forward.feed import Feed

from .shared.rounds import Clocks, DraftBlock, ParallelWork, join_blocks, judge_draft, write_block

if TYPE_CHECKING:
    from decodescope.engine.core.spec import ModelSpec


@component
class Pearl(Strategy):
    """Speculative sampling in rounds in which both models work at once.

    In a round the draft model writes a block of gamma tokens (`max_draft_tokens` of draft_model) after everything drafted so
    far. Meanwhile the target reads the root and the drafted tokens that it has not judged. Then both synchronise. The
    token-wise lossless test judges the tokens read, and the first token of the new block, for which the target now has a
    distribution:

    - pre-verify, if nothing was left to judge: the target judges only the first new token, while the others are written;
    - post-verify: it judges the gamma - 1 tokens left of the block before and the first new one, while more are written.

    If all are accepted, the round ends without a token of the target's own, because the draft has continued already. The next
    round judges the rest of the block (post-verify). At a rejection the target's token comes from the rest of its distribution.
    Everything drafted behind it is wasted, and the next round is a pre-verify. The text has the target's distribution.

    The two clocks are SIMULATED. Both models start a round together. The draft model's clock advances by its passes, the
    target's by its one pass, and the round takes the longer of both. The cost of synchronisation is left out. The time of a
    pass was measured on this very pass, or comes from counts of work on a `machine`. Here the models work one after the other,
    so the real time is the sum. With `overlap`, on a CPU, they really work at once, in two threads. torch releases the
    interpreter only inside its kernels, and both threads share the cores, so a pass may take longer than alone. The real gain
    is in `real_us`, not `round_us`. On a GPU the kernels of both are in one queue, and nothing overlaps.

    Notes, `pearl`: `mode`; tokens `written` and `wasted` in the round; `run`, tokens accepted since the last rejection; the
    models' `draft_us` and `target_us`, of which `round_us` is the longer, and the sum of rounds, `clock_us`, by the clocks
    that are `simulated`; `real_us` and their sum `wall_us`; `overlap`. With the drafter `none` it is plain decoding.

    The paper's gamma is t_target / t_draft, at which neither waits. Here it is the `max_draft_tokens` of draft_model. At that
    length and with fixed costs, a greedy text never takes longer than by draft_verify. With a draft model that costs next to
    nothing it may take longer, because every run of accepted tokens begins with a round that judges one.
    """

    title = "PEARL (two clocks)"
    source = "Liu et al. 2025, arXiv:2408.11850; smart-lty/ParallelSpeculativeDecoding, src/engine.py"
    uses = frozenset({"drafter", "prompt_compression", "policy", "kv_compression", "sampler"})
    tells: ClassVar[dict[str, Note]] = {
        "mode": Note(
            "set", "verify", what="pre: the target judges the first new token alone; post: what was left, too"
        ),
        "written": Note("series", "written", "tokens", "by the draft model in the round"),
        "wasted": Note("series", "wasted", "tokens", "written behind a rejection"),
        "run": Note("series", "run", "tokens", "accepted since the last rejection"),
        "draft_us": Note("clock", "draft model", "µs", "in the round, by its clock"),
        "target_us": Note("clock", "target", "µs", "in the round, by its clock"),
        "round_us": Note("clock", "round", "µs", "the longer of both"),
        "real_us": Note("clock", "really", "µs", "that the round took here"),
        "clock_us": Note("series", "clock", "µs", "of all rounds so far, by the clocks", line="wall_us"),
        "wall_us": Note("series", "really so far", "µs", "of all rounds"),
        "simulated": Note("set", "times of", what="the machine whose times run the clocks"),
        "overlap": Note("series", "at once", what="whether both models really worked at once"),
    }

    machine: str = param(
        "here",
        choices=("here", *DEVICES),
        help="machine whose pass times drive the simulated clocks; here: the measured times",
    )
    overlap: bool = param(False, help="run both models at the same time in two threads (CPU only)")

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        drafter = method.drafter
        if not drafter.drafts or (drafter.speaks and not drafter.branches):
            return None
        return (
            f"pearl lets a draft model write a chain while the target checks, which {drafter.name}, as set, does not; choose "
            "the drafter draft_model with width = 1, or the strategy draft_verify."
        )

    def begin(self, s: State) -> None:
        s.drafter.begin(s.context)
        lanes = () if self.machine == "here" else _all_lanes(s)
        s.scratch = Clocks(
            {
                lane.name: LinearPassTime.from_profile(lane.decoder.spec, DEVICES[self.machine])
                for lane in lanes
            }
        )

    def step(self, s: State) -> Move:
        clock, state = s.target.executor, s.scratch
        position, device = len(s.tokens), s.target.decoder.device
        feed = Feed.causal_chain([s.tokens[-1], *state.ahead.tokens], position - 1, device)
        passed = {lane.name: len(lane.passes) for lane in _all_lanes(s)}
        started = clock.mark()
        block, logits, waited_us = self._run_both(s, state.ahead, feed)
        met = clock.mark()
        draft = join_blocks(state.ahead, block, s.lanes["draft"].decoder.spec.name if s.lanes else "")
        at = Cursor(draft, logits, s.target.best, s.sampler, s.sampler_state, position)
        verdict = (
            judge_draft(draft, at, s.chance) if draft.tokens else s.acceptance.verify(draft, at, s.chance)
        )
        verified = clock.mark()
        emitted, origins, end, stands, before = commit_verdict(s, draft, verdict, at)
        if draft.tokens:
            took = {lane.name: lane.passes[passed[lane.name] :] for lane in _all_lanes(s)}
            said = state.record_round(verdict, block, took, clock.elapsed_us(started, met))
            draft.notes = {
                "pearl": {**said, "simulated": self.machine, "overlap": self._runs_in_threads(device)}
            }
        verify_us = clock.elapsed_us(started, verified) - waited_us
        commit_us = clock.elapsed_us(verified, clock.mark())
        return Move(
            emitted,
            origins,
            end,
            draft,
            stands,
            logits,
            waited_us,
            verify_us,
            commit_us,
            sampler_state=before,
        )

    def _run_both(self, s: State, ahead: DraftBlock, feed: Feed) -> tuple[DraftBlock, Tensor, float]:
        """The next block, the target's logits [T, V] of `feed`, and the microseconds in which the target was idle."""
        count = min(getattr(s.drafter, "max_draft_tokens", 0), s.remaining_tokens - len(ahead.tokens))
        clock, blocks = s.target.executor, list[DraftBlock]()
        began = clock.mark()
        if self._runs_in_threads(s.target.decoder.device):
            with ParallelWork(lambda: blocks.append(write_block(s, ahead, count))):
                logits = s.target.forward(feed)[0]
                began = clock.mark()
            return blocks[0], logits, clock.elapsed_us(began, clock.mark())
        block = write_block(s, ahead, count)
        drafted = clock.mark()
        return block, s.target.forward(feed)[0], clock.elapsed_us(began, drafted)

    def _runs_in_threads(self, device: torch.device) -> bool:
        return self.overlap and device.type == "cpu"


def _all_lanes(s: State) -> tuple[Lane, ...]:
    return (s.target, *s.lanes.values())
