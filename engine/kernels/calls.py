"""Calls: what a forward pass asks of the kernels."""

from __future__ import annotations

from .passes import pass_program as pass_program
from .tensors import apply_gate as apply_gate
from .tensors import attend as attend
from .tensors import linear as linear
from .tensors import packed_linear as packed_linear
from .tensors import rms_norm as rms_norm
from .tensors import rotate_ as rotate_
from .tensors import soft_cap as soft_cap

NAME, DEVICE = "rows", "cpu"
READS_PACKED = True  # matrices of few bits are multiplied as they are stored
