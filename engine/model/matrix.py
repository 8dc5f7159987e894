"""Matrix products of the decoder, with weights laid out once for this processor where it pays.

On x86 processors oneDNN multiplies faster with weights in its own blocked layout than with rows as they are stored, above
all for the few rows that decoding feeds. The plain product rearranges them anew in every call. `pack` does it once, without a
compiler; a packed matrix is an opaque tensor of the same shape and size. Measured on two cores of an AMD EPYC, all 33 products
of one pass of an 11.8 M model (docs/benchmarks.md has the command): one row 2.0 -> 1.1 ms in bfloat16 and 4.8 -> 2.3 ms in
float32, 17 rows 3.1 -> 1.9 and 7.8 -> 3.5 ms.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., in] times weight [out, in], plain or packed, transposed; plus bias [out]. -> [..., out]"""
    if weight.is_mkldnn:
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return F.linear(x, weight, bias)


def pack(weight: Tensor) -> Tensor:
    """`weight` [out, in] in the processor's own layout, or as it is where this build, device or type has none."""
    if weight.is_mkldnn or not weight.numel() or not can_pack(weight.dtype, weight.device):
        return weight
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)


def unpack(weight: Tensor) -> Tensor:
    """`weight` [out, in] as rows, whatever its layout; the same values."""
    return weight.to_dense() if weight.is_mkldnn else weight


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether `pack` changes anything: the build knows the layout, and the processor multiplies the type."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(torch.ops.mkldnn, "_reorder_linear_weight") or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32
