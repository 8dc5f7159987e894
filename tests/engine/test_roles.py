"""Models by role: any part may ask for one, and session, trace and fork carry it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import second
import torch
import toys

from decodescope.engine import Method, MethodError, Session, run
from decodescope.engine.core.component import KINDS, build, registry, roles
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.roles import BOTH, DRAFTS, TARGET, role_option
from decodescope.engine.methods.samplers.chain import Chain
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.compatibility import pair_models
from decodescope.engine.session.load import Model
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.trace import Trace, check


@pytest.fixture
def method(monkeypatch: pytest.MonkeyPatch) -> Method:
    """The strategy that asks for a model in the role "large"."""
    second.plant(monkeypatch)
    return Method.from_names({"strategy": second.NAME})


def summed(big: Model, large: Model, count: int) -> list[int]:
    """The text of the sum of both models' logits; each token reads the whole text from scratch."""
    text = list(toys.PROMPT)
    with torch.inference_mode():
        for _ in range(count):
            both = [x.decoder.forward(Feed.causal_chain(text, 0), None)[0, -1] for x in (big, large)]
            text.append(int((0.5 * both[0] + 0.5 * both[1]).argmax()))
    return text[len(toys.PROMPT) :]


def test_a_strategy_works_with_the_model_that_it_asks_for(method: Method) -> None:
    big, _ = toys.pair()
    large = toys.model(toys.noisy_decoder(big.decoder, 0.5))
    made = run(big, method, toys.PROMPT, models={"large": large, "draft": big}, max_new_tokens=24)
    assert made.tokens == summed(big, large, 24) != run(big, None, toys.PROMPT, max_new_tokens=24).tokens
    header = made.trace.header
    assert list(header.lanes) == ["large"] and header.lanes["large"]["fingerprint"] == large.fingerprint
    assert {x.lane for step in made.trace.steps for x in step.passes} == {"target", "large"}
    assert {x.lane for step in made.trace.steps for x in step.cache} == {"target", "large"}
    assert check(made.trace).ok


def test_a_missing_model_is_refused_with_its_role_and_the_way_out(method: Method) -> None:
    with pytest.raises(MethodError) as no:
        Session(toys.pair()[0], method, toys.PROMPT, models={"draft": toys.pair()[1]})
    assert str(no.value) == (
        "second_opinion needs a model in the role 'large': give --role large=NAME (Python: models={'large': model}), e.g. the "
        "shipped lab."
    )


def test_a_fork_carries_the_model_into_a_run_that_had_none(method: Method) -> None:
    big, large = toys.pair()
    base = toys.decode(toys.method(), count=12)
    given = {**toys.helper_models(), "large": large}
    made = Fork(big, base.header, list(base.sink.steps), 4, models=given, method=method)
    made.sink = Trace()
    while made.end is None:
        made.step()
    assert (
        made.tokens[: len(toys.PROMPT) + 4] == base.tokens[: len(toys.PROMPT) + 4]
        and made.tokens != base.tokens
    )
    assert list(made.header.lanes) == ["large"] and check(made.sink).ok
    again = Fork(big, made.header, list(made.sink.steps), 8, models=given)
    again.sink = Trace()
    while again.end is None:
        again.step()
    assert again.tokens == made.tokens, "a fork of the fork goes on as it did"
    with pytest.raises(MethodError, match="needs a model in the role 'large'"):
        Fork(big, base.header, list(base.sink.steps), 4, models=toys.helper_models(), method=method)


def test_every_part_in_use_is_asked_and_no_role_comes_twice(method: Method) -> None:
    class Asks:
        lanes, lane_needs = ("large", "draft"), Needs(hidden=frozenset({2}))

    asking = toys.method(drafter="draft_model", schedule="specdec_pp")
    assert asking.lanes == ("draft",), "drafter and schedule ask for the same one"
    assert (
        asking.lane_needs("draft") == Needs(hidden=frozenset({"final"}))
        and asking.lane_needs("large") == Needs()
    )
    asking = replace(asking, sampler=Chain(stages=[Asks(), Asks()]))  # type: ignore[list-item] # what a constraint may ask
    assert asking.lanes == ("draft", "large")
    assert asking.lane_needs("draft") == Needs(hidden=frozenset({2, "final"}))
    assert replace(method, drafter=build("drafter", "draft_model")).lanes == ("large",), (
        "the strategy uses no drafter"
    )


def test_models_on_several_devices_are_refused(method: Method) -> None:
    big, large = toys.target(), toys.draft()
    large.decoder.embed = large.decoder.embed.to("meta")
    assert large.decoder.device.type == "meta"
    with pytest.raises(
        MethodError, match=r"cannot be the large model of toy: it lies on meta, and toy on cpu\. Load both"
    ):
        pair_models(method, big, {"large": large})


def test_models_of_several_types_go_together() -> None:
    big, small = toys.target(torch.float64, toys.LIVELY), toys.draft(torch.float32, 0.08, toys.LIVELY)
    plain = run(big, None, toys.PROMPT, max_new_tokens=24).tokens
    drafted = run(big, toys.method(drafter="draft_model"), toys.PROMPT, draft=small, max_new_tokens=24)
    assert drafted.tokens == plain and drafted.summary.accepted > 5


def test_roles_are_words_and_hold_all_that_a_part_may_ask_for() -> None:
    assert {*roles()} == {*DRAFTS, *BOTH, "amateur", "short"} and len(roles()) == 6
    for kind in KINDS:
        for cls in registry(kind).values():
            ends = [{p.name: end} for p in cls.params() if p.type is int for end in (p.low, p.high)]
            asked = {role for knobs in ({}, *ends) for role in cls(**knobs).lanes}
            assert (
                asked <= {*cls.roles()}
                and TARGET not in cls.roles()
                and all(x.isidentifier() for x in cls.roles())
            )
    assert role_option("draft2") == ("--draft2", "NAME") and role_option("large", "lab") == (
        "--role",
        "large=lab",
    )
