"""CoT-Influx: the policies learn which worked example helps, and the model reads what they select within the budget."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import needles
import pytest
import torch
import toys
from sizes import by_turns
from toylab import Words

from decodescope.engine import MethodError, Session
from decodescope.engine.model.heads.cot_influx import ShotPolicies
from decodescope.engine.session.load import Model
from decodescope.engine.trace import check
from decodescope.engine.trace.file.trace import Trace
from decodescope.engine.trace.records.prompt_cut import OUT, SCORE, STAYS
from decodescope.training import cot_influx
from decodescope.training.cot_influx import Episode

SHOTS = 5
BREAK = needles.END


def episode(r: Random) -> tuple[Episode, int]:
    """A prompt of examples, and the number of the one that helps."""
    prompt, spans, answer, which = needles.shown(r, SHOTS)
    return Episode(prompt, spans, spans[-1][1], answer), which


@pytest.fixture(scope="module")
def learnt() -> Model:
    """The decoder of needles with policies trained on it."""
    torch.manual_seed(0)
    decoder, r = needles.decoder(), Random(1)
    head = ShotPolicies(needles.WIDTH, 16)
    cot_influx.train(
        head, decoder, (episode(r)[0] for _ in range(330)), lr=0.02, batch=3, budget=0.2, price=6.0
    )
    decoder.heads, decoder.spec = {"cot_influx": head}, replace(decoder.spec, heads=("cot_influx",))
    return toys.model(decoder)


def texts() -> Words:
    """A tokenizer in which BREAK is a blank line, and each other token a word."""
    words = Words([f" w{i}" for i in range(needles.SPEC.vocab)])
    words.texts[BREAK] = "\n\n"
    words.marks, words.front = frozenset(), [needles.END]  # type: ignore[attr-defined] # attributes of a tokenizer
    return words


def run(model: Model, one: Episode, **knobs: Any) -> Trace:
    """The trace of one token after the compressed prompt."""
    model = replace(model, tokenizer=texts())  # type: ignore[arg-type] # a substitute tokenizer
    trace = toys.finish_session(
        Session(model, toys.method(prompt_compression=("cot_influx", knobs)), one.prompt, max_new_tokens=1)
    ).sink
    assert check(trace).ok, str(check(trace))  # type: ignore[arg-type] # a trace in memory
    return trace  # type: ignore[return-value] # the call stored a Trace there


def test_it_finds_the_example_that_helps_where_the_nearest_does_not(learnt: Model) -> None:
    """With room for one example, the answer follows if that is the example of the requested key."""
    r, right, near, answers = Random(5), 0, 0, 0
    for _ in range(50):
        one, which = episode(r)
        trace = run(learnt, one, keep_rate=0.2)
        read = set(trace.prefill.cut.kept.tolist())
        right += 4 * which + 1 in read and len(read) <= 4 + 3
        near += int(cot_influx.rank_by_similarity(learnt.decoder, one)[0]) == which
        answers += trace.steps[0].emitted == one.answer
    assert right > 45 and answers > 45 and near < 35, (right, answers, near)


@pytest.mark.parametrize("rate", by_turns(2, [0.0, 0.1, 0.5, 1.0]))
def test_what_is_read_is_what_the_policies_take_within_the_budget(learnt: Model, rate: float) -> None:
    r, trimmed = Random(7), 0
    head = learnt.decoder.heads["cot_influx"]
    for _ in range(12):
        one, _ = episode(r)
        e = cot_influx.embed_text(learnt.decoder, one.prompt)
        shots, tokens = head.chances(e, e[one.first :], one.spans)
        room, due = int(rate * 20 + 1e-9), []
        for i in sorted(range(SHOTS), key=lambda i: -float(shots[i])):
            if shots[i] >= 0.5 and len(due) < room:
                due += [(float(x), one.spans[i][0] + k) for k, x in enumerate(tokens[i]) if x >= 0.5]
        cut = run(learnt, one, keep_rate=rate).prefill.cut
        best = sorted(due, key=lambda x: (-x[0], x[1]))[:room]
        assert [*sorted(i for _, i in best), 20, 21, 22] == cut.kept.tolist()
        trimmed += len(due) > room
        assert {int(x) for x in cut.reason[20:]} == {STAYS} and (cut.reason == SCORE).sum() == len(
            best
        ) <= room
        assert all(len({int(x == OUT) for x in cut.reason[a:b]}) == 1 for a, b in one.spans), (
            "an example goes as a whole"
        )
    assert rate != 0.1 or trimmed > 2, "the test needs budgets that bind"


def test_nothing_is_run_before_the_target_reads(learnt: Model) -> None:
    prefill = run(learnt, episode(Random(1))[0]).prefill
    assert {x.phase for x in prefill.passes} == {"prefill"} and prefill.cut.held_bytes == 0


def test_a_prompt_without_examples_is_read_whole(learnt: Model) -> None:
    one = episode(Random(2))[0]
    assert run(learnt, replace(one, prompt=[x for x in one.prompt if x != BREAK])).prefill.cut is None
    with pytest.raises(MethodError, match=r"python -m decodescope.training.cot_influx"):
        Session(
            toys.model(toys.decoder(toys.toy_spec(heads=()))),
            toys.method(prompt_compression="cot_influx"),
            toys.PROMPT,
        )


def test_the_price_begins_beyond_the_budget_and_the_gradient_reaches_both_policies() -> None:
    torch.manual_seed(1)
    decoder, head, one = needles.decoder(), ShotPolicies(needles.WIDTH, 4), episode(Random(3))[0]

    def reward(budget: float, price: float) -> float:
        loss, mean = cot_influx.step_loss(head, decoder, one, budget, price, torch.Generator().manual_seed(0))
        loss.backward()
        return mean

    assert reward(1.0, 9.0) == reward(0.0, 0.0) > reward(0.2, 1.0) > reward(0.2, 2.0)
    assert all(
        x.grad is not None and torch.isfinite(x.grad).all() and x.grad.any() for x in head.parameters()
    )
    best = cot_influx.nats(decoder, one.prompt, one.answer)
    assert 2 * best < cot_influx.nats(decoder, one.prompt[one.first :], one.answer), (
        "the test needs an example that helps"
    )
