"""Loss: what each paper minimises when it trains its heads."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.drafting.draft_vocabulary import DraftVocabularyHead
from decodescope.engine.model.heads.drafting.dspark import DSparkNet
from decodescope.engine.model.heads.drafting.shift import HeadShift

from .adversary import Adversary
from .guesses import draft_vocabulary_logits, head_guesses, head_logits
from .target import HeadTarget, ModelStates

FEATURES = ("eagle", "fspad", "parallelspec")  # they guess features
DECAY = {"p_eagle": 0.7}  # base of a level's weight, where it is not 0.8


def sample_places(count: int, share: float, device: torch.device) -> Tensor | slice:
    """A random `share` of `count` places, at least one; all in order for 1."""
    return slice(None) if share >= 1 else torch.randperm(count, device=device)[: max(1, round(share * count))]


def loss_of(
    target: HeadTarget, head: Head, r: ModelStates, share: float = 1.0, rival: Adversary | None = None
) -> Tensor:
    """The loss that each paper minimises, at a random `share` of the places of every level.

    Medusa and Clover: cross-entropy of the token, 0.8^k for head k; MLP speculator and ReDrafter the same, without these
    weights. Hydra (as Hydra++), Kangaroo and MTP: cross-entropy with the model's own distribution of that token.

    EAGLE, FSPAD and ParallelSpec: smooth L1 distance to the true feature (everywhere), plus 0.1 of the cross-entropy with the
    model's distribution (in FSPAD that of the feature that it speaks), 0.8^k for place k of a group. EAGLE-3: cross-entropy
    with the model's distribution over the draft vocabulary, 0.8^k for level k of the draft, where the model's likeliest token
    is in it. P-EAGLE: the same with 0.7^k, which in the original is the share of places that a level is trained at. DFlash and
    DSpark: the same as EAGLE-3 for place k; speculators weighs it exp(-k / 4). DSpark's confidence: cross-entropy with the
    chance of acceptance, the overlap of both distributions.

    Blockwise: cross-entropy of the token for one head, drawn again for each batch, which is on average the mean over heads.
    With a `rival` its loss is added, at the same places.
    """
    levels, total = list(enumerate(head_guesses(head, r, noise=0.1))), r.feature.new_zeros(())
    if head.kind == "blockwise":
        levels = [levels[int(torch.randint(len(levels), (), device="cpu"))]]
    for k, (s, x) in levels:
        at = loss_places(r, s, share)
        if isinstance(at, Tensor) and not len(at):
            continue  # texts so short that no guess of this level counts
        mine = x.flatten(0, 1)[at]  # [n, d]
        feature = s.align_target(r.feature).flatten(0, 1)[at]
        if rival is not None:
            with torch.no_grad():
                p = target.unembed(feature)
            total = total + rival.adversarial_loss(p, head_logits(target, head, mine))
        if head.kind in ("medusa", "blockwise", "mlp_speculator", "redrafter", "clover"):
            weight = 0.8**k if head.kind in ("medusa", "clover") else 1.0
            tokens = s.align(r.ids, s.says).flatten()[at]
            total = total + weight * F.cross_entropy(target.unembed(mine).float(), tokens)
            continue
        if isinstance(head, DraftVocabularyHead):
            losses = F.cross_entropy(
                draft_vocabulary_logits(target, head, mine).float(),
                target.unembed_ids(feature, head.ids).float().softmax(1),
                reduction="none",
            )
            best = (
                target.unembed(feature).argmax(1) if r.best is None else s.align_target(r.best).flatten()[at]
            )
            total = total + DECAY.get(head.kind, 0.8) ** k * (losses * head.mask[best]).mean()
            if isinstance(head, DSparkNet) and head.confidence is not None:
                before = s.align(r.ids, s.says - 1).flatten()[at]
                total = total + 0.8**k * _confidence_loss(target, head, mine, before, feature)
            continue
        law = target.unembed(feature).float()  # [n, V]
        soft = F.cross_entropy(head_logits(target, head, mine).float(), law.softmax(1))
        total = total + (0.8**k * (0.1 * soft + _distance(r, s, x)) if head.kind in FEATURES else soft)
    return total


def loss_places(r: ModelStates, s: HeadShift, share: float) -> Tensor | slice:
    """Which of the B * rows places of a level its loss is taken at: a random `share` of those whose token counts."""
    if r.counted is None:
        return sample_places(r.ids.shape[0] * s.rows(r.ids.shape[1]), share, r.ids.device)
    counted = s.align(r.counted, s.says).flatten().nonzero()[:, 0]
    return counted[sample_places(len(counted), share, counted.device)] if len(counted) else counted


def _distance(r: ModelStates, s: HeadShift, x: Tensor) -> Tensor:
    """Smooth L1 distance of guessed features x [B, rows, d] to the true ones, at all places whose token counts."""
    true = s.align_target(r.feature)
    if r.counted is None:
        return F.smooth_l1_loss(x.float(), true)
    counted = s.align(r.counted, s.says)
    return F.smooth_l1_loss(x[counted].float(), true[counted])


def _confidence_loss(
    target: HeadTarget, head: DSparkNet, outputs: Tensor, before: Tensor, feature: Tensor
) -> Tensor:
    """Cross-entropy of DSpark's confidence with the chance that a token drawn from its distribution is accepted.

    outputs: [n, d + rank] of places behind tokens `before` (int64 [n]);  feature: [n, d] of the target there
    """
    with torch.no_grad():
        q = head_logits(target, head, outputs).float().softmax(1)
        chance = torch.minimum(q, target.unembed(feature).float().softmax(1)).sum(1)
    said = head.acceptance(outputs[:, : head.shape["d"]], before)
    assert said is not None
    return F.binary_cross_entropy_with_logits(said.float(), chance)
