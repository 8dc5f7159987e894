"""Guesses: what every head of a draft says at all places of a text at once, as its training sees them."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.drafting.clover import CloverHeads
from decodescope.engine.model.heads.drafting.dflash import DFlashNet
from decodescope.engine.model.heads.drafting.draft_vocabulary import DraftVocabularyHead, scatter_logits
from decodescope.engine.model.heads.drafting.dspark import DSparkNet
from decodescope.engine.model.heads.drafting.eagle3 import Eagle3Layer
from decodescope.engine.model.heads.drafting.medusa import MedusaHeads
from decodescope.engine.model.heads.drafting.p_eagle import PEagleLayer
from decodescope.engine.model.heads.drafting.parallelspec import ParallelSpecLayer
from decodescope.engine.model.heads.drafting.shift import HeadShift, head_shifts

from .target import HeadTarget, ModelStates

# levels of a draft in training, where no size says how many: EAGLE-3 unrolls seven in the original, P-EAGLE guesses up to ten
LEVELS = {"eagle3": 3, "p_eagle": 5}


def head_logits(target: HeadTarget, head: Head, x: Tensor) -> Tensor:
    """Logits [..., V] of the features [..., d] that a head made."""
    if isinstance(head, DraftVocabularyHead):
        return scatter_logits(draft_vocabulary_logits(target, head, x), head.ids, target.vocab)
    return target.unembed(head.unembedding_input(x))


def draft_vocabulary_logits(target: HeadTarget, head: DraftVocabularyHead, x: Tensor) -> Tensor:
    """The logits [..., kept] over its draft vocabulary, of its outputs [..., d]."""
    return head.choices(x, target.unembedding_rows(head.ids) if head.words is None else head.own_vocabulary)


def count_levels(head: Head) -> int:
    """How many levels of a draft it guesses in training."""
    if isinstance(head, DFlashNet):
        return head.guesses
    return LEVELS.get(head.kind) or head.shape.get("heads", head.shape.get("masks", 0) + 1)


def head_guesses(head: Head, r: ModelStates, noise: float = 0.0) -> list[tuple[HeadShift, Tensor]]:
    """Each head's shift and the features [B, rows, d] that it makes; every row gets the text before it.

    noise: half the width of the uniform noise on EAGLE's input, in units of the features' root mean square
    """
    table = head_shifts(head.kind, count_levels(head))
    rows = [s.rows(r.ids.shape[1]) for s in table]
    if isinstance(head, PEagleLayer):
        pairs = head.enter(table[0].align(r.fused, 0)), table[0].align(r.embedded, 1)
        return list(zip(table, head.unroll_groups(*pairs, rows), strict=True))
    if isinstance(head, Eagle3Layer):
        tokens = [s.align(r.embedded, s.reads[0]) for s in table]
        return list(zip(table, head.unroll(head.enter(table[0].align(r.fused, 0)), tokens), strict=True))
    if isinstance(head, DFlashNet):
        outputs = _block_guesses(head, r, table)
        return [(s, outputs[:, : s.rows(r.ids.shape[1]), k]) for k, s in enumerate(table)]
    if isinstance(head, CloverHeads):
        tokens = [s.align(r.embedded, s.reads[-1]) for s in table]
        return list(zip(table, head.unroll(table[0].align(r.feature, 0), tokens), strict=True))
    if head.kind == "medusa":
        return [(s, cast(MedusaHeads, head).head(k, s.align(r.feature, 0))) for k, s in enumerate(table)]
    if head.kind == "blockwise":
        return [(s, s.align(x, 0)) for s, x in zip(table, head(r.feature), strict=True)]
    if head.kind in ("mlp_speculator", "redrafter"):
        tokens = [torch.stack([s.align(r.embedded, x) for x in s.reads], -2) for s in table]
        return [(s, head(s.align(r.feature, 0), tokens[k])[k]) for k, s in enumerate(table)]
    if head.kind == "hydra":
        tokens = [
            torch.stack([s.align(r.embedded, x) for x in s.reads], -2) for s in table
        ]  # [B, rows, k + 1, d]
        return [(s, head(k, s.align(r.feature, 0), tokens[k])) for k, s in enumerate(table)]
    s = table[0]
    if head.kind == "kangaroo":
        return [(s, head(s.align(r.early, 0)))]
    f = s.align(r.feature, 0)
    if head.kind == "mtp":
        assert not head.shape["before_norm"], "training hands over final features"
        return [(s, head(f, s.align(r.embedded, s.reads[0])))]
    f = f + (torch.rand_like(f) * 2 - 1) * noise * f.square().mean().sqrt() if noise else f
    if isinstance(head, ParallelSpecLayer):
        return list(zip(table, head.unroll_groups(f, s.align(r.embedded, s.reads[0]), rows), strict=True))
    return [(s, head(f, s.align(r.embedded, s.reads[0])))]


def _block_guesses(head: DFlashNet, r: ModelStates, table: list[HeadShift]) -> Tensor:
    """float [B, rows, guesses, d] of blocks that begin at every place of whole texts; of DSpark with what its bias is made of.

    A place past the end of its text has the last token in front of it, and is read by nobody.
    """
    assert head.mask_embedding is not None, "a head that is trained has a mask of its own"
    s, T = table[0], r.ids.shape[1]
    anchors = torch.arange(s.reads[0], s.reads[0] + s.rows(T), device=r.ids.device)
    roots = s.align(r.embedded, s.reads[0])
    outputs = head(head.enter(s.align(r.fused, 0)), head.fill_block(roots, head.mask_embedding), anchors)
    if isinstance(head, DSparkNet):
        first = head.shape["block"] - head.guesses
        places = torch.arange(head.shape["block"], device=r.ids.device).sub(first).clamp(min=0)
        outputs = head.with_bias(outputs, r.ids[:, (anchors[:, None] + places).clamp(max=T - 1)])
    return head.guessing(outputs)
