"""Judge decoding: the lossless rule, plus a judge that spares tokens which the rule would refuse. Lossy, and labelled so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
import torch
import toys
from drafting import feature_of
from law.verdicts import rows
from torch import Tensor

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.decoding.bases.acceptance import Cursor
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import Draft, Verdict
from decodescope.engine.methods.acceptance.judge import Judge
from decodescope.engine.methods.samplers.greedy import Greedy
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.model.heads.judge import JudgeHead
from decodescope.engine.session.replay.exact_distribution import EnumeratedChance
from decodescope.engine.trace import check
from decodescope.testing.chances import outcomes

CHAIN = ("draft_model", {"max_draft_tokens": 4})
WARM = ("temperature", {"temperature": 1.0})


def decided(
    p: Tensor,
    q: Tensor | None,
    tokens: list[int],
    j: Sequence[float],
    chance: Chance,
    t: float,
    greedy: bool = False,
) -> Verdict:
    """The verdict on a chain, from p [N + 1, V], q [N, V] (None: tokens chosen without chance) and the judge's answers."""
    n = len(tokens)
    drawn = {} if q is None else dict(kind="iid", q=q, q_row=list(range(n)), u=[None] * n)
    logits = p.log()
    sampler = Greedy() if greedy else Temperature(temperature=1.0)
    at = Cursor(Draft.chain(tokens, **drawn), logits, logits.argmax(-1).tolist(), sampler, None, 0)
    return Judge(threshold=t).decide(at.draft, at, chance, j)


def law_of(step: Callable[[EnumeratedChance], object]) -> dict:
    found: dict = {}
    for weight, outcome in outcomes(step):
        found[outcome] = found.get(outcome, 0.0) + weight
    return found


def test_worked_example() -> None:
    """p = (0.2, 0.3, 0.5), and token 0 has q(0) = 0.8: the usual test keeps it in 1 of 4 cases.

    A judge at 0.6 against 0.5 always keeps it. Against 0.7 it is refused in 3 of 4 cases, and the residual, p - q where
    positive, is (0, 0.2, 0.4).
    """
    p, q = rows([0.2, 0.3, 0.5], [0.0, 1.0, 0.0]), rows([0.8, 0.1, 0.1])

    def step(t: float):
        return lambda chance: ((v := decided(p, q, [0], [0.6], chance, t)).path != [], v.token)

    assert law_of(step(0.5)) == pytest.approx({(True, 1): 1.0})
    assert law_of(step(0.7)) == pytest.approx(
        {(True, 1): 0.25, (False, 1): 0.75 / 3, (False, 2): 0.75 * 2 / 3}
    )


@pytest.mark.parametrize("onehot", [False, True])
@pytest.mark.parametrize("t", [0.0, 0.3, 0.5, 1.0])
def test_law_is_its_own_formula_by_counting_every_outcome(t: float, onehot: bool) -> None:
    """One token: x comes from q.

    It is written if min(1, p / q) or the judge keeps it; otherwise norm(max(p - q, 0)) is drawn.
    """
    g = torch.Generator().manual_seed(3)
    moved = 0
    for _ in range(20):
        p, q = (torch.randn(2, 4, generator=g, dtype=torch.float64) * 2).softmax(-1)
        j = torch.rand(4, generator=g).tolist()
        if onehot:
            q = torch.eye(4, dtype=torch.float64)[int(q.argmax())]

        def step(chance: EnumeratedChance, p=p, q=q, j=j) -> int:
            x = chance.draw(q, 0, "draft").token
            verdict = decided(p.expand(2, 4), None if onehot else q[None], [x], [j[x]], chance, t)
            return x if verdict.path else verdict.token

        found, due = law_of(step), torch.zeros(4, dtype=torch.float64)
        left = p.index_fill(0, q.argmax(), 0.0) if onehot else (p - q).clamp(min=0)
        for x in range(4):
            kept = 1.0 if j[x] > t else min(1.0, float(p[x] / q[x])) if q[x] > 0 else 0.0
            due[x] += q[x] * kept
            due += q[x] * (1 - kept) * left / left.sum()
        assert all(abs(found.get(x, 0.0) - float(due[x])) <= 1e-12 for x in range(4))
        moved += float((due - p).abs().sum()) > 0.1
    assert moved == 0 if t == 1.0 else moved > 3, "lossy below 1, and the target's own law at 1"


def test_accepted_tokens_only_grow_as_the_threshold_falls() -> None:
    """Same chain, same uniforms, same judge."""
    g, grown = torch.Generator().manual_seed(1), 0
    for seed in range(60):
        p, q = (torch.randn(6, 5, generator=g, dtype=torch.float64) * 2).softmax(-1), None
        tokens, j = torch.randint(5, (5,), generator=g).tolist(), torch.rand(5, generator=g).tolist()
        for greedy in (False, True):
            kept = [
                len(decided(p, q, tokens, j, Chance(seed), t, greedy).path)
                for t in (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, 0.0)
            ]
            assert all(a <= b for a, b in pairwise(kept)) and kept[-1] == 5
            grown += kept[0] < kept[3] < 5
    assert grown > 10


