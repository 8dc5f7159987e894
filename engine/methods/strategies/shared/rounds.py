"""Rounds: a draft model writes ahead while the target judges earlier tokens; shared code of `pearl`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.decoding.bases.acceptance import Cursor, residual_distribution
from decodescope.engine.decoding.bases.state import State
from decodescope.engine.decoding.shared.pass_time import LinearPassTime
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import ROOT, Draft, Proposal, Trial, Verdict
from decodescope.engine.methods.drafters.shared.model_tree import ModelTree
from decodescope.engine.trace.records.events import Pass


@dataclass
class DraftBlock:
    """Drafted tokens that the target has not judged yet.

    - laws, u: of each token, the distribution and the uniform that it was drawn with; None: chosen without chance
    - state: the sampler's after them, by the draft model's logits
    - rows: the logits [V] that each is from, if they are recorded
    """

    tokens: list[int] = field(default_factory=list)
    laws: list[Tensor | None] = field(default_factory=list)
    u: list[float | None] = field(default_factory=list)
    state: Any = None
    rows: list[Tensor] = field(default_factory=list)

    def without_first(self) -> DraftBlock:
        """The block without its first token."""
        return DraftBlock(self.tokens[1:], self.laws[1:], self.u[1:], self.state, self.rows[1:])


@dataclass
class Clocks:
    """Two clocks that start every round together, and the state between rounds.

    - ahead: the block that the next round judges;  run: tokens accepted since the last rejection
    - costs: lane -> the time of its passes; a missing lane takes the measured time of each pass
    - sim_us, real_us: both models' time so far, simulated and real
    """

    costs: dict[str, LinearPassTime] = field(default_factory=dict)
    ahead: DraftBlock = field(default_factory=DraftBlock)
    run: int = 0
    sim_us: float = 0.0
    real_us: float = 0.0

    def record_round(
        self, verdict: Verdict, block: DraftBlock, took: Mapping[str, Sequence[Pass]], real_us: float
    ) -> dict[str, Any]:
        """Count a round that judged the block ahead and wrote `block`, from its passes; return the figures for the trace."""
        target_us, draft_us = (self._time(lane, took.get(lane, ())) for lane in ("target", "draft"))
        refused, mode = verdict.token is not None, "post" if self.ahead.tokens else "pre"
        drafted, accepted = len(self.ahead.tokens) + len(block.tokens), len(verdict.path)
        self.run += accepted
        self.sim_us += max(target_us, draft_us)
        self.real_us += real_us
        said = {
            "mode": mode,
            "written": len(block.tokens),
            "wasted": drafted - accepted - 1 if refused else 0,
            "run": self.run,
            "draft_us": round(draft_us, 1),
            "target_us": round(target_us, 1),
            "round_us": round(max(target_us, draft_us), 1),
            "real_us": round(real_us, 1),
            "clock_us": round(self.sim_us, 1),
            "wall_us": round(self.real_us, 1),
        }
        self.run = 0 if refused else self.run
        self.ahead = DraftBlock() if refused else block.without_first()
        return said

    def _time(self, lane: str, passes: Sequence[Pass]) -> float:
        line = self.costs.get(lane)
        return sum(
            x.wall_us if line is None else line.us(x.tokens, round(x.entries) + x.tokens) for x in passes
        )


class ParallelWork:
    """Run `work` in a separate thread while the body of the `with` runs in this one.

    It waits for both, and raises what either raised.
    """

    def __init__(self, work: Callable[[], None]):
        self._work = work
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run)

    @torch.inference_mode()
    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *raised: object) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error


def write_block(s: State, ahead: DraftBlock, count: int) -> DraftBlock:
    """`count` tokens of the draft model after the text and the block `ahead`."""
    block = DraftBlock(state=ahead.state if ahead.tokens else s.sampler_state)
    if count < 1:
        return block
    tree = ModelTree(replace(s.context, tokens=[*s.tokens, *ahead.tokens], state=block.state))
    node, logits = ROOT, tree.read_root()[0]
    while True:
        (node,) = tree.grow(node, logits, 1)
        if s.sampler.stateful:
            block.state = s.sampler.update(block.state, tree.tokens[node], logits)
        if len(tree.tokens) == count:
            break
        logits = tree.read([node], keep=True)[0]
    block.tokens = tree.tokens
    # nothing is removed from a chain
    block.laws = [law for law, _ in tree.laws] or [None for _ in tree.tokens]
    block.u = tree.u or [None for _ in tree.tokens]
    block.rows = list(tree.logits.values())
    return block


def join_blocks(ahead: DraftBlock, block: DraftBlock, source: str) -> Draft:
    """The draft of a round: the block ahead and the first new token, which may have been written under different samplers."""
    tokens = [*ahead.tokens, *block.tokens[:1]]
    laws = [*ahead.laws, *block.laws[:1]]
    u = [*ahead.u, *block.u[:1]]
    drawn = [law for law in laws if law is not None]
    logits = dict(zip(range(ROOT, len(tokens) - 1), [*ahead.rows, *block.rows[:1]], strict=False))
    if not drawn:
        return Draft.chain(tokens, source=source, logits=logits)
    places = iter(range(len(drawn)))
    rows = [-1 if law is None else next(places) for law in laws]
    kind: Proposal = "iid" if len(drawn) == len(tokens) else "mixed"
    draft = Draft.chain(tokens, kind=kind, q=torch.stack(drawn), q_row=rows, u=u, source=source)
    draft.logits = logits
    return draft


def judge_draft(draft: Draft, at: Cursor, chance: Chance) -> Verdict:
    """Leviathan's test, without a token of the target's own if a leaf is accepted, so `at` needs no row of a leaf.

    Siblings are tested one after the other against the rest of the distribution. Exact matching under a greedy distribution.
    """
    verdict = Verdict([], None, "bonus")
    while children := draft.children(at.node):
        r = None if at.greedy else at.probs
        verdict.places.append((at.node, r))
        for node in children:
            trial, r = _test_node(draft, node, at, r, chance)
            verdict.trials.append(trial)
            if trial.ok:
                break
        else:
            if r is None:
                verdict.token, verdict.origin = at.choice, "correction"
            else:
                drawn = chance.draw(r, at.position)
                verdict.token, verdict.u, verdict.low, verdict.high = drawn
                verdict.origin = "residual"
            return verdict
        verdict.path.append(node)
        at = at.descend(node)
    return verdict


def _test_node(
    draft: Draft, node: int, at: Cursor, r: Tensor | None, chance: Chance
) -> tuple[Trial, Tensor | None]:
    """Test a node against the rest of the target's distribution, r [V] (None: greedy); return the trial and the new rest."""
    x = draft.tokens[node]
    if r is None:
        ok = x == at.choice
        return Trial(node, float(ok), float(ok), 1.0, None, 1.0, ok), None
    q = draft.law(node)
    r_x, q_x = float(r[x]), 1.0 if q is None else float(q[x])
    ok, u = chance.accept(r_x, q_x, at.position)
    trial = Trial(node, float(at.probs[x]), r_x, q_x, u, r_x / q_x if q_x > 0 else 0.0, ok)
    return trial, r if ok else residual_distribution(r, q, x)
