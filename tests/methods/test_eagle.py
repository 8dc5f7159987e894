"""EAGLE: the tree equals what unrolling each path alone gives, and the layer's cache holds only true features."""

from __future__ import annotations

import pytest
import torch
import toys
from drafting import drafts, path_of, read_alone

from decodescope.engine import Session


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_eagle_tree_equals_unrolling_every_path_alone(sampler: str) -> None:
    for text, draft, _ in drafts("eagle", {"nodes": 12, "depth": 4}, 5, sampler):
        assert max(draft.depth) > 2
        for node, parent in enumerate(draft.parents):
            logits, _ = read_alone("eagle", text, path_of(draft, parent))
            if sampler == "greedy":
                assert draft.tokens[node] == int(logits.argsort(descending=True)[draft.notes["ranks"][node]])
                continue
            q = logits.softmax(-1)
            for sibling in draft.children(parent):
                if sibling == node:
                    break
                q[draft.tokens[sibling]] = 0
            assert torch.allclose(draft.law(node), q / q.sum(), atol=1e-9)


def test_eagle_cache_holds_true_features_of_what_was_accepted_and_nothing_else() -> None:
    rounds = list(drafts("eagle", {"nodes": 12}, 10))
    text, _, drafter = rounds[-1]
    with torch.inference_mode():
        drafter._walk.read_root()
    store = drafter._walk.store
    _, due = read_alone("eagle", [*text, *_emitted(text)], [])
    assert store.m == 0 and store.n == due.n > len(toys.PROMPT) + 9
    assert torch.allclose(store.k, due.k, atol=1e-9) and torch.allclose(store.v, due.v, atol=1e-9)


def _emitted(text: list[int]) -> list[int]:
    """The tokens that the last step added: the greedy continuation, up to the drafter's new root."""
    decoder = toys.pair()[0].decoder
    for _, draft, _ in drafts("eagle", {"nodes": 12}, 1, prompt=text):
        greedy, accepted, parent = toys.greedy_text(decoder, text, 8), 0, -1
        while True:
            child = next((x for x in draft.children(parent) if draft.tokens[x] == greedy[accepted]), None)
            if child is None:
                return greedy[: accepted + 1]
            parent, accepted = child, accepted + 1
    raise AssertionError


def test_eagle_reads_the_whole_prompt_where_it_is_read_in_parts() -> None:
    """A prompt longer than one pass: the lane delivers the features of all its parts."""
    long = toys.prompts(1, 700)[0]
    target = toys.model(toys.decoder(toys.toy_spec(max_positions=1024), toys.LIVELY, torch.float64))
    session = Session(target, toys.method(drafter=("eagle", {"nodes": 6})), long, max_new_tokens=6)
    for _ in session.stream():
        pass
    assert session.tokens[700:] == toys.greedy_text(target.decoder, long, 6)
    fresh = Session(target, toys.method(drafter=("eagle", {"nodes": 6})), long, max_new_tokens=6)
    fresh.start()
    states, tokens = fresh.drafter._walk.due
    assert states.shape == (699, 32) and tokens == long[1:]
