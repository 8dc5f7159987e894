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
from decodescope.engine.trace.detail_checks.copies import emitted_sources
from decodescope.engine.trace.details.shapes import MatrixDetail, TallyDetail
from decodescope.engine.trace.records.events import Step
from decodescope.lab import figure
from decodescope.lab.decision.explain import explain

END, OTHER = 7, 11  # no prompt below contains either of them
PROMPTS = [
    toys.PROMPT,
    [4],
    *([x if x not in (END, OTHER) else 0 for x in p] for p in toys.prompts(3, 13, seed=5)),
]
WARM = toys.model(toys.decoder(seed=toys.LIVELY, dtype=torch.float64, sharp=1.2))


def extracted(
    prompt: list[int], count: int = 40, stops: list[int] | None = None, big: Any = None, **knobs: Any
) -> Session:
    """A finished run that stops at END; its trace is consistent."""
    made = toys.method(strategy=("exact_extract", knobs))
    session = toys.decode(
        made, prompt, count, stop_tokens=[END] if stops is None else stops, pair=(big or WARM, WARM)
    )
    report = check(session.sink)
    assert report.ok, str(report)
    return session


def spans_of(step: Step) -> tuple[TallyDetail, np.ndarray]:
    """The spans that a step lists, and the losses of all."""
    listed, losses = step.details or (None, None)
    assert isinstance(listed, TallyDetail) and isinstance(losses, MatrixDetail) and losses.numbers is not None
    return listed, losses.numbers


def answer_of(step: Step) -> tuple[int, int]:
    """(first, tokens) of the answer, which is the first that is listed."""
    row = spans_of(step)[0].row(0)
    assert row["outcome"] == "answer"
    return row["begin"], row["size"]


def greedy_of(step: Step) -> dict[str, Any] | None:
    """The greedy span; None: greedy decoding leaves the passage."""
    listed, _ = spans_of(step)
    return next((listed.row(k) for k in range(len(listed)) if listed.columns["greedy"][k]), None)


@cache
def laws(text: tuple[int, ...], behind: int) -> np.ndarray:
    """float64 [T, V]: the model's log-probabilities after the first `behind` tokens of a text, and after each further token."""
    with torch.inference_mode():
        return (
            WARM.decoder.forward(Feed.causal_chain([*text], 0), None)[0, behind - 1 :].log_softmax(-1).numpy()
        )


def loss(
    prompt: list[int], span: list[int], ends: tuple[int, ...] = (END,), among: list[int] | None = None
) -> float:
    """Nats of a span and of an end after it. among: a text that begins with the span; the model then reads this text."""
    rows = laws((*prompt, *(among or span)), len(prompt))
    own = sum(row[token] for row, token in zip(rows, span, strict=False))
    return -float(own + np.logaddexp.reduce(rows[len(span), list(ends)]))


def by_hand(
    prompt: list[int], passage: range, longest: int, ends: tuple[int, ...] = (END,)
) -> dict[tuple[int, int], float]:
    """(first, tokens) -> nats, for every span."""
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
        n, session = (
            len(prompt),
            extracted(prompt, max_span_tokens=longest, suffixes_per_pass=chunk, length_normalization=normal),
        )
        (step,), due = session.sink.steps, by_hand(prompt, range(n), longest)
        i, k = min(due, key=lambda span: due[span] / (span[1] + 1 if normal else 1))
        # the same text at another place differs by rounding
        i = next(a for a in range(n) if prompt[a : a + k] == prompt[i : i + k])
        assert step.emitted == [*prompt[i : i + k], END] and session.end.reason == "stop_token"
        width = min(longest, n)
        listed, losses = spans_of(step)
        held = {(a, b + 1): losses[a, b] for a in range(n) for b in range(width) if a + b < n}
        assert held == pytest.approx(due, rel=1e-5) and np.isnan(losses).sum() == n * width - len(due)
        assert answer_of(step) == (i, k) and listed.values["best"] == pytest.approx(due[i, k], abs=1e-9)
        for a, b, nats in zip(*(listed.columns[x] for x in ("begin", "size", "loss")), strict=True):
            assert nats == pytest.approx(due[a, b], abs=1e-9), "each that is listed has its own loss"
        worth = sorted(x / (b + 1 if normal else 1) for (a, b), x in due.items())
        told = [
            x / (b + 1 if normal else 1)
            for b, x in zip(listed.columns["size"], listed.columns["loss"], strict=True)
        ]
        assert sorted(told)[:8] == pytest.approx(worth[:8], rel=1e-5), "the best are listed"
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
        session = extracted(fitting, stops=list(ends), max_span_tokens=6)
        step = session.sink.steps[0]
        told, greedy_span, begin = spans_of(step)[0].values, greedy_of(step), answer_of(step)
        assert (greedy_span is not None) == bool(places), (
            "greedy decoding is followed through the rows that were read"
        )
        if greedy_span is not None:
            assert (greedy_span["begin"], greedy_span["size"]) == (places[0], len(answer))
            assert greedy_span["loss"] == pytest.approx(loss(fitting, answer, ends), abs=1e-9)
            assert told["gap"] >= -1e-9
            spans += 1
            worse += told["gap"] > 1e-6
        own = fitting[begin[0] : sum(begin)]
        assert told["best"] == pytest.approx(loss(fitting, own, ends), abs=1e-9), "ends are summed"
        behind = laws((*fitting, *own), len(fitting))[-1]
        assert session.end.tokens[-1] == ends[int(behind[list(ends)].argmax())], (
            "and the likeliest is written"
        )
    assert spans > 3 and worse, "the test needs greedy answers that are spans, and some that are not the best"


