"""Routers of answers: which answers they keep, how their scores are computed, and what that costs."""

from __future__ import annotations

import copy
import json
import math
from collections import Counter
from typing import Any

import pytest
import torch
import toys
from borrowed_router import BorrowedRouter
from torch.utils.flop_counter import FlopCounterMode

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.core.component import registry
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.cost.cost import cost_of, look_ops
from decodescope.engine.methods.strategies.cascades.cascade import Cascade
from decodescope.engine.trace import check
from decodescope.engine.trace.details.looks import Look
from decodescope.engine.trace.details.shapes import TallyDetail
from decodescope.lab import explain
from decodescope.lab.wire.messages import messages

PAIRS = "\n".join(
    json.dumps({"question": q, "answer": a, "right": right})
    for q, a, right in (
        ("3 1 4", "1 5 9", True),
        ("2 6", "5 3", False),
        ("5 8", "9 7 9", True),
        ("1 2 3", "4", False),
    )
)
OWN = [toys.greedy_text(toys.pair()[1].decoder, [at], 1)[0] for at in (3, 8)]  # likelier than most answers
LIKELY = zip((3, 8), OWN, ("true", "false"), strict=True)
PAIRS += "".join(f'\n{{"question": "{q}", "answer": "{a}", "right": {r}}}' for q, a, r in LIKELY)
ROUTERS: dict[str, dict[str, Any]] = {
    "answer_confidence": {},
    "trained_confidence": {},
    "agreement": dict(samples=3, second_prompt_suffix=""),
    "references": dict(pairs=PAIRS, tie_margin=0.1),
}
BETS = {"expected_cost": dict[str, Any]()}
BITS = {"entropy": dict[str, Any]()}


def cascade(
    router: str, prompt: list[int] = toys.PROMPT, count: int = 6, pair: Any = None, **knobs: Any
) -> Session:
    sampler = "temperature" if router == "agreement" else "greedy"
    parts = (ROUTERS | BETS | BITS)[router] | knobs
    made = toys.method(strategy="cascade", router=(router, parts), sampler=sampler)
    return toys.decode(made, prompt, count, seed=5, pair=pair)


def found(session: Session) -> TallyDetail:
    return session.sink.steps[0].detail(session.method.router.answers_detail)


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


@pytest.mark.parametrize("router", ROUTERS)
def test_tau_zero_keeps_above_one_asks_on_and_the_kept_share_falls(router: str) -> None:
    prompts, shares, own = [toys.PROMPT, *toys.prompts(5, seed=9)], [], set()
    for tau in (0.0, 0.3, 0.5, 0.7, 1.1):
        kept = 0
        for prompt in prompts:
            session = cascade(router, prompt, 1 if router in ("agreement", "references") else 6, tau=tau)
            one = found(session).values
            assert check(session.sink).ok and one["kept"] == (one["score"] >= tau)
            lanes = {x.lane for record in (session.prefilled, *session.sink.steps) for x in record.passes}
            assert ("target" in lanes) != one["kept"], "asked or not at all"
            assert one["read"] == sum(
                x.tokens * x.batch for x in session.sink.steps[0].passes if x.lane == "draft"
            )
            kept += one["kept"]
            own.add(one["score"])
        shares.append(kept)
    assert shares[0] == len(prompts) and shares[-1] == 0 and shares == sorted(shares, reverse=True)
    assert len(own) > 1, "the test needs scores that differ"


def test_each_router_of_answers_explains_itself_in_its_own_words() -> None:
    forms = [
        form
        for name in ROUTERS | BETS | BITS
        for form in registry("router")[name].details.values()  # type: ignore[attr-defined] # a Router's
        if form.counted == "answers"
    ]
    assert len(forms) == len(ROUTERS | BETS | BITS)
    for words in (
        [form.number for form in forms],
        [form.scale.number for form in forms],
        [form.lines[0].text for form in forms],
    ):
        assert len({*words}) == len(words), words
    trained = registry("router")["trained_confidence"].details["answer_correctness"]  # type: ignore[attr-defined]
    assert "head" in trained.number and "head" in trained.lines[0].text


def test_confidence_is_the_geometric_mean_of_the_small_models_probabilities() -> None:
    _, small = toys.pair()
    one = found(cascade("answer_confidence", tau=0.0))
    tokens, p = [*toys.PROMPT, *one.columns["tokens"][0]], 1.0
    with torch.inference_mode():
        law = small.decoder.forward(toys.Feed.causal_chain(tokens, 0), None)[0].softmax(-1)
    for at in range(len(toys.PROMPT), len(tokens)):
        p *= float(law[at - 1, tokens[at]])
    assert one.values["score"] == pytest.approx(p ** (1 / 6), abs=1e-9)


