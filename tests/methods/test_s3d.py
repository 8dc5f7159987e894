"""S3D: one pass without the middle layers guesses a whole draft; masks and skipped layers change no text and no cache."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import toys

from decodescope.engine import MethodError, Session, load, run
from decodescope.engine.methods.drafters.own_layers.s3d import S3D
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache

MASK = 12
PAD = 1  # `lab+lud` was tuned to guess from rows of padding
RECORD = '{"id": 507, "name": "Bertha", "city": "Toronto", "tags": ["silver"], "active": true}\nRepeat this.'


@torch.inference_mode()
def guesses_alone(whole: Decoder, text: list[int], count: int) -> torch.Tensor:
    """float64 [count, V]: what a model of the first and last layer alone guesses in the root and masks behind it.

    It reads them over the whole model's keys and values of these layers.
    """
    cache = KVCache(whole.spec, dtype=torch.float64)
    whole.forward(Feed.causal_chain(text[:-1], 0), cache)
    cache.commit(range(len(text) - 1))
    outer = [0, whole.spec.n_layers - 1]
    spec = replace(whole.spec, n_layers=2)
    small = Decoder(spec, whole.embed, [whole.layers[i] for i in outer], whole.norm, whole.head)
    kept = KVCache(spec, dtype=torch.float64)
    for store, i in zip(kept.layers, outer, strict=True):
        old = cache.layers[i]
        store.append(torch.stack([old.k[:, :, : old.n], old.v[:, :, : old.n]]), torch.arange(old.n)[None])
    kept.commit(range(len(text) - 1))
    feed = Feed.causal_chain([text[-1], *[MASK] * (count - 1)], len(text) - 1)
    return small.forward(feed, kept)[0]


def test_a_draft_is_what_the_outer_layers_guess_in_root_and_masks() -> None:
    method = toys.method(drafter=("s3d", {"mask_token": MASK, "max_draft_tokens": 3}))
    session = Session(toys.pair()[0], method, toys.PROMPT)
    session.start()
    propose, made = session.drafter.propose, []
    session.drafter.propose = lambda ctx: made.append(propose(ctx)) or made[-1]  # type: ignore[method-assign]
    for _ in range(8):
        text = list(session.tokens)
        step = session.step()
        due = guesses_alone(session.target.decoder, text, 3)
        assert made[-1].tokens == due.argmax(-1).tolist() and made[-1].notes["attn"] == [1]
        assert made[-1].notes["sure"] == pytest.approx(due.softmax(-1).amax(-1).tolist(), abs=1e-4)
        draft, verify = step.passes
        assert (draft.phase, draft.tokens, draft.attn, verify.phase) == ("draft", 3, [0, 2], "verify")
    assert toys.matches_fresh_reading(session.target), "no mask and no partial row is in the cache"


def test_with_every_layer_the_first_guess_is_always_right() -> None:
    knobs = {"mask_token": MASK, "max_draft_tokens": 3, "skip_ratio": 0.0}
    session = toys.decode(toys.method(drafter=("s3d", knobs)), count=20)
    assert all(step.accepted for step in session.sink.steps[:-1])
    assert session.end.tokens == toys.cached_greedy_text(toys.pair()[0], toys.PROMPT, 20)


def test_the_span_lies_in_the_middle_and_leaves_the_first_and_last_layer() -> None:
    spans = {
        (layers, ratio): [*S3D(skip_ratio=ratio).skipped_layers(toys.toy_spec(n_layers=layers))]
        for layers, ratio in ((8, 0.5), (9, 0.5), (8, 0.9), (3, 0.9), (2, 0.5), (1, 0.5), (8, 0.0))
    }
    assert spans == {
        (8, 0.5): [2, 3, 4, 5],
        (9, 0.5): [2, 3, 4, 5],
        (8, 0.9): [1, 2, 3, 4, 5, 6],
        (3, 0.9): [1],
        (2, 0.5): [],
        (1, 0.5): [],
        (8, 0.0): [],
    }


def test_on_a_model_that_learnt_masks_the_text_is_its_own() -> None:
    model = load("lab+lud", "float32", "cpu")
    knobs = {"mask_token": PAD, "max_draft_tokens": 3, "skip_ratio": 0.25}
    drafted = run(model, toys.method(drafter=("s3d", knobs)), RECORD, chat=True, max_new_tokens=24).trace.end
    plain = run(model, toys.Method(), RECORD, chat=True, max_new_tokens=24).trace.end
    assert drafted.tokens == plain.tokens and drafted.steps < plain.steps


def test_a_model_without_a_mask_is_refused_unless_one_token_is_drafted() -> None:
    with pytest.raises(
        MethodError, match=r"^s3d guesses from a mask token.*set drafter\.mask_token to the id"
    ):
        toys.method(drafter="s3d").check(toys.SPEC)
    toys.method(drafter=("s3d", {"max_draft_tokens": 1})).check(toys.SPEC)