def test_the_passage_stands_between_two_texts_and_the_last_of_each_counts() -> None:
    prompt = [3, 9, 4, 1, 5, 9, 2, 6, 10, 8, 10, 3, 1, 4]
    for knobs, passage in (
        (dict(passage_end="10"), range(10)),
        (dict(passage_end="10 8"), range(8)),
        (dict(passage_start="9"), range(6, 14)),
        (dict(passage_start="9", passage_end="10"), range(6, 10)),
        (dict(passage_start="1", passage_end="6"), range(4, 7)),
    ):
        step = extracted(prompt, **knobs).sink.steps[0]
        told = spans_of(step)[0].values
        assert (told["start"], told["length"]) == (passage.start, len(passage))
        due = by_hand(prompt, passage, 16)
        assert answer_of(step) == min(due, key=due.__getitem__)
    for knobs, why in (
        (
            dict(passage_end="10 9"),
            r"^exact_extract.passage_end does not occur in the prompt: give a text that does\.$",
        ),
        (
            dict(passage_start="8", passage_end="6"),
            r"^exact_extract.passage_start does not occur in the prompt before `passage_end`: give a text",
        ),
        (
            dict(passage_start="5", passage_end="9 2"),
            r"^exact_extract finds no whole token between `passage_start` and `passage_end`: move",
        ),
        (dict(passage_end="x"), r"passage_end does not occur in the prompt"),
        (dict(end_token="99"), r"^exact_extract.end_token = 99: the ids of toy are 0 to 12\.$"),
    ):
        made = toys.method(strategy=("exact_extract", knobs))
        with pytest.raises(EngineFault, match=why):
            toys.decode(made, prompt, 9, stop_tokens=[END])


def test_letters_of_a_passage_that_a_token_holds_only_in_part_are_not_of_it() -> None:
    tokenizer, big = bytewise.letters(), bytewise.lively()
    prompt = tokenizer.encode_plain("One. Ann met Bo? Who:")
    made = toys.method(
        strategy=("exact_extract", dict(passage_start=".", passage_end="?", max_span_tokens=4))
    )
    session = toys.finish_session(Session(big, made, prompt, max_new_tokens=20, stop_tokens=[bytewise.END]))
    step = session.sink.steps[0]
    told = spans_of(step)[0].values
    pieces = [tokenizer.bytes_of(x).decode() for x in prompt]
    assert "".join(pieces[told["start"] : told["start"] + told["length"]]).strip() == "Ann met Bo"
    assert check(session.sink).ok and "".join(pieces[told["start"] + answer_of(step)[0] :]).strip()


def test_what_ends_an_answer_need_not_end_the_text() -> None:
    session = extracted(toys.PROMPT, 20, [], end_token=str(END))
    first, *rest = session.sink.steps
    assert first.emitted[-1] == END and len(rest) == 20 - len(first.emitted)
    due = toys.greedy_text(WARM.decoder, toys.PROMPT + first.emitted, len(rest))
    assert [x for step in rest for x in step.emitted] == due and toys.matches_fresh_reading(session.target)
    assert [one.tokens for one in rest[0].passes] == [len(first.emitted)], (
        "the answer is read with the next token"
    )
    plain = extracted(toys.PROMPT, 20, [])
    assert (
        plain.end.tokens == toys.greedy_text(WARM.decoder, toys.PROMPT, 20)
        and plain.sink.steps[0].details is None
    )


def test_no_span_holds_what_ends_texts_and_a_limit_bounds_it() -> None:
    prompt = [END if x == 5 else x for x in toys.PROMPT]
    _, losses = spans_of(extracted(prompt).sink.steps[0])
    for i in range(len(prompt)):
        stop = next((k for k in range(i, len(prompt)) if prompt[k] == END), len(prompt))
        assert np.isfinite(losses[i]).sum() == stop - i
    none = extracted([END] * 4)
    assert none.end.tokens[0] == int(laws((END,) * 4, 4)[-1].argmax()), (
        "without a span the text is the model's own"
    )
    short = extracted(toys.PROMPT, 2, length_normalization=True)
    assert len(short.end.tokens) <= 2 and spans_of(short.sink.steps[0])[1].shape[1] == 2


