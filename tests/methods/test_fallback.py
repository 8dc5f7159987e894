"""Big Little Decoder: the large model's greedy text without tolerance, the small one's without doubt, and rollbacks."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
import toys

from decodescope.engine import MethodError, Session
from decodescope.engine.trace import check
from decodescope.engine.trace.details.shapes import TallyDetail

PROMPTS = [[4], toys.PROMPT, *toys.prompts(4, seed=3)]


def little(prompt: list[int] = toys.PROMPT, count: int = 40, **knobs: object) -> Session:
    return toys.decode(toys.method(strategy="switch", router=("fallback", knobs)), prompt, count)


def blocks(session: Session) -> list[TallyDetail]:
    return [step.detail("judged_block") for step in session.sink.steps]


def written(block: TallyDetail, column: str) -> list[Any]:
    """Entries of the rows that the small model wrote."""
    return block.columns[column][: block.values["written"]]


@pytest.mark.parametrize("tau", [0.0, 0.5, 0.9])
def test_without_tolerance_the_text_is_the_large_models_greedy_text(tau: float) -> None:
    big, _ = toys.pair()
    taken = 0
    for prompt in PROMPTS:
        session = little(prompt, tau=tau, rollback_threshold=0.0, max_draft_tokens=6)
        assert session.end.tokens == toys.greedy_text(big.decoder, prompt, 40) and check(session.sink).ok
        taken += sum(x.values["kept"] < x.values["written"] for x in blocks(session))
        stop = session.end.tokens[17]
        ended = toys.decode(session.method, prompt, 40, stop_tokens=[stop]).end.tokens
        assert ended == session.end.tokens[: session.end.tokens.index(stop) + 1]
    assert taken > 5, "the test needs rollbacks"


def test_without_doubt_or_rollback_all_but_the_hand_overs_is_the_small_models() -> None:
    _, small = toys.pair()
    session = little(tau=0.0, rollback_threshold=1000.0, max_draft_tokens=5, count=43)
    text = list(toys.PROMPT)
    for k, step in enumerate(session.sink.steps):
        assert step.origins == (["target"] if k == 0 else (["draft"] * 5 + ["target"]))
        for token, origin in zip(step.emitted, step.origins, strict=True):
            assert origin == "target" or [token] == toys.greedy_text(small.decoder, text, 1)
            text.append(token)
    assert len(session.sink.steps) == 8


def test_losses_choices_and_rollbacks_are_those_of_a_reading_from_scratch() -> None:
    big, small = toys.pair()
    rolled = doubts = 0
    for prompt in PROMPTS:
        session = little(prompt, tau=0.45, rollback_threshold=1.0, max_draft_tokens=6)
        for step in session.sink.steps:
            block, before = step.detail("judged_block"), session.tokens[: step.n]
            tokens, loss, choice = (written(block, name) for name in ("token", "loss", "choice"))
            gave_up = block.values["gave_up"]
            sure = [*written(block, "sure"), *([] if gave_up is None else [gave_up])]
            with torch.inference_mode():
                law = big.decoder.forward(toys.Feed.causal_chain([*before, *tokens], 0), None)[
                    0, step.n - 1 :
                ].log_softmax(-1)
                own = small.decoder.forward(toys.Feed.causal_chain([*before, *tokens], 0), None)[
                    0, step.n - 1 :
                ].softmax(-1)
            assert choice == law.argmax(-1).tolist()[: len(tokens)]
            assert loss == pytest.approx([-float(law[i, x]) for i, x in enumerate(tokens)], abs=1e-9)
            assert sure == pytest.approx(own.amax(-1).tolist()[: len(sure)], abs=1e-9)
            late = [i for i, x in enumerate(tokens) if loss[i] > 1.0 and x != choice[i]]
            assert block.values["kept"] == (late[0] if late else len(tokens))
            rolled += bool(late)
            doubts += gave_up is not None
        target, draft = session.target, session.lanes["draft"]
        assert target.tokens == session.tokens[:-1] and toys.matches_fresh_reading(target)
        assert draft.tokens == session.tokens[: len(draft.tokens)] and (
            not draft.tokens or toys.matches_fresh_reading(draft)
        )
    assert rolled > 5 and doubts > 10, "the test needs both"


def test_check_finds_what_does_not_follow_from_the_losses() -> None:
    session = little(tau=0.45, rollback_threshold=1.0, max_draft_tokens=6)
    assert check(session.sink).ok and check(session.sink).counts["turns of models"] == len(session.sink.steps)
    place, block = next(
        (i, x) for i, x in enumerate(blocks(session)) if x.values["kept"] < x.values["written"]
    )
    step, kept, n = session.sink.steps[place], block.values["kept"], block.values["written"]
    more, losses = [*block.columns["outcome"]], [*block.columns["loss"]]
    more[kept] = "stays"
    losses[kept] = 0.5
    for change, word in (
        ({"kept": kept + 1}, "by its losses"),
        ({"outcome": more, "kept": kept + 1}, "against -1"),
        ({"loss": losses}, "by its losses"),
        ({"loss": losses}, "is 'taken back'"),
        ({"caught": 40}, "rows"),
        ({"sure": [0.1] * n + [None]}, "sure enough"),
        ({"sure": [1.5] * n + [None]}, "breaks sure <= 1"),
        ({"sure": [0.5] * (n + 1)}, "numbers of another place"),
        ({"gave_up": 0.9}, "sure enough"),
        ({"lane": ["large"] * (n + 1)}, "tokens of the small model are due"),
        ({"written": n + 2}, "a block of"),
        ({"written": n + 0.5}, "a block of"),
        ({"asked": 90}, "was asked about"),
        ({"loss": [None] * (n + 1)}, "other numbers than it has tokens"),
        ({"token": [*block.columns["token"][:-1], 0]}, "it emitted"),
        ({"choice": [99] * n + [None]}, "outside the vocabulary"),
    ):
        columns = {name: change.get(name, x) for name, x in block.columns.items()}
        values = {name: change.get(name, x) for name, x in block.values.items()}
        if "gave_up" in change:
            values["asked"] = n + 1
        wrong = copy.deepcopy(session.sink)
        wrong.steps[step.step].details = [replace(block, columns=columns, values=values)]
        assert any(word in problem for problem in check(wrong).problems), (change, check(wrong).problems)
    knobs = (
        ("rollback_threshold", 100.0, "by its losses"),
        ("tau", 0.999, "sure enough"),
        ("max_draft_tokens", 0, "in a row"),
    )
    for name, wrong_knob, word in knobs:
        wrong = copy.deepcopy(session.sink)
        wrong.header.method["router"][name] = wrong_knob
        assert any(word in problem for problem in check(wrong).problems), name
    for name, lie, word in (
        ("looks", step.looks[:1], "looked at"),
        ("origins", ["draft"] * len(step.emitted), "origins"),
    ):
        wrong = copy.deepcopy(session.sink)
        setattr(wrong.steps[step.step], name, lie)
        assert any(word in problem for problem in check(wrong).problems), name


def test_sampler_that_draws_and_a_cascade_are_refused_with_a_way_out() -> None:
    with pytest.raises(
        MethodError, match=r"^fallback hands over greedy choices .*: choose the sampler greedy alone, or "
    ):
        toys.decode(toys.method(strategy="switch", router="fallback", sampler="temperature"))
    with pytest.raises(
        MethodError, match=r"^cascade asks about whole answers, and the router fallback decides token by "
    ):
        toys.decode(toys.method(strategy="cascade", router="fallback"))
