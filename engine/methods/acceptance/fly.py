"""FLy: a rejection where the target was unsure is forgiven if the next tokens pass. Lossy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from decodescope.engine.core.activity import Activity, count_noun
from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.acceptance import (
    AcceptanceRule,
    Cursor,
    NotRecordedError,
    origin_behind,
    residual_distribution,
)
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import Draft, Origin, Trial, Verdict, as_array
from decodescope.engine.trace.records.evidence import Also, Column, Telling


@component
class FLy(AcceptanceRule):
    """Loosely speculative decoding: verify each token by the lossless rule, and forgive a rejection under two conditions.

    1. Entropy gate: the target is unsure at that place. H = -sum p log p over its `entropy_top_k` likeliest tokens is above
       `threshold` (nats).
    2. Deferred window: each of the next `window` drafted tokens passes its own test. A draft that has gone wrong would go on
       being rejected; one that only says it otherwise is soon in step with the target again.

    Else the walk ends there, and the token comes from norm(max(p - q, 0)). A token to which the sampler gives p = 0 is never
    forgiven. So the last `window` tokens of a draft are never forgiven: a draft needs more than `window` tokens.

    There is no bound on how far the text departs from the target's distribution; forgiven tokens are counted in the trace.
    Under a greedy sampler the lossless test is exact matching and H is that of the softmax of the logits; greedy texts change
    too. Tests further down are made only when a rejection asks for them, so with a threshold that is never passed verdicts,
    uniforms and text are those of `lossless`. Costs nothing but these tests.

    H over three tokens and a threshold of 0.3 are the official code's. Its window of 6 counts the rejected token, vLLM's counts
    the tokens after it, as here. A token that would itself have to be forgiven does not pass a window. The official code also
    has trees, which are not part of this. In the trace, `rule` holds H of each trial and `run`: how many tokens after it passed
    in a row, at most `window`; -1 where nobody looked. `ahead` is how many tests behind the last trial took a uniform.
    """

    title = "FLy (loose verification)"
    source = (
        "Li et al. 2025, arXiv:2511.22972; AMD-AGI/FLy, fly/models/FLy.py, commit 6667ae84; vLLM, vllm/v1/spec_decode/fly.py, "
        "commit 04329df5"
    )
    lossless = False
    keeps_law = False
    changes = "rejections are forgiven where the target is unsure"
    matches = False
    chain_only = True
    from_laws = False
    telling = Telling(
        also=Also(
            word="window",
            value="min(H - threshold, run - window + 0.5)",
            bound="0",
            asked="The target was unsure by {H} nats and {run:g} tokens after it passed.",
            spared="So the rejection is forgiven: this rule changes the text.",
        ),
        columns=[Column("H", "trial"), Column("run", "trial"), Column("ahead", "step")],
        counted=Column("loose trials", "trial"),
        card=[
            "Where this test fails, H = {H:2} must be above {threshold:g} and the next {window:g} tokens must pass."
        ],
    )

    threshold: float = param(
        0.3,
        low=0.0,
        high=12.0,
        step=0.05,
        unit="nats",
        help="forgive a rejection only where the target's entropy is above this (theta)",
    )
    window: int = param(
        6,
        low=1,
        high=64,
        unit="tokens",
        help="how many drafted tokens after a rejection must pass to forgive it (W)",
    )
    entropy_top_k: int = param(
        3, low=1, high=1000, unit="tokens", help="how many likeliest tokens the entropy sums over"
    )

    def idle_reason(self, did: Activity) -> str:
        longest = did.length
        if isinstance(longest, int) and longest <= self.window and did.drafted_count:
            return (
                f"{self.name} forgave nothing in {count_noun(did.steps, 'step')}: drafts of at most "
                f"{count_noun(longest, 'token')} have no place with {self.window} tokens after it; draft more tokens or set a "
                "smaller window."
            )
        return super().idle_reason(did)

    def verify(self, draft: Draft, at: Cursor, chance: Chance) -> Verdict:
        return self.decide(draft, at, chance, None)

    def rederive(self, draft: Draft, at: Cursor, chance: Chance, said: Mapping[str, Any]) -> Verdict:
        """As `verify`, with the runs that the record names: the tests of tokens behind the last one are not in it."""
        run = said.get("run")
        recorded = run if isinstance(run, list) and all(type(x) in (int, float) for x in run) else []
        return self.decide(draft, at, chance, recorded)

    def decide(self, draft: Draft, at: Cursor, chance: Chance, recorded: Sequence[float] | None) -> Verdict:
        """The verdict. recorded: how many tokens passed after each trial, from a record; None: test them.

        Raises NotRecordedError where a run that is not recorded decides.
        """
        chain = _NativeTests(draft, at, chance)
        entropies: list[float] = []
        runs: list[int] = []
        path: list[int] = []
        trials: list[Trial] = []
        origin: Origin = origin_behind(draft)
        refused = False
        while len(path) < len(draft):
            i = len(path)
            test = chain.test(i)
            entropies.append(self.gate_entropy(chain.cursors[i]))
            runs.append(-1)
            forgiven = False
            if not test.ok and entropies[i] > self.threshold and chain.may_stay(i):
                runs[i] = chain.run_after(i, self.window) if recorded is None else _recorded_run(recorded, i)
                forgiven = runs[i] >= self.window
            trials.append(Trial(i, test.p, test.p, test.q, test.u, test.threshold, test.ok or forgiven))
            if not trials[-1].ok:
                refused = True
                break
            path.append(i)
        here = chain.cursor(len(path))
        places = [(c.node, None if c.greedy else c.probs) for c in chain.cursors[: len(path) + 1]]
        rule = {"H": entropies, "run": runs, "ahead": chain.draws_after(len(trials) - 1)} if trials else None
        if here.greedy:
            origin = "correction" if refused else origin
            return Verdict(path, here.choice, origin, trials, rule=rule, places=places)
        law = here.probs
        if refused:
            origin = "residual"
            law = residual_distribution(law, draft.law(len(path)), draft.tokens[len(path)])
        drawn = chance.draw(law, here.position)
        return Verdict(path, drawn.token, origin, trials, drawn.u, drawn.low, drawn.high, rule, places)

    def gate_entropy(self, at: Cursor) -> float:
        """H in nats, over the entropy_top_k likeliest tokens of a place."""
        p = at.model_probs if at.whole else at.model_probs[:-2]
        return float(torch.special.entr(p.topk(min(self.entropy_top_k, len(p))).values.clamp_min(0)).sum())


class _NativeTests:
    """The lossless tests of a chain, each made once, when it is asked for; `cursors`: the places reached so far."""

    def __init__(self, draft: Draft, at: Cursor, chance: Chance):
        self._draft = draft
        self._chance = chance
        self._tests: dict[int, Trial] = {}
        self.cursors = [at]

    def cursor(self, i: int) -> Cursor:
        """The place at which token i is decided."""
        while len(self.cursors) <= i:
            self.cursors.append(self.cursors[-1].descend(len(self.cursors) - 1))
        return self.cursors[i]

    def test(self, i: int) -> Trial:
        """The lossless test of token i; under a greedy distribution exact matching."""
        if i not in self._tests:
            at = self.cursor(i)
            x = self._draft.tokens[i]
            if at.greedy:
                p = float(x == at.choice)
                self._tests[i] = Trial(i, p, p, 1.0, None, 1.0, p > 0)
            else:
                p = float(as_array(at.probs)[x])
                q = self._draft.draw_probability(i)
                ok, u = self._chance.accept(p, q, at.position)
                self._tests[i] = Trial(i, p, p, q, u, p / q if q > 0 else 0.0, ok)
        return self._tests[i]

    def may_stay(self, i: int) -> bool:
        """True if the sampler leaves token i possible; a greedy one, which leaves a single token, is not asked."""
        return self.cursor(i).greedy or self.test(i).p > 0

    def draws_after(self, i: int) -> int:
        """How many tests of tokens after token i took a uniform."""
        return sum(at > i and test.u is not None for at, test in self._tests.items())

    def run_after(self, i: int, most: int) -> int:
        """How many tokens after token i pass in a row, at most `most`."""
        run = 0
        while run < most and i + run + 1 < len(self._draft) and self.test(i + run + 1).ok:
            run += 1
        return run


def _recorded_run(recorded: Sequence[float], i: int) -> int:
    if i >= len(recorded) or recorded[i] < 0:
        raise NotRecordedError(f"the tests behind node {i + 1} were not made")
    return int(recorded[i])
