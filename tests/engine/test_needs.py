"""What a strategy declares: further models, how the prompt is read, and which sides of the text a row may see."""

from __future__ import annotations

from typing import ClassVar, Literal

import pytest
import toys

from decodescope.engine import Method, MethodError
from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check


@component
class Parrot(Strategy):
    """Writes the draft model's tokens; only the draft model has read the prompt."""

    title = "Parrot"
    lossless = False
    lanes = ("draft",)

    def prefill(self, s: State) -> None:
        s.lanes["draft"].read(s.tokens[:-1], "prefill", s.chunk_callback("draft"))

    def step(self, s: State) -> Move:
        fresh, at = s.tokens[len(s.target.tokens) :], len(s.target.tokens)
        s.target.forward(Feed.causal_chain(fresh, at))
        token = int(s.lanes["draft"].read(s.tokens).argmax())
        s.target.commit(list(range(len(fresh))))
        count, end = s.cut([token])
        s.tokens.append(token)
        return Move([token], ["target"] * count, end)


def test_a_strategy_has_the_further_models_that_it_names() -> None:
    method = Method(Parrot())
    assert method.used_parts.keys() == {"strategy"} and method.lanes == method.decoding_lanes == ("draft",)
    with pytest.raises(MethodError, match=r"^test_needs needs a model in the role 'draft': give --draft"):
        method.check(toys.SPEC)
    session = toys.decode(method, toys.PROMPT, 12)
    small = toys.pair()[1]
    assert session.end.tokens == toys.greedy_text(small.decoder, toys.PROMPT, 12)
    assert session.header.lanes.keys() == session.lanes.keys() == {"draft"}
    assert session.header.parts["strategy"]["uses"] == [] and check(session.sink).ok


def test_a_strategy_reads_the_prompt_as_it_likes() -> None:
    """Here the target reads none of the prompt, so its first pass begins at the first place."""
    told = toys.decode(Method(Parrot()), toys.PROMPT, 1).sink
    assert told.prefill.n == 0 and [(x.lane, x.phase) for x in told.prefill.passes] == [("draft", "prefill")]
    usual = toys.decode(toys.method(drafter="draft_model"), toys.PROMPT, 1).sink
    assert usual.prefill.n == len(toys.PROMPT) - 1
    assert [(x.lane, x.phase) for x in usual.prefill.passes] == [("target", "prefill"), ("draft", "prefill")]


class Filler(Parrot):
    """A strategy for a model without a causal mask."""

    title = "Filler"
    lanes = ()
    sides: ClassVar[Literal["left", "both"]] = "both"


def test_strategy_and_model_read_the_same_sides() -> None:
    left, both = toys.SPEC, toys.toy_spec(causal=False, name="lab-mdm")
    for strategy in ("draft_verify", "jacobi", "beam", "pearl", "samples"):
        toys.method(strategy=strategy).check(left)
        with pytest.raises(
            MethodError, match=rf"^{strategy} writes from left to right, and lab-mdm reads its text in both "
        ):
            toys.method(strategy=strategy).check(both)
    Method(Filler()).check(both)
    with pytest.raises(
        MethodError, match=r"^test_needs fills places with text on both sides, and toy reads from "
    ):
        Method(Filler()).check(left)


def test_a_further_model_is_causal() -> None:
    both = toys.toy_spec(causal=False, name="lab-mdm")
    with pytest.raises(
        MethodError, match=r"^lab-mdm reads its text in both directions, so it cannot be the draft model"
    ):
        toys.method(drafter="draft_model").check_models({"draft": both})
    toys.method(drafter="draft_model").check_models({"draft": toys.SPEC})