def test_a_trained_head_reads_the_states_that_wrote_the_answer() -> None:
    _, small = toys.pair()
    one = found(cascade("trained_confidence", tau=0.0))
    answer, logp_of = one.columns["tokens"][0], one.columns["logp"][0]
    probe = Probe(Needs(hidden=frozenset({"final"})))
    with torch.inference_mode():
        small.decoder.forward(toys.Feed.causal_chain([*toys.PROMPT, *answer], 0), None, probe)
        states = probe.hidden["final"][0, len(toys.PROMPT) - 1 : -1]
        logp = torch.tensor([mean(logp_of), min(logp_of)])
        assert one.values["score"] == pytest.approx(
            float(small.decoder.heads["correctness"].confidence(states.mean(0), logp)), abs=1e-6
        )
    assert 0 < one.values["score"] < 1


def test_votes_count_over_all_samples_and_each_sample_is_a_run_of_its_own() -> None:
    _, small = toys.pair()
    differ = 0
    for prompt in toys.prompts(12, seed=2):
        one = found(cascade("agreement", prompt, count=1, samples=4, tau=0.5))
        said = [tuple(x) for x in one.columns["tokens"]]
        counts = Counter(said)
        votes = one.columns["votes"]
        assert votes == [counts[x] / 4 for x in said] and one.values["score"] == max(votes)
        fates = ["other"] * 4
        fates[votes.index(max(votes))] = "kept" if one.values["kept"] else "lost"
        assert one.columns["outcome"] == fates
        for i, tokens in enumerate(said):
            alone = toys.finish_session(
                Session(small, toys.method(sampler="temperature"), prompt, max_new_tokens=1, seed=5 + i)
            )
            assert list(tokens) == alone.end.tokens
        differ += len(counts) > 1
    assert differ > 1, "the test needs samples that differ"
    two = found(cascade("agreement", samples=2, second_prompt_suffix="any"))
    assert two.columns["form"] == [0, 0, 1, 1] and len(two.columns["votes"]) == 4


def test_references_vote_by_the_table_of_weights() -> None:
    _, small = toys.pair()
    weights = (1.0, 0.5, -2.0, 0.25, -1.5, -3.0)
    seen = set()
    for prompt in [toys.PROMPT, *toys.prompts(6, seed=4)]:
        session = cascade("references", prompt, vote_weights=weights, tau=0.5)
        one, compared = found(session), session.sink.steps[0].detail("compared_references")
        own, total = mean(one.columns["logp"][0]), 0.0
        for k, line in enumerate(PAIRS.splitlines()):
            said = compared.row(k)
            pair = json.loads(line)
            asked, answer = ([int(x) for x in pair[name].split()] for name in ("question", "answer"))
            with torch.inference_mode():
                law = small.decoder.forward(toys.Feed.causal_chain([*asked, *answer], 0), None)[
                    0
                ].log_softmax(-1)
            logp = sum(float(law[len(asked) - 1 + i, x]) for i, x in enumerate(answer)) / len(answer)
            judged = 0 if abs(own - logp) <= 0.1 else int(math.copysign(1, own - logp))
            assert said["logp"] == pytest.approx(logp, abs=1e-9) and said["judged"] == judged
            assert said["weight"] == weights[(0 if pair["right"] else 3) + 1 - judged]
            total += said["weight"]
            seen.add((pair["right"], judged))
        assert len(compared) == k + 1
        assert one.values["score"] == pytest.approx(
            0.5 + 0.5 * total / sum(map(abs, compared.columns["weight"]))
        )
    assert len(seen) > 3, "the test needs judgements that differ"


