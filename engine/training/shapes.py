"""Shapes: the usual sizes of heads, and fresh heads for a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import torch

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.drafting.draft_vocabulary import DraftVocabularyHead
from decodescope.engine.model.heads.drafting.kangaroo import KangarooAdapter
from decodescope.engine.model.heads.files import HEADS

from .answers import TrainingError
from .target import HeadTarget

# sizes, but for the width of the model's states: all that are shipped take less than 7.8 MiB in bfloat16 at a width of 384
SHAPES = {
    "medusa": dict(heads=3),
    "hydra": dict(heads=3, rank=192),
    "eagle": dict(n_heads=4, n_kv_heads=2, head_dim=64, d_ff=128),
    "eagle3": dict(
        vocab=4096, kept=2048, n_heads=2, n_kv_heads=1, head_dim=64, d_ff=64, rank=128
    ),  # vocab: the model's
    "kangaroo": dict(layer=2, n_heads=4, n_kv_heads=2, head_dim=64),
    "blockwise": dict(heads=3, hidden=384),
    "mlp_speculator": dict(heads=3, inner=256),
    "redrafter": dict(heads=3, inner=144, blocks=2),
    "fspad": dict(n_heads=4, n_kv_heads=2, head_dim=64, d_ff=128, rank=64),
    "parallelspec": dict(masks=3, n_heads=4, n_kv_heads=2, head_dim=64, d_ff=128),
    "dflash": dict(
        vocab=4096, kept=2048, n_heads=4, n_kv_heads=2, head_dim=64, d_ff=128, block=4, layers=2, own_mask=1
    ),
    "dspark": dict(
        vocab=4096,
        kept=2048,
        n_heads=4,
        n_kv_heads=2,
        head_dim=64,
        d_ff=128,
        block=3,
        layers=2,
        anchor=1,
        own_mask=1,
        rank=32,
        confidence=2,
    ),
    "p_eagle": dict(
        vocab=4096, kept=2048, n_heads=2, n_kv_heads=1, head_dim=64, d_ff=64, rank=128
    ),  # vocab: the model's
    "mtp": dict(n_heads=4, n_kv_heads=2, head_dim=64, d_ff=128),
    "clover": dict(heads=3, gates=4, gate_dim=32, n_heads=2, n_kv_heads=1, head_dim=64, d_ff=128, rank=128),
}


def usual_shape(kind: str, spec: ModelSpec, chosen: Mapping[str, int]) -> dict[str, int]:
    """The sizes of a head of this kind for a model, with those that were `chosen`. Raises TrainingError for a size that the
    kind does not have, or that the model does not bear."""
    shape = dict(SHAPES[kind])
    if _has_vocabulary(kind):  # one more layer of the model, with a narrower feed-forward block
        shape |= dict(n_heads=spec.n_heads, n_kv_heads=spec.n_kv_heads, head_dim=spec.head_dim)
        shape |= dict(d_ff=max(64, spec.d_model * 4 // 3 // 64 * 64), kept=min(8192, max(1, spec.vocab // 2)))
    if "layer" in shape:
        shape["layer"] = min(shape["layer"], spec.n_layers - 1)
    for name, value in chosen.items():
        if name not in shape or name == "vocab":
            sizes = ", ".join(x for x in shape if x != "vocab")
            raise TrainingError(f"{kind} heads have no {name.replace('_', ' ')}: their sizes are {sizes}.")
        shape[name] = value
    if shape.get("kept", 1) > spec.vocab:
        raise TrainingError(
            f"The draft vocabulary cannot keep {shape['kept']:,} tokens: {spec.name} has {spec.vocab:,}, choose fewer."
        )
    if shape.get("layer", 1) < 1:
        raise TrainingError(
            f"{spec.name} has one layer, and {kind} heads leave behind an earlier one: choose another kind."
        )
    return shape


def new_head(kind: str, target: HeadTarget, **shape: int) -> Head:
    """Fresh heads for the model. The last norms of Kangaroo and of heads with a draft vocabulary begin as the model's own."""
    shape = {**SHAPES[kind], **shape}
    if _has_vocabulary(kind):
        shape |= dict(vocab=target.vocab, kept=min(shape["kept"], target.vocab))
    head = HEADS[kind](d=target.width, **shape)
    if kind == "kangaroo" or _has_vocabulary(kind):
        with torch.no_grad():
            cast(KangarooAdapter, head).last.copy_(target.final_norm)
    return head


def _has_vocabulary(kind: str) -> bool:
    """Whether heads of this kind have a draft vocabulary."""
    return issubclass(HEADS[kind], DraftVocabularyHead)


def frequent_ids(text: np.ndarray, count: int, vocabulary: int) -> list[int]:
    """The `count` ids that come most often in rows of text (int [N, T]), ascending; of equals the lower."""
    counts = np.bincount(text.ravel(), minlength=vocabulary)
    return sorted(np.argsort(-counts, kind="stable")[:count].tolist())