@pytest.mark.parametrize("sampler", ["greedy", WARM])
@pytest.mark.parametrize(
    "drafter", [CHAIN, ("prompt_lookup", {"max_draft_tokens": 4, "ngram": 1}), "redrafter"]
)
def test_threshold_one_is_the_lossless_rule(drafter, sampler) -> None:
    """Same seed, same uniforms: the same verdicts, tests and text."""
    drafter = ("redrafter", {"width": 1, "depth": 4}) if drafter == "redrafter" else drafter
    plain = toys.decode(toys.method(drafter=drafter, sampler=sampler), count=60, seed=4)
    judged = toys.decode(
        toys.method(drafter=drafter, sampler=sampler, acceptance=("judge", {"threshold": 1.0})),
        count=60,
        seed=4,
    )
    assert judged.tokens == plain.tokens
    for a, b in zip(judged.sink.steps, plain.sink.steps, strict=True):
        assert (a.path, a.trials, a.extra) == (b.path, b.trials, b.extra)
    assert sum(len(x.trials.ok) for x in plain.sink.steps if x.trials) > 20, "the test needs guesses"


@pytest.mark.parametrize("sampler", ["greedy", WARM])
def test_judge_reads_the_state_of_the_token_that_it_judges(sampler) -> None:
    """j of a node is the head's output on the target's final feature after the text up to and including the node."""
    target, _ = toys.pair()
    head: JudgeHead = target.decoder.heads["judge"]
    method = toys.method(drafter=CHAIN, sampler=sampler, acceptance=("judge", {"threshold": 0.7}))
    session = Session(target, method, toys.PROMPT, models=toys.helper_models(), max_new_tokens=40, seed=2)
    compared = 0
    while not session.is_done:
        text = list(session.tokens)
        step = session.step()
        for i, node in enumerate(step.trials.node if step.trials else []):
            with torch.no_grad():
                due = head.right_probability(feature_of([*text, *step.draft.tokens[: node + 1]])[-1])
            assert step.rule["j"][i] == pytest.approx(float(due), abs=1e-6)
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("sampler", ["greedy", WARM])
def test_what_the_judge_spares_stays_and_the_record_says_so(sampler) -> None:
    """Also under a greedy sampler. The text is then no longer the target's: the method is lossy and labelled so."""
    method = toys.method(drafter=CHAIN, sampler=sampler, acceptance=("judge", {"threshold": 0.7}))
    session = toys.decode(method, count=80, seed=1)
    assert (
        not session.header.lossless
        and check(session.sink).ok
        and check(session.sink).counts["judged trials"] > 20
    )
    spared = refused = 0
    for step in session.sink.steps:
        for i, ok in enumerate(step.trials.ok if step.trials else []):
            t, j = step.trials, step.rule["j"][i]
            usual = t.p[i] > 0 if t.u[i] is None else t.u[i] * t.q[i] < t.p[i]
            assert ok == (usual or j > 0.7)
            spared, refused = spared + (ok and not usual), refused + (not ok)
    assert spared > 5 and refused > 2, "the test needs both"
    if sampler == "greedy":
        assert session.tokens[len(toys.PROMPT) :] != toys.greedy_text(toys.pair()[0].decoder, toys.PROMPT, 80)


def test_a_wrong_record_is_found() -> None:
    method = toys.method(drafter=CHAIN, sampler=WARM, acceptance=("judge", {"threshold": 0.7}))
    for change in ("ok", "j"):
        trace = toys.decode(method, count=40, seed=1).sink
        step = next(x for x in trace.steps if x.trials and not all(x.trials.ok))
        at = step.trials.ok.index(False)
        if change == "ok":
            step.trials.ok[at] = True
        else:
            step.rule["j"][at] = 0.99
        assert any("judge" in problem for problem in check(trace).problems)


def test_untrained_judge_spares_nothing_at_one_half() -> None:
    assert JudgeHead(8).right_probability(torch.randn(3, 8)).tolist() == [0.5] * 3


def test_greedy_methods_with_it_are_called_lossy_and_without_a_draft_lossless() -> None:
    assert not toys.method(drafter="prompt_lookup", acceptance="judge").lossless
    assert toys.method(drafter="prompt_lookup", acceptance="typical").lossless, (
        "the others match exactly under a greedy law"
    )
    assert toys.method(acceptance="judge").lossless


def test_trees_and_models_without_a_judge_are_refused() -> None:
    with pytest.raises(MethodError, match=r"^judge reads chains only and eagle2.*\.$"):
        Session(toys.pair()[0], toys.method(drafter="eagle2", acceptance="judge"), toys.PROMPT)
    with pytest.raises(
        MethodError,
        match=r"no heads/judge: train them with python -m decodescope\.training\.judge .*lossless\.$",
    ):
        Method.from_names({"acceptance": "judge"}).check(toys.toy_spec(heads=()))
