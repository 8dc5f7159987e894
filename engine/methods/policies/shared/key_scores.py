"""Key scores: what an entry is worth by its own key or by its place. No attention is needed."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.model.attention.attention import upcast_half
from decodescope.engine.model.stores.cache import LayerStore

SCORERS = ("place", "norm", "difference")
SCORER_HELP = (
    "what an entry is worth: its place, newer ones more (StreamingLLM); the norm of its key, shorter ones more; or how much "
    "its key differs from the mean of all (KeyDiff)"
)


def score_entries(store: LayerStore, scorer: str) -> Tensor:
    """The values of the committed entries of a layer by one of `SCORERS`: float [B, H_kv, n], by slot."""
    if scorer == "difference":
        return difference_scores(store)
    if scorer == "norm":
        norms: Tensor = store.k.float().norm(dim=-1)
        return -norms
    return store.positions().expand(store.batch, len(store.lengths), -1).double()


def difference_scores(store: LayerStore) -> Tensor:
    """Minus the cosine between each key and its head's anchor, the mean of all keys at length 1: float [B, H_kv, n], by slot.

    The keys are read three times and never copied (half types are, in float32).
    """
    keys = upcast_half(store.k)
    scale: Tensor = 1 / keys.norm(dim=-1).clamp(min=1e-12)  # [B, H_kv, n]
    among = scale if (present := store.present_mask) is None else scale * present
    # the anchor's own length changes no order, and neither does a sum instead of the mean
    anchor = F.normalize((among[:, :, None] @ keys)[:, :, 0], dim=-1)  # [B, H_kv, D]
    return -(keys @ anchor[..., None])[..., 0] * scale
