"""Loss: what each paper minimises when it trains its heads."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.drafting.eagle3 import Eagle3Layer

from .adversary import Adversary
from .guesses import draft_vocabulary_logits, head_guesses, head_logits
from .target import HeadTarget, ModelStates

FEATURES = ("eagle", "fspad", "parallelspec")  # they guess features


def sample_places(count: int, share: float, device: torch.device) -> Tensor | slice:
    """A random `share` of `count` places, at least one; all in order for 1."""
    return slice(None) if share >= 1 else torch.randperm(count, device=device)[: max(1, round(share * count))]


def loss_of(
    target: HeadTarget, head: Head, r: ModelStates, share: float = 1.0, rival: Adversary | None = None
) -> Tensor:
    """The loss that each paper minimises, at a random `share` of the places of every level.

    Medusa and Clover: cross-entropy of the token, 0.8^k for head k; MLP speculator and ReDrafter the same, without these
    weights. Hydra (as Hydra++) and Kangaroo: cross-entropy with the model's own distribution of that token.

    EAGLE, FSPAD and ParallelSpec: smooth L1 distance to the true feature (everywhere), plus 0.1 of the cross-entropy with the
    model's distribution (in FSPAD that of the feature that it speaks), 0.8^k for place k of a group. EAGLE-3: cross-entropy
    with the model's distribution over the draft vocabulary, 0.8^k for level k of the draft, where the model's likeliest token
    is in it.

    Blockwise: cross-entropy of the token for one head, drawn again for each batch, which is on average the mean over heads.
    With a `rival` its loss is added, at the same places.
    """
    levels, total = list(enumerate(head_guesses(head, r, noise=0.1))), r.feature.new_zeros(())
    if head.kind == "blockwise":
        levels = [levels[int(torch.randint(len(levels), (), device="cpu"))]]
    for k, (s, x) in levels:
        at = sample_places(x.shape[0] * x.shape[1], share, x.device)
        mine = x.flatten(0, 1)[at]  # [n, d]
        if rival is not None:
            with torch.no_grad():
                p = target.unembed(s.align_target(r.feature).flatten(0, 1)[at])
            total = total + rival.adversarial_loss(p, head_logits(target, head, mine))
        if head.kind in ("medusa", "blockwise", "mlp_speculator", "redrafter", "clover"):
            weight = 0.8**k if head.kind in ("medusa", "clover") else 1.0
            total = total + weight * F.cross_entropy(
                target.unembed(mine).float(), s.align(r.ids, s.says).flatten()[at]
            )
            continue
        law = target.unembed(s.align_target(r.feature).flatten(0, 1)[at]).float()  # [n, V]
        if isinstance(head, Eagle3Layer):
            losses = F.cross_entropy(
                draft_vocabulary_logits(target, head, mine).float(),
                law[:, head.ids].softmax(1),
                reduction="none",
            )
            total = total + 0.8**k * (losses * head.mask[law.argmax(1)]).mean()
            continue
        soft = F.cross_entropy(head_logits(target, head, mine).float(), law.softmax(1))
        near = F.smooth_l1_loss(x.float(), s.align_target(r.feature)) if head.kind in FEATURES else None
        total = total + (soft if near is None else 0.8**k * (0.1 * soft + near))
    return total
