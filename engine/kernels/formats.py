"""Formats: how matrices of few bits are stored, so that a product reads them as they are. Nothing here needs a compiler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

RUN = 32  # numbers that are unpacked at a time; a row holds a multiple of them


class PackedFormat(NamedTuple):
    """A format. number: for the kernels;  block: how many consecutive numbers of a row are stored together;  size: its bytes"""

    number: int
    block: int
    size: int


# The first two are this project's: scales and offsets are a tensor of their own. The others are those of GGUF files
# (ggml-common.h and ggml-quants.c of github.com/ggml-org/ggml), whose blocks hold their scales.
FORMATS = {
    "W8": PackedFormat(3, 32, 32),
    "W4": PackedFormat(4, 32, 16),
    "Q8_0": PackedFormat(5, 32, 34),
    "Q4_0": PackedFormat(6, 32, 18),
    "Q4_1": PackedFormat(7, 32, 20),
    "Q5_0": PackedFormat(8, 32, 22),
    "Q5_1": PackedFormat(9, 32, 24),
    "Q4_K": PackedFormat(10, 256, 144),
    "Q5_K": PackedFormat(11, 256, 176),
    "Q6_K": PackedFormat(12, 256, 210),
}


@dataclass
class PackedRows:
    """A matrix [out, in] as its rows are stored.

    format: of FORMATS;  data: uint8 or int8 [out, bytes of a row], each row contiguous
    scales: in the model's type, [out] for int8; scale and offset, [in / group, out, 2], for int4, in groups of 32, 64, 128, ...
            numbers; None for GGUF's formats
    """

    format: str
    data: Tensor
    scales: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """[out, in]."""
        one = FORMATS[self.format]
        return self.data.shape[0], self.data.shape[1] // one.size * one.block