def test_the_small_model_is_asked_where_what_it_saves_is_worth_its_price() -> None:
    """P(wrong) comes from the head, on the state at the prompt's last token. Prices are those of the recorded passes."""
    big, small = (
        toys.pair()[0],
        toys.model(toys.decoder(toys.toy_spec(n_layers=1), seed=4, dtype=torch.float64)),
    )
    for prompt in [toys.PROMPT, *toys.prompts(3, seed=6)]:
        probe = Probe(Needs(hidden=frozenset({"final"})))
        with torch.inference_mode():
            small.decoder.forward(toys.Feed.causal_chain(prompt, 0), None, probe)
            wrong = float(small.decoder.heads["correctness"].wrong_probability(probe.hidden["final"][0, -1]))
        session = cascade("expected_cost", prompt, pair=(big, small), tau=0.0, answer_tokens=6)
        first = found(session).values
        assert first["small"] < 0.6 * first["large"]
        worth = (1 - wrong) * first["large"] / first["small"]
        assert first["wrong"] == pytest.approx(wrong, abs=1e-6) and 0 < wrong < 1 and first["kept"]
        assert first["score"] == pytest.approx(worth) and check(session.sink).ok
        for model, price in ((big, first["large"]), (small, first["small"])):
            alone = toys.finish_session(Session(model, None, prompt, max_new_tokens=6))
            assert (
                alone.end is not None and alone.end.reason == "max_new_tokens" and len(alone.sink.steps) == 6
            )
            passes = [x for record in (alone.prefilled, *alone.sink.steps) for x in record.passes]
            assert sum(cost_of(model.spec, x).flops for x in passes) == price
        for tau, due in ((0.999 * worth, True), (1.001 * worth, False)):
            session = cascade("expected_cost", prompt, pair=(big, small), tau=tau, answer_tokens=6)
            one = found(session)
            assert one.values["kept"] == due == bool(one.values["asked"]) and check(session.sink).ok
            assert one.columns["outcome"] == ["kept" if due else "unasked"]
            if not due:
                assert (
                    session.tokens == toys.finish_session(Session(big, None, prompt, max_new_tokens=6)).tokens
                )
    one.values["wrong"] = 0.0
    assert any("breaks score" in x for x in check(session.sink).problems), "a bet that would have asked"
    one.values["score"] = one.values["large"] / one.values["small"]
    assert any("is 'unasked'" in x for x in check(session.sink).problems), "a score that would have asked"


def counted(router: str) -> int:
    """FLOPs of the products of a router's net, as torch counts them; 0 if it has none."""
    head = toys.pair()[1].decoder.heads["correctness"]
    state = torch.zeros(1, head.shape["d"], dtype=torch.float64)
    nets = {
        "expected_cost": (head.wrong_probability, state),
        "trained_confidence": (head.confidence, state, torch.zeros(1, 2)),
    }
    with FlopCounterMode(display=False) as count:
        if router in nets:
            net, *given = nets[router]
            net(*given)
    return count.get_total_flops()


@pytest.mark.parametrize("router", [*ROUTERS, *BETS, *BITS])
def test_what_a_router_runs_is_recorded_and_priced_as_it_runs(router: str) -> None:
    """Nets are checked against torch's own count of products, distributions against the rows of the record."""
    session = cascade(router, count=4, tau=0.0)
    one, spec, step = found(session), toys.pair()[1].spec, session.sink.steps[0]
    ops = [op for look in step.looks or () for op in look_ops(spec, look)]
    assert sum(x.flops for x in ops if x.name == "router_net") == counted(router)
    own = len(one.columns["tokens"][0]) if one.values["asked"] else 0
    said = (
        [len(json.loads(x)["answer"].split()) for x in PAIRS.splitlines()] if router == "references" else []
    )
    laws = own * (router not in ("agreement", "expected_cost")) + sum(said)
    each = (7 if router == "entropy" else 5) * spec.vocab
    assert sum(x.flops for x in ops if x.name in ("router_law", "router_entropy")) == each * laws
    assert check(session.sink).ok
    due = bool(step.looks)  # a vote on answers computes no distributions
    step.looks = [*(step.looks or ()), Look("law", "draft", 1)]
    assert any("its router looked at" in x for x in check(session.sink).problems)
    step.looks = [Look("net", "draft", 1)]
    assert any("widths" in x for x in check(session.sink).problems)
    step.looks = []
    assert any("its router looked at nothing" in x for x in check(session.sink).problems) is due


def test_a_prompt_that_the_large_model_reads_late_costs_what_it_costs_plain_decoding() -> None:
    """The cost differs by one row of logits: plain decoding reads the prompt's last token in a pass of its own."""
    late, plain = cascade("answer_confidence", tau=1.1), toys.decode(count=6)
    paid = [
        sum(
            cost_of(toys.SPEC, x).flops
            for part in (run.prefilled, *run.sink.steps)
            for x in part.passes
            if x.lane == "target"
        )
        for run in (late, plain)
    ]
    assert late.tokens == plain.tokens and paid[0] + 2 * toys.SPEC.d_model * toys.SPEC.vocab == paid[1]


