"""Speculative Jacobi decoding: each draft has the distribution that it was drawn from, greedy text, and improving drafts."""

from __future__ import annotations

import pytest
import torch
import toys

from decodescope.engine import Method, MethodError, Session
from decodescope.engine import run as run_text
from decodescope.engine.core.component import registry
from decodescope.engine.session.load import Model, load
from decodescope.engine.session.run import Run
from decodescope.engine.trace import check

HEAT = ("temperature", {"temperature": 0.9})


def run(sampler=HEAT, count: int = 40, seed: int = 3, **knobs):
    return toys.decode(toys.method(drafter=("sjd", knobs), sampler=sampler), count=count, seed=seed)


def watched(sampler=HEAT, **knobs):
    """The outcomes of a run, in order."""
    target, _ = toys.pair()
    session = Session(
        target, toys.method(drafter=("sjd", knobs), sampler=sampler), toys.PROMPT, max_new_tokens=40, seed=5
    )
    session.start()
    observe, seen = session.drafter.observe, []
    session.drafter.observe = lambda outcome: (seen.append(outcome), observe(outcome))[1]  # type: ignore[method-assign]
    while not session.is_done:
        session.step()
    return session, seen


@pytest.mark.parametrize("refill", ["random", "repeat"])
@pytest.mark.parametrize("sampler", [HEAT, ("top_k", {"k": 3})])
def test_behind_a_refusal_a_place_has_the_law_that_the_target_gave_it_in_the_pass_before(
    refill, sampler
) -> None:
    """After the sampler; new places are uniform, or copies of their left neighbour without a distribution."""
    session, seen = watched(sampler, window=6, initial_guess=refill)
    anew = fresh = 0
    for before, outcome in zip([None, *seen], seen, strict=False):
        draft = outcome.draft
        settled = 0 if before is None else len(before.verdict.path) + 1
        rows = [] if before is None else before.logits[settled:]
        left = outcome.root
        for node, token in enumerate(draft.tokens):
            law = draft.law(node)
            if node < len(rows):
                assert torch.equal(law, torch.softmax(session.sampler.warp(rows[node], None), -1))
                assert draft.u[node] is not None and draft.notes["passes"][node] > 0
                anew += 1
            elif refill == "random":
                assert (
                    torch.allclose(law, torch.full_like(law, 1 / len(law)))
                    and draft.notes["passes"][node] == 0
                )
                fresh += 1
            else:
                assert law is None and draft.u[node] is None and token == left
                fresh += 1
            left = token
    assert anew > 50 and fresh > 5


@pytest.mark.parametrize("refill", ["random", "repeat"])
@pytest.mark.parametrize("window", [1, 2, 5, 16])
def test_at_temperature_zero_it_is_jacobi_on_a_window_that_moves(window: int, refill: str) -> None:
    due = toys.greedy_text(toys.pair()[0].decoder, toys.PROMPT, 40)
    session = run(("temperature", {"temperature": 0.0}), window=window, initial_guess=refill)
    assert session.end.tokens == due and check(session.sink).ok
    choices: list[int] = []
    for step in session.sink.steps:
        drafted = [] if step.draft is None else step.draft.tokens
        known = choices[: len(drafted)]
        assert drafted[: len(known)] == known, (
            "every place takes the target's choice after the guesses before it"
        )
        with torch.inference_mode():
            text = [*toys.PROMPT, *due][: step.n]
            laws = [
                toys.greedy_text(toys.pair()[0].decoder, [*text, *drafted[:k]], 1)[0]
                for k in range(len(drafted) + 1)
            ]
        choices = laws[len(step.emitted) :]


@pytest.mark.parametrize("sampler", ["greedy", HEAT, "mirostat", "repetition_penalty"])
def test_each_pass_writes_a_token_at_least_and_saves_some(sampler) -> None:
    session = run(sampler, window=5)
    assert all(step.emitted for step in session.sink.steps) and len(session.sink.steps) < 40
    assert check(session.sink).ok and toys.matches_fresh_reading(session.target)


@pytest.fixture(scope="module")
def painter() -> Model:
    return load("lab-digits", "float32", "cpu")


def painted(model: Model, label: int, strategy: str = "draft_verify", heat: float = 0.0, **parts: str) -> Run:
    """A complete picture of that class."""
    names = {"strategy": strategy, "sampler": "temperature", **parts}
    return run_text(
        model,
        Method.from_names(names, {"sampler": {"temperature": heat}}),
        str(label),
        max_new_tokens=65,
        seed=label,
    )


def test_a_picture_at_temperature_zero_is_the_greedy_one_and_jacobis(painter: Model) -> None:
    for label in (0, 3, 7):
        plain = painted(painter, label)
        assert len(plain.tokens) == 65 and plain.tokens[-1] == 0
        assert (
            painted(painter, label, drafter="sjd").tokens
            == painted(painter, label, "jacobi").tokens
            == plain.tokens
        )


def test_a_drawn_picture_takes_well_below_a_pass_a_cell(painter: Model) -> None:
    """With the default knobs each record is re-derived. lantern keeps more of the same drafts."""
    rules = ("lossless", "lantern")
    made = {
        rule: [painted(painter, x, heat=1.0, drafter="sjd", acceptance=rule) for x in range(10)]
        for rule in rules
    }
    passes = {rule: sum(len(x.trace.steps) for x in some) for rule, some in made.items()}
    tokens = {rule: sum(len(x.tokens) for x in some) for rule, some in made.items()}
    assert tokens["lossless"] / passes["lossless"] >= 1.5
    assert tokens["lantern"] / passes["lantern"] > tokens["lossless"] / passes["lossless"]
    levels = painter.spec.picture.levels
    for some in made.values():
        assert all(check(x.trace).ok for x in some)
        assert sum(set(x.tokens[:64]) <= set(levels) for x in some) >= 9, "what is drawn is a picture"


def test_rules_that_read_another_kind_of_draft_refuse_it() -> None:
    for name, rule in registry("acceptance").items():
        method = toys.method(drafter="sjd", sampler=HEAT, acceptance=name)
        if "mixed" in rule.exact_for:
            continue
        with pytest.raises(MethodError, match="mixed"):
            Session(toys.pair()[0], method, toys.PROMPT)
        refused = name
    assert refused
