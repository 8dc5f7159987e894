"""Medusa: a node holds its level's guess, which comes from the state of the token before the root."""

from __future__ import annotations

import torch
import toys
from drafting import drafts, feature_of

from decodescope.engine.model.heads.drafting.medusa import MedusaHeads


def test_medusa_node_holds_its_levels_guess_whatever_its_parent_is() -> None:
    decoder = toys.pair()[0].decoder
    heads = decoder.heads["medusa"]
    for text, draft, _ in drafts("medusa", {"nodes": 20}):
        with (
            torch.inference_mode()
        ):  # the state of the token before the root: the target has not read the root yet
            logits = decoder.unembed(heads(feature_of(text[:-1])[-1]))
        best = logits.argsort(-1, descending=True).tolist()
        assert max(draft.depth) == 3 and len(draft) == 20
        for node, rank in enumerate(draft.notes["ranks"]):
            assert draft.tokens[node] == best[draft.depth[node] - 1][rank]


def test_untrained_medusa_head_says_what_the_target_says_of_the_next_token() -> None:
    h = torch.randn(5, 32)
    assert torch.equal(MedusaHeads(32, 3)(h), h.expand(3, 5, 32))


def test_medusa_drafts_nothing_before_the_target_has_read_anything() -> None:
    made = list(drafts("medusa", {"nodes": 8}, 2, prompt=[4]))
    assert [len(draft) for _, draft, _ in made] == [0, 8]
