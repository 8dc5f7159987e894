"""RMS norm, in as few operations as the device needs."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.kernels.choice import kernels_for

FEW = 16  # rows up to which two operations over twice the memory beat ten over once


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., d] / sqrt(mean(x^2) + eps) * weight, which is [d], or [2, d] as `double_weight` makes it.

    On the CPU `F.rms_norm` is some ten small operations. A layer norm is one, and over x and -x it is the same number: those
    have mean 0, and their variance is the mean square of x. With a doubled weight and few rows this way is taken; in a pass of
    one row it saves 0.3 of 2.9 ms (two cores, 8 layers, bfloat16).
    """
    d = x.shape[-1]
    if (kernels := kernels_for(x, weight)) is not None and x.dtype == weight.dtype:
        return kernels.rms_norm(x, single_weight(weight, d), eps)
    if weight.dim() == 1:
        return F.rms_norm(x, (d,), weight, eps)
    if x.numel() > FEW * d:
        return F.rms_norm(x, (d,), weight[0], eps)
    return torch.layer_norm(x.unsqueeze(-2) * _signs(x.dtype, x.device), (2, d), weight, None, eps).select(
        -2, 0
    )


@cache
def _signs(dtype: torch.dtype, device: torch.device) -> Tensor:
    """float [2, 1]: what x is multiplied by to be x and -x."""
    with torch.inference_mode(False):  # it outlives its first user, and others may want a gradient
        return torch.tensor([[1.0], [-1.0]], dtype=dtype, device=device)


def double_weight(weight: Tensor) -> Tensor:
    """weight [d] twice, [2, d], on the CPU; as it is elsewhere, where the plain norm is one operation."""
    return torch.stack([weight, weight]) if weight.device.type == "cpu" else weight


def single_weight(weight: Tensor, d: int) -> Tensor:
    """The [d] of a weight that may be doubled."""
    return weight if weight.dim() == 1 else weight[0]
