"""CoLoR: a scorer learnt from pairs reads less and loses nothing; the compressed prompt is its choice within the budget."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import needles
import pytest
import torch
import toys
from toylab import Words

from decodescope.engine import MethodError, Session
from decodescope.engine.model.heads.color import SentenceScorer
from decodescope.engine.session.load import Model
from decodescope.engine.trace import check
from decodescope.engine.trace.file.trace import Trace
from decodescope.engine.trace.records.prompt_cut import LEFT, SCORE, STAYS
from decodescope.training import color
from decodescope.training.cot_influx import Episode, embed_text, nats

COUNT = 5


def episode(r: Random) -> tuple[Episode, int]:
    """A passage with a question after it, and the number of the sentence that contains the answer."""
    prompt, spans, answer, which = needles.shown(r, COUNT)
    return Episode(prompt, spans, spans[-1][1], answer), which


@pytest.fixture(scope="module")
def learnt() -> Model:
    """The decoder of needles with a scorer trained on it."""
    torch.manual_seed(0)
    decoder, r = needles.decoder(), Random(1)
    head = SentenceScorer(needles.WIDTH, 16)
    color.train(head, decoder, (episode(r)[0] for _ in range(300)), lr=0.02, batch=3, price=3.0)
    decoder.heads, decoder.spec = {"color": head}, replace(decoder.spec, heads=("color",))
    return toys.model(decoder)


def run(model: Model, one: Episode, **knobs: Any) -> Trace:
    """The trace of one token after the compressed prompt; END ends a sentence."""
    words = Words([f" w{i}" for i in range(needles.SPEC.vocab)])
    words.texts[needles.END] = "."
    words.marks, words.front = frozenset(), [needles.END]  # type: ignore[attr-defined] # attributes of a tokenizer
    model = replace(model, tokenizer=words)  # type: ignore[arg-type] # a substitute tokenizer
    method = toys.method(prompt_compression=("color", {"keep_question": "end", **knobs}))
    trace = toys.finish_session(Session(model, method, one.prompt, max_new_tokens=1)).sink
    assert check(trace).ok, str(check(trace))  # type: ignore[arg-type] # a trace in memory
    return trace  # type: ignore[return-value] # the call stored a Trace there


def test_it_is_shorter_and_loses_no_more_than_the_whole(learnt: Model) -> None:
    """For comparison, equally many nearest sentences lose much."""
    r, chosen, whole, near, read = Random(5), 0.0, 0.0, 0.0, 0
    for _ in range(100):
        one, _ = episode(r)
        kept = run(learnt, one, keep_rate=1.0).prefill.cut.kept.tolist()
        count = (len(kept) - 3) // 4
        stays = torch.zeros(COUNT, dtype=torch.bool)
        stays[color.rank_by_similarity(learnt.decoder, one)[:count]] = True
        chosen += nats(learnt.decoder, [one.prompt[i] for i in kept], one.answer) / 100
        near += nats(learnt.decoder, color.select_ids(one, stays), one.answer) / 100
        whole += nats(learnt.decoder, one.prompt, one.answer) / 100
        read += 4 * count
    assert read < 0.6 * 100 * 20 and chosen < whole + 0.05 < near, (read, chosen, whole, near)


@pytest.mark.parametrize("rate", [0.0, 0.1, 1.0])
def test_what_is_read_are_the_sentences_above_0_the_highest_first(learnt: Model, rate: float) -> None:
    r, bound, head = Random(7), 0, learnt.decoder.heads["color"]
    for _ in range(24):
        one, _ = episode(r)
        e = embed_text(learnt.decoder, one.prompt)
        says = head.scores(e, e[20:], one.spans)
        order = [i for i in says.argsort(descending=True).tolist() if says[i] > 0]
        due = order[: -(-int(rate * 20 + 1e-9) // 4)]
        cut = run(learnt, one, keep_rate=rate).prefill.cut
        assert cut.kept.tolist() == [*sorted(4 * i + k for i in due for k in range(4)), 20, 21, 22]
        assert {int(x) for x in cut.reason[20:]} == {STAYS} and {int(x) for x in cut.reason[:20]} <= {
            LEFT,
            SCORE,
        }
        assert torch.allclose(torch.tensor(cut.worth[:COUNT]), says, atol=1e-5)
        bound += len(due) < len(order)
    assert rate == 1.0 or bound > 1, "the test needs budgets that bind"


def test_nothing_is_run_before_the_target_reads(learnt: Model) -> None:
    prefill = run(learnt, episode(Random(1))[0]).prefill
    assert {x.phase for x in prefill.passes} == {"prefill"} and prefill.cut.held_bytes == 0
    with pytest.raises(MethodError, match=r"python -m decodescope.training.color"):
        Session(
            toys.model(toys.decoder(toys.toy_spec(heads=()))),
            toys.method(prompt_compression="color"),
            toys.PROMPT,
        )


def test_the_better_of_two_versions_becomes_likelier() -> None:
    """A step down the loss raises the scorer's value for the preferred version; the price prefers the shorter one."""
    torch.manual_seed(1)
    decoder, one = needles.decoder(), episode(Random(3))[0]
    heads = {price: SentenceScorer(needles.WIDTH, 4) for price in (0.0, 50.0)}
    e = embed_text(decoder, one.prompt)
    for price, head in heads.items():
        before = float(head.scores(e, color.question_embeddings(e, one), one.spans).sum())
        for seed in range(8):
            loss = color.step_loss(head, decoder, one, price, torch.Generator().manual_seed(seed))
            if loss is not None:
                loss.backward()
        with torch.no_grad():
            for x in head.parameters():
                assert x.grad is not None
                x -= 0.05 * x.grad
        after = float(head.scores(e, color.question_embeddings(e, one), one.spans).sum())
        assert price == 0.0 or after < before - 0.05, "the price of length did not make it leave more out"
