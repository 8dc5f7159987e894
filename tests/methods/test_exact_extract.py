"""Exact-extract: the answer is the best of all spans, by trying each; passes and rows are those of the formula."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import bytewise
import numpy as np
import pytest
import torch
import toys

from decodescope.engine import Session
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check
from decodescope.engine.trace.details.spans import Spans, spans_problems
from decodescope.lab import figure
from decodescope.lab.decision.explain import explain

END, OTHER = 7, 11  # no prompt below holds one of them
PROMPTS = [
    toys.PROMPT,
    [4],
    *([x if x not in (END, OTHER) else 0 for x in p] for p in toys.prompts(3, 13, seed=5)),
]
WARM = toys.model(toys.decoder(seed=toys.LIVELY, dtype=torch.float64, sharp=1.2))


def extracted(
    prompt: list[int], count: int = 40, stops: list[int] | None = None, big: Any = None, **knobs: Any
) -> Session:
    """A finished run that stops at END, whose trace agrees with itself."""
    made = toys.method(strategy=("exact_extract", knobs))
    session = toys.decode(
        made, prompt, count, stop_tokens=[END] if stops is None else stops, pair=(big or WARM, WARM)
    )
    report = check(session.sink)
    assert report.ok, str(report)
    return session


@cache
def laws(text: tuple[int, ...], behind: int) -> np.ndarray:
    """float64 [T, V]: logarithms of the model's probabilities behind the first `behind` tokens of a text, and one more each."""
    with torch.inference_mode():
        return WARM.decoder.forward(Feed.causal([*text], 0), None)[0, behind - 1 :].log_softmax(-1).numpy()


def loss(
    prompt: list[int], span: list[int], ends: tuple[int, ...] = (END,), among: list[int] | None = None
) -> float:
    """Nats of a span and of an end behind it; among: a text that begins with it, which is read."""
    rows = laws((*prompt, *(among or span)), len(prompt))
    own = sum(row[token] for row, token in zip(rows, span, strict=False))
    return -float(own + np.logaddexp.reduce(rows[len(span), list(ends)]))


def by_hand(
    prompt: list[int], passage: range, longest: int, ends: tuple[int, ...] = (END,)
) -> dict[tuple[int, int], float]:
    """(first, tokens) -> nats, of every span."""
    n, text = len(passage), prompt[passage.start : passage.stop]
    every = [(i, k) for i in range(n) for k in range(1, min(longest, n - i) + 1)]
    return {(i, k): loss(prompt, text[i : i + k], ends, text[i:]) for i, k in every}


@pytest.mark.parametrize("normal", [False, True])
@pytest.mark.parametrize(("longest", "chunk"), [(16, 8), (3, 1), (5, 4), (16, 64)])
def test_the_answer_is_the_best_of_all_spans_and_costs_what_the_formula_says(
    longest: int, chunk: int, normal: bool
) -> None:
    lengths = set()
    for prompt in PROMPTS:
        n, session = len(prompt), extracted(prompt, longest=longest, chunk=chunk, normal=normal)
        (step,), due = session.sink.steps, by_hand(prompt, range(n), longest)
        i, k = min(due, key=lambda span: due[span] / (span[1] + 1 if normal else 1))
        # the same text elsewhere differs by rounding
        i = next(a for a in range(n) if prompt[a : a + k] == prompt[i : i + k])
        assert step.emitted == [*prompt[i : i + k], END] and session.end.reason == "stop_token"
        width = min(longest, n)
        held = {(a, b + 1): step.spans.losses[a, b] for a in range(n) for b in range(width) if a + b < n}
        assert held == pytest.approx(due, rel=1e-5) and np.isnan(step.spans.losses).sum() == n * width - len(
            due
        )
        assert step.spans.best == [i, k] and step.spans.loss == pytest.approx(due[i, k], abs=1e-9)
        reads = [one for one in step.passes if one.tokens]
        assert len(reads) == 1 + math.ceil(n / chunk)
        assert sum(one.tokens for one in reads) == 1 + sum(min(longest, n - a) for a in range(n))
        lengths.add(k)
    assert max(lengths) > 1, "the test needs answers of several tokens"


def test_greedy_decoding_s_answer_is_at_most_as_probable_where_it_is_a_span() -> None:
    spans = worse = 0
    for prompt in toys.prompts(24, 30, seed=2):
        ends = (END, OTHER)
        fitting = [x if x not in ends else 0 for x in prompt]
        greedy = toys.decode(toys.method(), fitting, 7, stop_tokens=list(ends), pair=(WARM, WARM)).end.tokens
        answer = greedy[:-1] if greedy[-1] in ends else []
        places = [i for i in range(len(fitting)) if answer and fitting[i : i + len(answer)] == answer]
        session = extracted(fitting, stops=list(ends), longest=6)
        told = session.sink.steps[0].spans
        assert (told.greedy is not None) == bool(places), (
            "greedy decoding is followed through the rows that were read"
        )
        if places:
            assert told.greedy == [places[0], len(answer)]
            assert told.greedy_loss == pytest.approx(loss(fitting, answer, ends), abs=1e-9)
            assert told.gap >= -1e-9
            spans += 1
            worse += told.gap > 1e-6
        own = fitting[told.best[0] : sum(told.best)]
        assert told.loss == pytest.approx(loss(fitting, own, ends), abs=1e-9), "ends are summed"
        behind = laws((*fitting, *own), len(fitting))[-1]
        assert session.end.tokens[-1] == ends[int(behind[list(ends)].argmax())], (
            "and the likeliest is written"
        )
    assert spans > 3 and worse, "the test needs greedy answers that are spans, and some that are not the best"