def columns(detail: TallyDetail, **more: Any) -> TallyDetail:
    return replace(detail, columns={**detail.columns, **more})


def values(detail: Any, **more: Any) -> Any:
    return replace(detail, values={**detail.values, **more})


def only(detail: TallyDetail, *rows: int) -> TallyDetail:
    return replace(
        detail, columns={name: [column[k] for k in rows] for name, column in detail.columns.items()}
    )


TALLIES = {
    "a worse answer": (
        lambda x: values(
            columns(only(x, 1, 0, *range(2, len(x))), outcome=x.columns["outcome"]),
            own_begin=x.columns["begin"][1],
            own_size=x.columns["size"][1],
            best=x.columns["loss"][1],
        ),
        "is worth",
    ),
    "another loss": (lambda x: values(x, best=x.values["best"] + 0.1), "breaks loss == best"),
    "a loss of none": (
        lambda x: columns(x, loss=[*x.columns["loss"][:-1], x.columns["loss"][-1] + 0.5]),
        "among all spans",
    ),
    "one that is left out": (lambda x: only(x, *range(len(x) - 1)), "are the best"),
    "another place of the passage": (lambda x: values(x, start=3), "the prompt has"),
    "a passage that is too long": (lambda x: values(x, length=99), "of a prompt of 13"),
    "a passage of a share": (lambda x: values(x, length=2.5), "its passage has 2.5 tokens"),
    "a passage far away": (lambda x: values(x, start=2**52), "of a prompt of 13"),
    "another end": (lambda x: values(x, end=OTHER), "it emitted"),
    "other tokens": (lambda x: columns(x, tokens=[[1]] * len(x)), "the prompt has"),
    "a place of a share": (lambda x: columns(x, begin=[0.5] * len(x)), "it lists no spans with a place"),
    "a place outside": (lambda x: columns(x, begin=[2**40] * len(x)), "it names the span"),
    "a place that is missing": (
        lambda x: replace(x, columns={k: y for k, y in x.columns.items() if k != "begin"}),
        "it lists no spans with a place",
    ),
    "two greedy spans": (lambda x: columns(x, greedy=[True, True, *x.columns["greedy"][2:]]), "greedy spans"),
    "no list": (lambda x: only(x), "it lists no spans"),
    "another size": (
        lambda x: columns(x, size=[y + 1 for y in x.columns["size"]]),
        "breaks size == count(tokens)",
    ),
    "an answer that has no better": (
        lambda x: columns(x, outcome=[x.columns["outcome"][0], *["behind"] * (len(x) - 1)]),
        "breaks length_normalization == 1",
    ),
}
MATRICES = {
    "a lower loss elsewhere": (
        lambda x: replace(x, numbers=x.numbers - np.eye(*x.numbers.shape) * 99),
        "is worth",
    ),
    "other marks": (lambda x: replace(x, marks=[[9, 0, "answer"]]), "it marks"),
    "a mark outside": (lambda x: replace(x, marks=[[99, 0, "answer"]]), "which it lacks"),
    "a mark that is no word": (lambda x: replace(x, marks=[[0, 0, 1]]), "is not a row, a column and a word"),
    "fewer rows": (lambda x: replace(x, numbers=x.numbers[:-1]), "entries, where 12 are due"),
    "fewer columns": (lambda x: replace(x, numbers=x.numbers[:, :0], marks=[]), "rows and 0 columns"),
    "no numbers of its kind": (
        lambda x: replace(x, numbers=x.numbers.astype(complex)),
        "of kind 'f' are due",
    ),
    "a label of none": (lambda x: replace(x, rows={"token": [99] * 13}), "outside the vocabulary"),
    "another gap": (lambda x: values(x, gap=3.0), "its losses have the gap"),
}


@pytest.mark.parametrize("lie", [*TALLIES, *MATRICES])
def test_a_record_that_holds_another_answer_is_found_out(lie: str) -> None:
    trace = extracted(PROMPTS[2], max_span_tokens=4).sink
    listed, losses = trace.steps[0].details or ()
    assert len(listed) > 4 and set(listed.columns["outcome"]) == {"answer", "less"}  # type: ignore[union-attr]
    change, said = TALLIES.get(lie) or MATRICES[lie]
    trace.steps[0].details = [change(listed), losses] if lie in TALLIES else [listed, change(losses)]
    problems = check(trace).problems
    assert any(said in x for x in problems), problems


