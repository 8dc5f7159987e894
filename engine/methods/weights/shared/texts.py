"""Texts: the calibration text of a transform, and a model's distance from it or from another model."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.weights import CalibrationData
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import NOTHING, Skip

LENGTH = 256  # tokens of a text


def calibration_texts(calibration: CalibrationData, tokens: int) -> Tensor:
    """int64 [N, T]: the first `tokens` of the text in pieces. Raises ParamError if there are none."""
    length = max(2, min(LENGTH, tokens))
    pieces = (
        calibration.tokens[:tokens].unfold(0, length, length) if len(calibration.tokens) >= length else None
    )
    if pieces is None:
        raise ParamError(
            f"The calibration text has {len(calibration.tokens)} tokens, and {length} are to be read."
        )
    return pieces


def text_logits(model: Decoder, rows: Tensor, skip: Skip = NOTHING) -> Tensor:
    """The logits float [N, T, V] of texts int64 [N, T] on any device, read at once without a cache."""
    rows, (n, length) = rows.to(model.device), rows.shape
    feed = Feed(rows, torch.arange(length, device=rows.device).expand(n, length), highest=length - 1)
    return model.forward(feed, None, skip=skip)


def text_loss(model: Decoder, rows: Tensor) -> Tensor:
    """Mean negative logarithm, in nats, of each token's probability after those before it; texts int64 [N, T]."""
    return F.cross_entropy(
        text_logits(model, rows)[:, :-1].flatten(0, 1), rows[:, 1:].flatten().to(model.device)
    )


def kl_divergence(dense: Tensor, other: Tensor) -> float:
    """KL(dense | other) in nats, the mean over all places, from logits [N, T, V]."""
    return float(kl_loss(dense.double(), other.double()))


def kl_loss(dense: Tensor, other: Tensor) -> Tensor:
    """`kl_divergence` in the type of the logits, with a gradient."""
    log_p, log_q = dense.log_softmax(-1), other.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1).mean()
