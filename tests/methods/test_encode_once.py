"""Encode once: each answer is that of a separate run, the document is read once, and the longest answer sets the passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import bytewise
import pytest
import toys

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.core.params import ParamError
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.session.load import Model
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.details.threads import build_thread_tree, thread_schedule

DOC = list(b"The river rises in the hills and runs to the sea. Nobody has ever counted its bends.")
QUESTIONS = ["Where does it rise?", "Who counted?", "What runs to the sea, and why so slowly?"]
FORM = "\nQ: {question}\nA:"
HOT = {"sampler": ("temperature", {"temperature": 0.9})}


def run(
    model: Model, questions: list[str], count: int, parts: dict[str, Any] | None = None, **more: Any
) -> Session:
    made = toys.method(
        strategy=("encode_once", {"questions": "\n".join(questions), "question_template": FORM}),
        **(parts or {}),
    )
    return finished(Session(model, made, DOC, max_new_tokens=count, **more))


def finished(session: Session) -> Session:
    session.sink = Trace()
    for _ in session.stream():
        pass
    assert check(session.sink).ok, str(check(session.sink))
    return session


def alone(model: Model, question: str, count: int, seed: int, parts: dict[str, Any], **more: Any) -> Session:
    prompt = [*DOC, *model.tokenizer.encode_plain(FORM.format(question=question))]
    made = toys.method(**parts) if parts else Method()
    return finished(Session(model, made, prompt, max_new_tokens=count, seed=seed, **more))


def answers(session: Session) -> list[list[int]]:
    return [
        x.tokens for x in build_thread_tree(step.detail("threads") for step in session.sink.steps).strands
    ]


@pytest.mark.parametrize("parts", [{}, HOT, {"sampler": "mirostat"}], ids=["greedy", "drawn", "with a state"])
def test_each_answer_is_the_text_of_a_run_with_its_own_question_and_seed(parts: dict[str, Any]) -> None:
    model = bytewise.lively()
    made = run(model, QUESTIONS, 60, parts, seed=5)
    due = [alone(model, x, 20, 5 + i, parts).end.tokens for i, x in enumerate(QUESTIONS)]
    assert answers(made) == due and made.end.tokens == [x for answer in due for x in answer]
    assert len({*map(tuple, due)}) == 3, "the test needs answers that differ"
    assert (made.end.reason, made.steps, made.header.lossless) == ("max_new_tokens", 20, True)


def test_answers_end_apart_and_the_text_has_the_last_ones_stop_token_alone() -> None:
    model = bytewise.lively()
    free = [alone(model, x, 20, 0, {}).end.tokens for x in QUESTIONS]
    stops = [free[0][6], free[1][11], free[2][3]]
    made = run(model, QUESTIONS, 60, stop_tokens=stops)
    due = [alone(model, x, 20, 0, {}, stop_tokens=stops).end for x in QUESTIONS]
    assert answers(made) == [x.tokens for x in due] and len({len(x.tokens) for x in due}) == 3, (
        "the test needs ends apart"
    )
    assert [x.reason for x in due] == ["stop_token"] * 3 and made.end.reason == "stop_token"
    assert made.end.tokens == due[0].tokens[:-1] + due[1].tokens[:-1] + due[2].tokens
    assert (
        made.steps
        == max(len(x.tokens) for x in due)
        == thread_schedule(x.detail("threads") for x in made.sink.steps).longest
    )


def test_document_and_questions_are_read_once_and_a_pass_writes_a_token_of_each() -> None:
    made = run(bytewise.lively(), QUESTIONS, 30)
    tails = [len(FORM.format(question=x)) for x in QUESTIONS]
    assert [x.tokens for x in made.prefilled.passes] == [len(DOC) - 1, 1 + sum(tails) - 3]
    assert [x.tokens for step in made.sink.steps for x in step.passes] == [3] * 10
    held = [step.passes[0].held for step in made.sink.steps]
    assert held == [len(DOC) + sum(tails) - 3 + 3 * i for i in range(10)], (
        "the document's entries are there once"
    )


def test_what_is_left_of_the_length_goes_to_the_first_answers() -> None:
    model = bytewise.lively()
    for count, due in ((8, [3, 3, 2]), (2, [1, 1])):
        made = run(model, QUESTIONS, count)
        assert [len(x) for x in answers(made)] == due and len(made.end.tokens) == count


def test_without_questions_it_is_plain_decoding() -> None:
    model = bytewise.lively()
    made = run(model, ["", "  "], 12)
    assert made.end.tokens == finished(Session(model, None, DOC, max_new_tokens=12)).end.tokens
    assert [x.tokens for x in made.prefilled.passes] == [len(DOC) - 1]


def test_bad_questions_are_refused_in_a_sentence() -> None:
    model = bytewise.lively()
    with pytest.raises(
        MethodError,
        match=r"^encode_once.question_template does not say where a question goes, .*\{question\} into it\.$",
    ):
        Session(model, toys.method(strategy=("encode_once", {"question_template": "Q:"})), DOC)
    with pytest.raises(
        MethodError,
        match=r"^toy has no tokenizer, so encode_once cannot read its text; leave the text out\.$",
    ):
        Session(toys.target(), toys.method(strategy=("encode_once", {"questions": "Why?"})), [1, 2])
    with pytest.raises(ParamError, match=r"^encode_once\.questions"):
        toys.method(strategy=("encode_once", {"questions": "x" * 20_001}))
    small = replace(model, spec=replace(model.spec, max_positions=110), decoder=model.decoder)
    session = Session(small, toys.method(strategy=("encode_once", {"questions": "\n".join(QUESTIONS)})), DOC)
    with pytest.raises(
        EngineFault, match=r"^With question 1 the prompt has \d+ tokens, and .* random reads at most 110"
    ):
        session.start()
    assert session.end.reason == "bad_input"
