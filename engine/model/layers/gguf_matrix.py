"""Matrices whose rows are stored as in a GGUF file, and the numbers that such rows hold."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.kernels.formats import FORMATS, PackedRows

from .matrix import Matrix

AT_ONCE = (
    1 << 22
)  # numbers that are unpacked at a time: 16 MiB, so a large matrix needs little more than its own memory


def unpack_rows(data: np.ndarray[Any, Any], kind: str, out: Tensor, order: Tensor | None = None) -> None:
    """Write the numbers of rows to `out` [rows, numbers], in its type.

    data: uint8 [rows, bytes of a row];  kind: ggml's name of their type
    order: int64 [rows]: the row of `data` that each row of `out` is; None: they are in order
    """
    import gguf

    step = max(1, AT_ONCE // max(1, out.shape[1]))
    places = None if order is None else order.numpy()
    for first in range(0, len(out), step):
        some = slice(first, first + step)
        rows = np.array(data[some] if places is None else data[places[some]])
        with np.errstate(invalid="ignore", over="ignore"):  # the caller refuses what is not finite
            numbers = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[kind])
        out[some].copy_(torch.from_numpy(numbers))


class GgufMatrix(Matrix):
    """Rows as a GGUF file stores them, which the kernels of the CPU multiply. parts: rows uint8 [out, bytes of a row].

    format: of FORMATS
    """

    format: str

    @classmethod
    def from_rows(cls, rows: Tensor, form: str, dtype: torch.dtype) -> Self:
        """Of rows uint8 [out, bytes of a row]; its numbers have the type `dtype`."""
        like = torch.empty(0, dtype=dtype, device=rows.device)
        return cls.of(PackedRows(form, rows).shape, like, {"rows": rows.contiguous()}, format=form)

    @property
    def constants(self) -> dict[str, Any]:
        return {"format": self.format}

    @property
    def scale_group_size(self) -> int:
        return FORMATS[self.format].block

    def packed_rows(self) -> PackedRows | None:
        return PackedRows(self.format, self.parts["rows"])

    def dense_weight(self) -> Tensor:
        numbers = torch.empty(tuple(self.shape), dtype=self.dtype, device=self.device)
        unpack_rows(self.parts["rows"].numpy(), self.format, numbers)
        return numbers

    def copy_to(self, **where: Any) -> Tensor:
        """The same in another type; in another place its numbers, since only a CPU has the kernels."""
        if torch.device(where.get("device") or "cpu").type != "cpu":
            return self.dense_weight().to(**where)
        return super().copy_to(**where)

    def rows_from(self, first: int) -> GgufMatrix:
        return GgufMatrix.from_rows(self.parts["rows"][first:].clone(), self.format, self.dtype)