def test_the_passage_stands_between_two_texts_and_the_last_of_each_counts() -> None:
    prompt = [3, 9, 4, 1, 5, 9, 2, 6, 10, 8, 10, 3, 1, 4]
    for knobs, passage in (
        (dict(until="10"), range(10)),
        (dict(until="10 8"), range(8)),
        (dict(after="9"), range(6, 14)),
        (dict(after="9", until="10"), range(6, 10)),
        (dict(after="1", until="6"), range(4, 7)),
    ):
        spans = extracted(prompt, **knobs).sink.steps[0].spans
        assert (spans.start, spans.count) == (passage.start, len(passage))
        due = by_hand(prompt, passage, 16)
        assert tuple(spans.best) == min(due, key=due.__getitem__)
    for knobs, why in (
        (dict(until="10 9"), r"^exact_extract.until does not stand in the prompt: give what stands there\.$"),
        (
            dict(after="8", until="6"),
            r"^exact_extract.after does not stand in the prompt before `until`: give what",
        ),
        (
            dict(after="5", until="9 2"),
            r"^exact_extract finds no whole token between `after` and `until`: move",
        ),
        (dict(until="x"), r"until does not stand in the prompt"),
        (dict(end="99"), r"^exact_extract.end = 99: the ids of toy are 0 to 12\.$"),
    ):
        made = toys.method(strategy=("exact_extract", knobs))
        with pytest.raises(EngineFault, match=why):
            toys.decode(made, prompt, 9, stop_tokens=[END])


def test_letters_of_a_passage_that_a_token_holds_only_in_part_are_not_of_it() -> None:
    tokenizer, big = bytewise.letters(), bytewise.lively()
    prompt = tokenizer.plain("One. Ann met Bo? Who:")
    made = toys.method(strategy=("exact_extract", dict(after=".", until="?", longest=4)))
    session = toys.finished(Session(big, made, prompt, max_new_tokens=20, stop_tokens=[bytewise.END]))
    spans = session.sink.steps[0].spans
    pieces = [tokenizer.bytes_of(x).decode() for x in prompt]
    assert "".join(pieces[spans.start : spans.start + spans.count]).strip() == "Ann met Bo"
    assert check(session.sink).ok and "".join(pieces[spans.start + spans.best[0] :]).strip()


def test_what_ends_an_answer_need_not_end_the_text() -> None:
    session = extracted(toys.PROMPT, 20, [], end=str(END))
    first, *rest = session.sink.steps
    assert first.emitted[-1] == END and len(rest) == 20 - len(first.emitted)
    due = toys.greedy(WARM.decoder, toys.PROMPT + first.emitted, len(rest))
    assert [x for step in rest for x in step.emitted] == due and toys.same_as_fresh(session.target)
    assert [one.tokens for one in rest[0].passes] == [len(first.emitted)], (
        "the answer is read with the next token"
    )
    plain = extracted(toys.PROMPT, 20, [])
    assert (
        plain.end.tokens == toys.greedy(WARM.decoder, toys.PROMPT, 20) and plain.sink.steps[0].spans is None
    )


def test_no_span_holds_what_ends_texts_and_a_limit_bounds_it() -> None:
    prompt = [END if x == 5 else x for x in toys.PROMPT]
    spans = extracted(prompt).sink.steps[0].spans
    for i in range(len(prompt)):
        stop = next((k for k in range(i, len(prompt)) if prompt[k] == END), len(prompt))
        assert np.isfinite(spans.losses[i]).sum() == stop - i
    none = extracted([END] * 4)
    assert none.end.tokens[0] == int(laws((END,) * 4, 4)[-1].argmax()), (
        "without a span the text is the model's own"
    )
    short = extracted(toys.PROMPT, 2, normal=True)
    assert len(short.end.tokens) <= 2 and short.sink.steps[0].spans.losses.shape[1] == 2


def test_a_record_that_holds_another_answer_is_found_out() -> None:
    session = extracted(toys.PROMPT, longest=4)
    (step,), prompt = session.sink.steps, toys.PROMPT
    knobs = session.header.method["strategy"]
    assert not [*spans_problems(step.spans, step.emitted, prompt, knobs)]
    i = step.spans.best[0]
    worse = [(i + 1) % 8, 2]
    losses = step.spans.losses
    forged: list[tuple[Spans, list[int]]] = [
        (step.spans, [*step.emitted[:-1], OTHER]),
        (
            replace(step.spans, best=worse, loss=float(losses[worse[0], 1])),
            [*prompt[worse[0] : worse[0] + 2], END],
        ),
        (replace(step.spans, loss=step.spans.loss + 0.1), step.emitted),
        (replace(step.spans, normal=True), step.emitted),
        (replace(step.spans, greedy=[0, 1], greedy_loss=step.spans.loss - 1.0, losses=None), step.emitted),
        (replace(step.spans, start=3), step.emitted),
    ]
    assert all([*spans_problems(spans, emitted, prompt, knobs)] for spans, emitted in forged)


def test_it_is_told_and_drawn() -> None:
    prompt = next(p for p in PROMPTS[2:] if extracted(p, stops=[END, 3, 5]).sink.steps[0].spans is not None)
    trace = extracted(prompt, longest=5).sink
    spans, drawing = trace.steps[0].spans, figure(trace, "spans")
    shades, best = drawing.data[0], drawing.data[1]
    assert np.allclose(np.array(shades.z, float), spans.losses, equal_nan=True)
    assert ([*best.x], [*best.y]) == ([spans.best[1]], [spans.best[0] + 1])
    told = explain(trace, 0)
    assert told.agrees and "the answer" in str(told)
    with pytest.raises(ValueError, match="No step of this run keeps the spans"):
        figure(toys.decode(count=2).sink, "spans")
