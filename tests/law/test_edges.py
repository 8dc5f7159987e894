"""Rules at the edges of their formulas, and what follows the end of a text."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from law.cases import worlds
from law.proposals import Chosen
from law.verdicts import judge, rows

from decodescope.engine.decoding.bases.acceptance import Cursor, residual_distribution
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.methods.acceptance.block import Block
from decodescope.engine.methods.acceptance.lossless import Lossless
from decodescope.engine.methods.drafters.draft_model.draft_model import DraftModel
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.session.method import Method
from decodescope.engine.session.replay.recall import Recall
from decodescope.engine.session.session import Session
from decodescope.engine.trace import Trace, check
from decodescope.testing.chances import outcomes
from decodescope.testing.tables import PROMPT, logit_table, table_model
from decodescope.testing.walk import Walk

RULES = [Lossless(), Block()]


class Scripted(Chance):
    """Every uniform is `u`."""

    def __init__(self, u: float):
        super().__init__(0)
        self.u = u

    def uniform(self, position, purpose):
        return self.u


@pytest.mark.parametrize("rule", RULES)
def test_bonus_is_drawn_from_the_targets_law_after_the_whole_draft(rule):
    p = rows([0.5, 0.5, 0.0], [0.2, 0.2, 0.6])
    found = outcomes(lambda chance: judge(rule, p, p[:1], [0], chance))
    assert all(verdict.path == [0] and verdict.origin == "bonus" for _, verdict in found)
    assert [weight for weight, _ in found] == pytest.approx([0.2, 0.2, 0.6])


@pytest.mark.parametrize("rule", RULES)
def test_residual_is_what_the_target_gives_beyond_the_draft(rule):
    p, q = rows([0.5, 0.3, 0.2], [1.0, 0.0, 0.0]), rows([0.2, 0.2, 0.6])
    found = outcomes(lambda chance: judge(rule, p, q, [2], chance))
    law = {(tuple(v.path), v.token): weight for weight, v in found}
    assert law == pytest.approx({((0,), 0): 1 / 3, ((), 0): 2 / 3 * 0.75, ((), 1): 2 / 3 * 0.25})


@pytest.mark.parametrize("rule", RULES)
def test_residual_of_nothing_falls_back_to_the_targets_law(rule):
    """p and q differ by one rounding: a refusal is possible and leaves 0 / 0."""
    p = rows([0.5, 0.3, 0.2], [0.1, 0.1, 0.8])
    p[0] = Cursor(Draft(), p.log(), [0, 0], Temperature(temperature=1.0), None, 0).probs
    q = p[:1].clone()
    q[0, 1] = math.nextafter(math.nextafter(float(q[0, 1]), 1), 1)
    found = outcomes(lambda chance: judge(rule, p, q, [1], chance))
    refused = [(weight, verdict) for weight, verdict in found if not verdict.path]
    assert refused and sum(weight for weight, _ in refused) < 1e-15
    assert {verdict.token for _, verdict in refused} == {0, 1, 2}


def test_left_over_of_equal_laws_is_that_law():
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    assert torch.equal(residual_distribution(p, p.clone(), 1), p)
    sure = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    assert torch.equal(residual_distribution(sure, None, 1), sure)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("u", [0.0, 2.0**-53, 0.5, 1 - 2.0**-53])
def test_a_token_that_the_target_never_writes_is_refused_at_every_uniform(rule, u):
    p, q = rows([0.0, 0.6, 0.4], [0.0, 0.0, 1.0]), rows([0.9, 0.1, 0.0])
    verdict = judge(rule, p, q, [0], Scripted(u))
    assert verdict.path == [] and p[0, verdict.token] > 0


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2.0**-53])
def test_what_only_the_target_writes_can_still_come(rule, u):
    """q = 0 while p > 0: the residual reaches the token."""
    p, q = rows([0.7, 0.2, 0.1], [1.0, 0.0, 0.0]), rows([0.0, 0.5, 0.5])
    verdict = judge(rule, p, q, [2], Scripted(u))
    assert (verdict.path, verdict.token) in (([0], 0), ([], 0))


def test_equal_laws_refuse_nothing():
    for rule in RULES:
        p = rows([0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4])
        p = p.log().softmax(-1)
        found = outcomes(lambda chance, rule=rule, p=p: judge(rule, p, p[:2], [2, 0], chance))
        assert all(verdict.path == [0, 1] for _, verdict in found)


@pytest.mark.parametrize("drafter", [DraftModel(max_draft_tokens=3), Chosen(length=3, width=2)])
def test_nothing_follows_a_stop_id_inside_the_draft(drafter):
    """The text ends with the stop id; tokens drafted after it are neither emitted nor in any cache."""
    target = logit_table(4, seed=3)
    method = Method(drafter=drafter, sampler=Temperature(temperature=1.0))
    walk = Walk(method, {"target": table_model(target, 4), "draft": table_model(target, 4)}, 6, stop=(2,))
    inside = 0
    for _, move in walk.step_outcomes():
        assert 2 not in move.emitted[:-1]
        assert move.ended == (move.emitted[-1] == 2)
        if move.ended and move.verdict.token is None:
            inside += 1
            assert [move.draft.tokens[node] for node in move.verdict.path] == list(move.emitted)
    assert inside > 5, "the test needs stop ids in accepted drafts"


def test_cache_ends_before_the_last_token_of_the_text():
    target, stopped = logit_table(4, seed=3), 0
    method = Method(drafter=DraftModel(max_draft_tokens=3), sampler=Temperature(temperature=1.0))
    for seed in range(10):
        models = {"draft": table_model(target, 4)}
        s = Session(
            table_model(target, 4),
            method,
            PROMPT,
            models=models,
            max_new_tokens=8,
            seed=seed,
            stop_tokens=(2,),
        )
        while not s.is_done:
            s.step()
            store = s.target.cache.layers[0]
            assert s.target.tokens == s.tokens[:-1]
            assert (s.target.cache.length, store.n, store.m) == (len(s.tokens) - 1, len(s.tokens) - 1, 0)
        stopped += s.end.reason == "stop_token"
        assert 2 not in s.tokens[len(PROMPT) : -1]
    assert stopped > 5, "the test needs texts that stop"


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_text_never_grows_past_its_limit(length):
    target, draft = worlds(4, "mixed")
    method = Method(drafter=DraftModel(max_draft_tokens=5), sampler=Temperature(temperature=1.0))
    walk = Walk(method, {"target": table_model(target, 4), "draft": table_model(draft, 4)}, length)
    assert all(len(text) == length for text in walk.text_distribution())


def test_passengers_are_never_kept():
    target, draft = worlds(4, "mixed")
    method = Method(drafter=Chosen(length=1, width=1, passenger=True), sampler=Temperature(temperature=1.0))
    walk = Walk(method, {"target": table_model(target, 4), "draft": table_model(draft, 4)}, 3)
    for _, move in walk.step_outcomes():
        assert move.draft.acceptable == [True, False]
        assert 1 not in move.verdict.path and all(trial.node == 0 for trial in move.verdict.trials)


@pytest.mark.parametrize("level", ["summary", "decisions", "full"])
def test_a_record_marks_passengers_and_does_not_count_them(level):
    target, draft = worlds(4, "mixed")
    method = Method(drafter=Chosen(length=1, width=1, passenger=True), sampler=Temperature(temperature=1.0))
    s = Session(
        table_model(target, 4),
        method,
        PROMPT,
        models={"draft": table_model(draft, 4)},
        max_new_tokens=8,
        level=level,
    )
    s.sink = Trace()
    steps = list(s.stream())
    assert check(s.sink).ok and sum(step.accepted for step in steps) > 0
    assert [step.drafted for step in steps] == [1 if step.n - len(PROMPT) < 7 else 0 for step in steps]
    if level == "summary":
        return
    for step in (x for x in steps if x.draft is not None):
        assert step.draft.passengers == [1] and len(step.draft.tokens) == 2 and step.drafted == 1
        assert Recall(step, method.sampler).draft(0, True).acceptable == [True, False], (
            "what-if tries it as little"
        )
    s.sink.steps[0] = replace(steps[0], drafted=2)
    assert any("passengers not counted" in x for x in check(s.sink).problems)
    s.sink.steps[0] = replace(steps[0], path=[1])
    assert any("a passenger, which is never tried" in x for x in check(s.sink).problems)