def test_check_finds_scores_votes_and_weights_that_do_not_follow() -> None:
    for router, name in (("answer_confidence", "score"), ("agreement", "votes"), ("references", "compared")):
        session = cascade(router, count=2, tau=0.0)
        one = found(session)
        assert check(session.sink).ok
        if name == "score":
            one.values["score"] += 0.01
        elif name == "votes":
            one.columns["votes"][-1] = 0.4
        else:
            judged = session.sink.steps[0].detail("compared_references").columns["judged"]
            judged[0] = 1 if judged[0] != 1 else -1
        word = {"score": "breaks score", "votes": "have a vote of", "compared": "was judged"}[name]
        assert any(word in x for x in check(session.sink).problems), router


def test_check_finds_votes_and_references_that_were_told_otherwise() -> None:
    session = cascade("references", count=2, tau=0.0)
    places = {x.name: i for i, x in enumerate(session.sink.steps[0].details)}
    count = len(PAIRS.splitlines())
    for name, of, entry, word in (
        ("compared_references", "weight", [1.0] * count, "its references give"),
        ("compared_references", "weight", [None] * count, "lacks weight"),
        ("compared_references", "outcome", ["against"] * count, "breaks weight <= 0"),
        ("compared_references", "logp", [9.0] * count, "was judged"),
        ("compared_references", "right", [], "where 6 are due"),
        ("answer_rank", "logp", [[None, None]], "lacks the numbers from which"),
        ("answer_rank", "logp", ["none"], "a list in each row"),
    ):
        wrong = copy.deepcopy(session.sink)
        wrong.steps[0].details[places[name]].columns[of] = entry
        assert any(word in x for x in check(wrong).problems), (of, entry, check(wrong).problems)
    wrong = copy.deepcopy(session.sink)
    del wrong.steps[0].details[places["compared_references"]]
    assert any("0 lists of references" in x for x in check(wrong).problems)
    wrong = copy.deepcopy(session.sink)
    wrong.header.method["router"]["vote_weights"] = "1,1,1,1,1,a"
    assert any("lacks the numbers from which" in x for x in check(wrong).problems)
    wrong = copy.deepcopy(session.sink)
    wrong.header.method["router"]["vote_weights"] = "9.0,9.0,-9.0,9.0,-9.0,-9.0"
    assert any("was judged" in x for x in check(wrong).problems)
    votes = cascade("agreement", count=2, tau=0.0)
    for entry, word in (
        ([2.0] * 3, "is no part of all"),
        ([None] * 3, "is no part of all"),
        ([0.0, 0.0, 1.0], "answers have a vote of"),
        ([1 / 3, 1 / 3, 1.0], "answers have a vote of"),
        ([1.0, 1.0, 1.0], "breaks score == votes"),
    ):
        wrong = copy.deepcopy(votes.sink)
        wrong.steps[0].details[0].columns["votes"] = entry
        assert any(word in x for x in check(wrong).problems), (entry, check(wrong).problems)


def test_pairs_that_cannot_be_read_and_heads_that_are_not_there_are_refused() -> None:
    with pytest.raises(MethodError, match=r"line 1: 'no json' is not of the form"):
        cascade("references", pairs="no json")


def test_a_router_outside_the_package_is_checked_explained_and_drawn_in_its_own_words() -> None:
    for tau, kept in ((0.0, True), (1.1, False)):
        session = toys.decode(Method(strategy=Cascade(), router=BorrowedRouter(tau=tau)), count=4)
        trace = session.sink
        one = trace.steps[0].detail("lucky_answer")
        assert check(trace).ok and check(trace).counts["answers"] == 1 and one.values["kept"] == kept
        assert one.values["score"] == pytest.approx(math.exp(sum(one.columns["logp"][0])))
        said = str(explain(trace, 0))
        assert "An answer is kept where its luck reaches tau." in said and "(luck, against tau)" in said
        head, first, *_ = messages(trace)
        assert head["views"]["lucky_answer"]["scale"]["number"] == "luck"
        assert first["scale"]["ruling"].startswith("luck ") and first["tally"]["heads"] == ["luck", "tau"]
        one.values["score"] += 0.25
        assert any("breaks score == exp(sum(logp))" in x for x in check(trace).problems)
