"""Big Little Decoder: the large model's greedy text without tolerance, the small one's without doubt, and rollbacks."""

from __future__ import annotations

import pytest
import torch
import toys

from decodescope.engine import MethodError, Session
from decodescope.engine.trace import check

PROMPTS = [[4], toys.PROMPT, *toys.prompts(4, seed=3)]


def little(prompt: list[int] = toys.PROMPT, count: int = 40, **knobs: object) -> Session:
    return toys.decode(toys.method(strategy="switch", router=("fallback", knobs)), prompt, count)


@pytest.mark.parametrize("tau", [0.0, 0.5, 0.9])
def test_without_tolerance_the_text_is_the_large_models_greedy_text(tau: float) -> None:
    big, _ = toys.pair()
    taken = 0
    for prompt in PROMPTS:
        session = little(prompt, tau=tau, rollback=0.0, length=6)
        assert session.end.tokens == toys.greedy(big.decoder, prompt, 40) and check(session.sink).ok
        taken += sum(x.switch.block.kept < len(x.switch.block.tokens) for x in session.sink.steps)
        stop = session.end.tokens[17]
        ended = toys.decode(session.method, prompt, 40, stop_tokens=[stop]).end.tokens
        assert ended == session.end.tokens[: session.end.tokens.index(stop) + 1]
    assert taken > 5, "the test needs rollbacks"


def test_without_doubt_or_rollback_all_but_the_hand_overs_is_the_small_models() -> None:
    _, small = toys.pair()
    session = little(tau=0.0, rollback=1000.0, length=5, count=43)
    text = list(toys.PROMPT)
    for k, step in enumerate(session.sink.steps):
        assert step.origins == (["target"] if k == 0 else (["draft"] * 5 + ["target"]))
        for token, origin in zip(step.emitted, step.origins, strict=True):
            assert origin == "target" or [token] == toys.greedy(small.decoder, text, 1)
            text.append(token)
    assert len(session.sink.steps) == 8


def test_losses_choices_and_rollbacks_are_those_of_a_reading_from_scratch() -> None:
    big, small = toys.pair()
    rolled = doubts = 0
    for prompt in PROMPTS:
        session = little(prompt, tau=0.45, rollback=1.0, length=6)
        for step in session.sink.steps:
            block, before = step.switch.block, session.tokens[: step.n]
            with torch.inference_mode():
                law = big.decoder.forward(toys.Feed.causal([*before, *block.tokens], 0), None)[
                    0, step.n - 1 :
                ].log_softmax(-1)
                own = small.decoder.forward(toys.Feed.causal([*before, *block.tokens], 0), None)[
                    0, step.n - 1 :
                ].softmax(-1)
            assert block.choice == law.argmax(-1).tolist()[: len(block.tokens)]
            assert block.loss == pytest.approx(
                [-float(law[i, x]) for i, x in enumerate(block.tokens)], abs=1e-9
            )
            assert block.sure == pytest.approx(own.amax(-1).tolist()[: len(block.sure)], abs=1e-9)
            late = [i for i, x in enumerate(block.tokens) if block.loss[i] > 1.0 and x != block.choice[i]]
            assert block.kept == (late[0] if late else len(block.tokens))
            rolled += bool(late)
            doubts += len(block.sure) > len(block.tokens)
        target, draft = session.target, session.lanes["draft"]
        assert target.tokens == session.tokens[:-1] and toys.same_as_fresh(target)
        assert draft.tokens == session.tokens[: len(draft.tokens)] and (
            not draft.tokens or toys.same_as_fresh(draft)
        )
    assert rolled > 5 and doubts > 10, "the test needs both"


def test_check_finds_what_does_not_follow_from_the_losses() -> None:
    session = little(tau=0.45, rollback=1.0, length=6)
    step = next(x for x in session.sink.steps if x.switch.block.kept < len(x.switch.block.tokens))
    block = step.switch.block
    for of, name, wrong, word in (
        *((block, "kept", block.kept + 1, "by its losses"), (block, "bar", 2.0, "its bars are")),
        *((step.switch, "caught", 40, "rows"), (step.switch, "next", "small", "goes on")),
        (step.switch, "looks", step.switch.looks[:1], "looked at"),
        *(
            (block, "sure", [0.1] * len(block.sure), "sure enough"),
            (step, "origins", ["draft"] * len(step.emitted), "origins"),
        ),
    ):
        kept = getattr(of, name)
        setattr(of, name, wrong)
        assert any(word in problem for problem in check(session.sink).problems), name
        setattr(of, name, kept)
    assert check(session.sink).ok


def test_sampler_that_draws_and_a_cascade_are_refused_with_a_way_out() -> None:
    with pytest.raises(
        MethodError, match=r"^fallback hands over greedy choices .*: choose the sampler greedy alone, or "
    ):
        toys.decode(toys.method(strategy="switch", router="fallback", sampler="temperature"))
    with pytest.raises(
        MethodError, match=r"^cascade asks about whole answers, and the router fallback decides token by "
    ):
        toys.decode(toys.method(strategy="cascade", router="fallback"))