def test_what_a_step_emits_and_how_it_judges_must_fit_its_spans() -> None:
    trace = extracted(PROMPTS[2], max_span_tokens=4).sink
    trace.header.method["strategy"]["length_normalization"] = True
    assert any("breaks length_normalization == 0" in x for x in check(trace).problems)
    begin, size = answer_of(trace.steps[0])
    other = PROMPTS[2][begin + 1 : begin + 1 + size]
    for emitted in ([*trace.steps[0].emitted[:-1], OTHER], [*other, END], trace.steps[0].emitted[:-2]):
        trace = extracted(PROMPTS[2], max_span_tokens=4).sink
        trace.steps[0].emitted, trace.steps[0].origins = emitted, ["target"] * len(emitted)
        problems = check(trace).problems
        assert any("and listed_spans gives" in x or "breaks emitted >= size" in x for x in problems), problems


def test_a_greedy_text_that_is_better_than_the_answer_is_found_out() -> None:
    """Also if the losses of all spans were not kept."""
    ends = [END, OTHER]
    prompts = ([x if x not in ends else 0 for x in prompt] for prompt in toys.prompts(24, 30, seed=2))
    traces = (extracted(prompt, stops=ends, max_span_tokens=6).sink for prompt in prompts)
    trace = next(x for x in traces if (greedy := greedy_of(x.steps[0])) and greedy["outcome"] == "less")
    listed, losses = trace.steps[0].details or ()
    assert isinstance(listed, TallyDetail) and isinstance(losses, MatrixDetail)
    assert "the greedy text, from token" in str(explain(trace, 0)) and explain(trace, 0).agrees
    assert [mark[2] for mark in losses.marks] == ["answer", "greedy"]
    at = listed.columns["greedy"].index(True)
    cheaper = [x - 99.0 if k == at else x for k, x in enumerate(listed.columns["loss"])]
    lower = values(columns(listed, loss=cheaper), gap=cheaper[at] - listed.values["best"])
    trace.steps[0].details = [lower, values(replace(losses, numbers=None), gap=lower.values["gap"])]
    assert any("is 'less', with" in x for x in check(trace).problems)
    trace.steps[0].details = [values(listed, gap=0.0), values(losses, gap=0.0)]
    assert any("breaks gap == loss - best" in x for x in check(trace).problems)
    trace.steps[0].details = [values(listed, gap=None), values(losses, gap=None)]
    assert any("it lists 1 greedy spans" in x for x in check(trace).problems)


def test_the_tokens_of_an_answer_are_copies_of_the_prompt() -> None:
    trace = extracted(toys.PROMPT, max_span_tokens=4).sink
    begin, size = answer_of(trace.steps[0])
    assert emitted_sources(trace.header, trace.steps[0]) == [*range(begin, begin + size), None]
    listed = spans_of(trace.steps[0])[0]
    for start in (-40, 0.5, 10**15):
        listed.values["start"] = start
        assert emitted_sources(trace.header, trace.steps[0]) in (
            [],
            [int(start) + begin + k for k in range(size)] + [None],
        )
        assert not check(trace).ok


def test_a_text_that_stands_twice_is_as_probable_there() -> None:
    """Its losses differ only by rounding, so neither place is called less probable."""
    again = 0
    for prompt in (toys.PROMPT, *PROMPTS[2:]):
        trace = extracted(prompt, max_span_tokens=4).sink
        columns = spans_of(trace.steps[0])[0].columns
        same = [k for k, x in enumerate(columns["tokens"]) if k and x == columns["tokens"][0]]
        assert (
            same == [k for k, x in enumerate(columns["outcome"]) if x == "equal"] and explain(trace, 0).agrees
        )
        assert ("as probable, from token" in str(explain(trace, 0))) == bool(same)
        again += bool(same)
    assert again, "the test needs an answer that stands twice"


def test_it_is_told_and_drawn() -> None:
    prompt = next(p for p in PROMPTS[2:] if extracted(p, stops=[END, 3, 5]).sink.steps[0].details is not None)
    trace = extracted(prompt, max_span_tokens=5).sink
    (_, losses), drawing = spans_of(trace.steps[0]), figure(trace, "matrix")
    shades, best = drawing.data[0], drawing.data[1]
    assert np.allclose(np.array(shades.z, float), losses, equal_nan=True)
    begin, size = answer_of(trace.steps[0])
    assert ([*best.x], [*best.y], best.name) == ([size], [begin + 1], "answer")
    assert (
        shades.hovertemplate == "from token %{y}, %{customdata[0]}: %{x} tokens, %{z:.3f} nats<extra></extra>"
    )
    assert (
        drawing.layout.title.text.startswith("Spans of a passage")
        and drawing.layout.yaxis.title.text == "first token"
    )
    told = explain(trace, 0)
    assert told.agrees and "the answer" in str(told)
    with pytest.raises(ValueError, match="No step of this run keeps a matrix"):
        figure(toys.decode(count=2).sink, "matrix")
