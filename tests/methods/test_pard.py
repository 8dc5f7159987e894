"""PARD: one pass of the draft model a draft, guesses that know the distance but not each other, and no mask in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import toys

from decodescope.engine import MethodError, Session
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.checkpoint.config import spec_from_config
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.forward.feed import Feed

CONFIG = dict(
    model_type="llama", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=64, vocab_size=13, max_position_embeddings=64,
)  # fmt: skip


@torch.inference_mode()
def guesses_alone(text: list[int], count: int) -> list[int]:
    """What the draft model guesses after a text and masks, read at once without a cache."""
    decoder = toys.method_models(toys.method(drafter="pard"))[1]["draft"].decoder
    masked = [*text, *[decoder.spec.mask_token] * (count - 1)]
    return decoder.forward(Feed.causal_chain(masked, 0), None)[0, -count:].argmax(-1).tolist()


def rounds(kind: str, count: int, sampler: str = "greedy") -> Iterator[tuple[list[int], Draft, Lane]]:
    """(text, draft, the draft model's lane) of each step of a run with room for a whole draft, after the step."""
    session = toys.open_session(
        toys.method(drafter=(kind, dict(max_draft_tokens=count)), sampler=sampler), count=40
    )
    session.start()
    propose, made = session.drafter.propose, list[Draft]()
    session.drafter.propose = lambda ctx: made.append(propose(ctx)) or made[-1]  # type: ignore[method-assign]
    while len(session.tokens) + count < len(toys.PROMPT) + 40:
        text = list(session.tokens)
        session.step()
        yield text, made[-1], session.lanes["draft"]


@pytest.mark.parametrize("count", [1, 4, 12])
def test_a_draft_of_any_length_takes_one_pass_and_leaves_no_mask(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed, forward, known = [], Lane.forward, len(toys.PROMPT) - 1

    def note(lane: Lane, feed: Feed, phase: str = "verify", **more: object) -> torch.Tensor:
        fed.extend([feed.length] if phase == "draft" else [])
        return forward(lane, feed, phase, **more)

    monkeypatch.setattr(Lane, "forward", note)
    lengths = set()
    for text, draft, lane in rounds("pard", count):
        assert fed == [len(text) - known + count - 1], "new tokens and masks, in one pass"
        assert lane.tokens == text and toys.matches_fresh_reading(lane), "the cache holds the text alone"
        assert draft.tokens == guesses_alone(text, count), "each is of its distance alone"
        lengths.add(len(text) - known)
        known = len(text)
        fed.clear()
    assert len(lengths) > 1, "the test needs drafts of which more and fewer tokens are kept"


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_one_token_is_that_of_a_plain_draft_model(sampler: str) -> None:
    both = zip(rounds("pard", 1, sampler), rounds("draft_model", 1, sampler), strict=True)
    for (text, draft, _), (other_text, other, _) in both:
        assert text == other_text and draft.tokens == other.tokens and draft.u == other.u
        assert draft.q is other.q is None or torch.allclose(draft.q, other.q, atol=1e-12)


def test_what_is_drawn_comes_from_the_distribution_of_its_distance() -> None:
    for text, draft, lane in rounds("pard", 4, "temperature"):
        masked = [*text, *[lane.decoder.spec.mask_token] * 3]
        logits = lane.decoder.forward(Feed.causal_chain(masked, 0), None)[0, -4:]
        due = toys.method(sampler="temperature").sampler.warp(logits, None).softmax(-1)
        assert draft.kind == "iid" and torch.allclose(draft.q, due, atol=1e-12)


def test_a_model_that_has_learnt_no_mask_is_refused() -> None:
    target, models = toys.method_models(toys.method(drafter="pard"))
    plain = replace(models["draft"], decoder=toys.target(torch.float64).decoder, spec=toys.SPEC)
    says = r"^pard drafts from mask tokens, and toy has learnt none: .*names pard_token, or choose the drafter draft_model\.$"
    with pytest.raises(MethodError, match=says):
        Session(target, toys.method(drafter="pard"), toys.PROMPT, models={"draft": plain})


def test_the_mask_token_is_read_from_the_config() -> None:
    assert spec_from_config(CONFIG | dict(pard_token=11), "d").mask_token == 11
    assert spec_from_config(CONFIG | dict(pard_token=-1), "d").mask_token is None, "AMD's word for none"
    assert spec_from_config(CONFIG | dict(mask_token_id=3), "d").mask_token is None, (
        "of a model that reads both ways"
    )
    for odd in (13, True, "11", -2):
        with pytest.raises(LoadError, match=r"gives pard_token as .*; it must be an id below 13"):
            spec_from_config(CONFIG | dict(pard_token=odd), "d")
