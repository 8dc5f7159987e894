"""Hydra: a node comes from its own ancestors, all nodes of a level at once."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import toys
from drafting import drafts, feature_of, path_of


def test_hydra_node_comes_from_its_own_ancestors() -> None:
    decoder = toys.pair()[0].decoder
    heads = decoder.heads["hydra"]
    for text, draft, _ in drafts("hydra", {"nodes": 20}):
        h = feature_of(text[:-1])[-1]
        for node, rank in enumerate(draft.notes["ranks"]):
            told = [text[-1], *path_of(draft, draft.parents[node])]
            with torch.inference_mode():
                logits = decoder.unembed(
                    heads(len(told) - 1, h, F.embedding(torch.tensor(told), decoder.embed))
                )
            assert draft.tokens[node] == int(logits.argsort(descending=True)[rank])
        assert draft.notes["passes"] == max(draft.depth) == 3


def test_hydra_without_its_embedding_columns_is_medusa() -> None:
    hydra, medusa = toys.heads("hydra", 16, rank=0), toys.heads("medusa", 16)
    with torch.no_grad():
        for k in range(3):
            hydra.up[k].weight[:, 16:] = 0
            medusa.blocks[k].weight.copy_(hydra.up[k].weight[:, :16])
            medusa.blocks[k].bias.copy_(hydra.up[k].bias)
        h, e = torch.randn(7, 16), torch.randn(7, 3, 16)
        for k in range(3):
            assert torch.allclose(hydra(k, h, e[:, : k + 1]), medusa(h)[k], atol=1e-6)
