"""Acceptance rules: verdicts walk the tree, greedy is exact matching, and each rule's own inequality holds."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

import pytest
import torch
import toys
from entries import entry

from decodescope.engine import MethodError
from decodescope.engine.core.component import build, registry
from decodescope.engine.decoding.bases.acceptance import Cursor
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import ROOT, Draft, Verdict
from decodescope.engine.model.forward.decoder import Decoder

V = 6
PROMPT = [0, 3]
RULES = sorted(registry("acceptance"))
# settings under which a rule both accepts and refuses; the toy's judge finds most tokens right
BOTH = {
    "block": {},
    "static_ensemble": {"target_weight": 0.5},
    "fly": {"threshold": 0.5, "window": 1},
    "judge": {"threshold": 0.9},
    "lantern": {},
    "leniency": {},
    "lossless": {},
    "relaxed": {"top_k": 4, "delta": 0.4},
    "spectr": {},
    "synthetic": {"acceptance_rates": [0.7, 0.4]},
    "typical": {},
}


def drawn_chain(g: torch.Generator, length: int) -> Draft:
    q = torch.rand(length, V, generator=g, dtype=torch.float64).pow(2)
    q /= q.sum(-1, keepdim=True)
    tokens = torch.multinomial(q, 1, generator=g)[:, 0].tolist()
    return Draft.chain(tokens, kind="iid", q=q, q_row=list(range(length)), u=[0.5] * length)


def tree(g: torch.Generator) -> Draft:
    """Two or three different children at the root and under the first of each level."""
    tokens, parents, at = [], [], ROOT
    for width in (3, 2, 2):
        level = torch.randperm(V, generator=g)[:width].tolist()
        first = len(tokens)
        tokens, parents, at = tokens + level, parents + [at] * width, first
    return Draft(tokens, parents)


@cache
def begun() -> Decoder:
    """A target with this vocabulary."""
    return toys.decoder(toys.toy_spec(vocab=V), dtype=torch.float64)


def decide(
    rule: str, draft: Draft, sampler: str = "temperature", seed: int = 0, **knobs
) -> tuple[Verdict, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(draft) + 1, V, generator=g, dtype=torch.float64) * 2
    part = build("sampler", sampler)
    hidden = torch.randn(len(draft) + 1, toys.SPEC.d_model, generator=g, dtype=torch.float64)
    at = Cursor(
        draft, logits, logits.argmax(-1).tolist(), part, part.start(PROMPT, V), position=9, hidden=hidden
    )
    made = build("acceptance", rule, knobs)
    made.begin(begun())
    return made.verify(draft, at, Chance(seed)), logits


def drafts(rule: str, seed: int) -> list[Draft]:
    g = torch.Generator().manual_seed(seed)
    chain_only = registry("acceptance")[rule].chain_only
    return [drawn_chain(g, 1), drawn_chain(g, 4), Draft()] + (
        [] if chain_only else [tree(g), Draft.chain([1, 2, 3])]
    )


@pytest.mark.parametrize("rule", RULES)
def test_verdict_is_a_path_of_the_tree_and_trials_stand_in_order(rule: str) -> None:
    accepted = refused = 0
    knobs = entry(BOTH, rule, "BOTH of tests/methods/test_acceptance.py")
    for seed in range(60):
        for draft in drafts(rule, seed):
            verdict, logits = decide(rule, draft, seed=seed, **knobs)
            above = ROOT
            for node in verdict.path:
                assert draft.parents[node] == above
                above = node
            tried = [trial.node for trial in verdict.trials]
            assert len(set(tried)) == len(tried) and tried == sorted(tried), (
                "siblings in draw order, levels downwards"
            )
            assert set(verdict.path) <= set(tried)
            assert verdict.places[0][0] == ROOT and {p for p, _ in verdict.places} >= {ROOT, *verdict.path}
            law = logits[above + 1].softmax(-1)
            assert verdict.token is not None and float(law[verdict.token]) > 0
            assert verdict.origin == ("target" if not len(draft) else verdict.origin)
            likeliest = verdict.u is None  # a rule that draws no token takes the likeliest
            assert (
                verdict.token == int(law.argmax()) if likeliest else verdict.low <= verdict.u < verdict.high
            )
            accepted, refused = accepted + len(verdict.path), refused + len(tried) - len(verdict.path)
    assert accepted > 50 and refused > 50


@pytest.mark.parametrize("rule", [name for name, cls in registry("acceptance").items() if cls.matches])
def test_under_a_greedy_law_every_rule_that_says_so_is_exact_matching(rule: str) -> None:
    matched = 0
    for seed in range(40):
        for draft in drafts(rule, seed):
            verdict, logits = decide(rule, draft, "greedy", seed)
            best, place, path = logits.argmax(-1).tolist(), ROOT, []
            while (
                child := next((c for c in draft.children(place) if draft.tokens[c] == best[place + 1]), None)
            ) is not None:
                path.append(place := child)
            assert verdict.path == path and verdict.token == best[place + 1] and verdict.u is None
            matched += len(path)
    assert matched > 10


def test_block_accepts_up_to_its_last_success() -> None:
    repaired = 0
    for seed in range(200):
        draft = drawn_chain(torch.Generator().manual_seed(seed), 4)
        verdict, logits = decide("block", draft, seed=seed)
        ok = [trial.ok for trial in verdict.trials]
        assert len(ok) == 4 and ok == [x.u * x.den < x.num for x in verdict.trials]
        assert len(verdict.path) == max((i + 1 for i, x in enumerate(ok) if x), default=0)
        repaired += any(ok) and not all(ok[: len(verdict.path)])
        w = 1.0
        for i, token in enumerate(draft.tokens):
            w = min(1.0, w * float(logits[i].softmax(-1)[token] / draft.q[i, token]))
            assert verdict.rule["w"][i + 1] == pytest.approx(w)
        assert verdict.trials[3].num == pytest.approx(w)
    assert repaired > 5, "the test needs successes below failures"


def test_typical_accepts_what_exceeds_its_bound_and_takes_the_longest_path() -> None:
    for seed in range(80):
        draft = tree(torch.Generator().manual_seed(seed))
        verdict, logits = decide("typical", draft, seed=seed)
        passed, depth = {ROOT}, {ROOT: 0}
        for node, parent in enumerate(draft.parents):
            p = logits[parent + 1].softmax(-1)
            entropy = -float((p * p.log()).sum())
            if parent in passed and float(p[draft.tokens[node]]) > min(0.09, 0.3 * math.exp(-entropy)):
                passed.add(node)
                depth[node] = depth[parent] + 1
        assert set(verdict.path) <= passed and len(verdict.path) == max(depth.values())
        assert {trial.node for trial in verdict.trials if trial.ok} == passed - {ROOT}


@pytest.mark.parametrize("sampler", ["temperature", "repetition_penalty"])
def test_typical_takes_the_likeliest_token_after_the_path_or_draws_it(sampler: str) -> None:
    """The likeliest token after sampling: a penalty may make another token the likeliest than the target's own best."""
    likeliest, other, moved = Counter[str](), 0, 0
    for seed in range(80):
        for draft in (tree(torch.Generator().manual_seed(seed)), Draft()):
            (taken, logits), (drawn, _) = (
                decide("typical", draft, sampler, seed, next_token=x) for x in ("likeliest", "drawn")
            )
            assert taken.path == drawn.path and taken.trials == drawn.trials, "the rule for the path is one"
            part = build("sampler", sampler)
            state, row = part.start(PROMPT, V), logits[0]
            for node in taken.path:
                state, row = part.update(state, draft.tokens[node], row), logits[node + 1]
            best = int(part.warp(row, state).argmax())
            moved += best != int(row.argmax())
            assert taken.token == best and taken.u is None and drawn.low <= drawn.u < drawn.high
            stuck = bool(draft.children(taken.path[-1] if taken.path else ROOT))
            assert (taken.origin == "correction", drawn.origin == "residual") == (stuck, stuck)
            likeliest[taken.origin] += 1
            other += drawn.token != best
    assert other > 20 and min(likeliest[x] for x in ("correction", "bonus", "target")) > 5, (likeliest, other)
    assert (moved > 0) == (sampler == "repetition_penalty"), "the test needs penalties that matter"


def test_typical_accepts_more_the_lower_its_bounds() -> None:
    totals = []
    for scale in (0.0, 0.3, 1.0):
        made = [
            decide("typical", tree(torch.Generator().manual_seed(s)), seed=s, epsilon=scale, delta=scale)[0]
            for s in range(60)
        ]
        totals.append([len(verdict.path) for verdict in made])
    assert all(a >= b >= c for a, b, c in zip(*totals, strict=True))
    assert sum(totals[0]) == 180 and sum(totals[1]) > sum(totals[2])


def test_rules_refuse_drafts_for_which_they_are_not_exact() -> None:
    """Block accepts only drawn chains: a tree is always refused, a copied draft only if the sampler draws."""
    for parts, word in (
        (dict(drafter=("token_recycling", {"nodes": "8"})), "chains only"),
        (dict(drafter="prompt_lookup", sampler="temperature"), "exact for"),
        (dict(drafter=("draft_model", {"width": 2}), sampler="temperature"), "chains only"),
    ):
        with pytest.raises(MethodError, match=rf"block .*{word}.*\.$"):
            toys.decode(toys.method(acceptance="block", **parts))
    assert toys.decode(toys.method(acceptance="block", drafter="prompt_lookup"), count=5).is_done
    sampled = toys.decode(
        toys.method(acceptance="block", drafter="draft_model", sampler="temperature"), count=30
    )
    assert sampled.header.lossless and any(step.rule for step in sampled.sink.steps)
