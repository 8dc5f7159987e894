"""The tensors of a GGUF model, by the names that a checkpoint has for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.kernels.choice import expected_kernels, kernels_in_use
from decodescope.engine.kernels.formats import FORMATS

from ...layers.gguf_matrix import GgufMatrix, unpack_rows
from ..folder import LoadError
from ..weights import TensorSource, layer_plan
from .families import checkpoint_tensors, gguf_family
from .header import GgufTensor, read_header
from .source import GgufRecord, source_record

# where the blocks of a format have their float16 scales
SCALES = {
    "Q8_0": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
LARGEST_CODE = 8192.0  # no number is larger than this many times the largest scale of its block
EMBEDDING = "model.embed_tokens.weight"


def is_multiplied_packed(matrices: Sequence[GgufTensor]) -> bool:
    """Whether the kernels `rows` can multiply these matrices, one above the other, as they are stored."""
    types = {x.type for x in matrices}
    return len(types) == 1 and types <= FORMATS.keys() and all(len(x.shape) == 2 for x in matrices)


def loaded_bytes(
    tensors: Mapping[str, GgufTensor],
    spec: ModelSpec,
    dtype: torch.dtype,
    device: torch.device,
    keep_packed: bool = True,
) -> int:
    """Bytes of the weights in memory, once these tensors are loaded."""
    packed = keep_packed and expected_kernels(dtype, device) == "rows"
    needed = spec.vocab * spec.d_model * dtype.itemsize  # the embedding, to look rows up
    places = [
        [f"model.layers.{i}.{name}" for name in names]
        for i in range(spec.n_layers)
        for names in layer_plan(spec).values()
    ]
    for names in [*places, [EMBEDDING if spec.tied else "lm_head.weight"]]:
        some = [tensors[name] for name in names if name in tensors]
        if packed and is_multiplied_packed(some):
            needed += sum(x.size for x in some)
        elif names != [EMBEDDING]:
            needed += sum(x.numbers for x in some) * dtype.itemsize
    return needed


class GgufTensors(TensorSource):
    """The tensors of a GGUF model, unpacked by the package `gguf` when asked for; use with `with`.

    folder: derived from its files;  keep_packed: matrices stay as they are stored where the kernels multiply them so
    kept: names of the tensors that stayed
    """

    described_by = "the metadata of its file"

    def __init__(self, folder: Path, keep_packed: bool = True):
        super().__init__(folder)
        self.kept: list[str] = []
        self._keep_packed = keep_packed
        self._tensors: dict[str, GgufTensor] = {}
        self._files: dict[Path, np.memmap[Any, Any]] = {}
        self._record: GgufRecord | None = None
        self._in_pairs = False
        self._heads: dict[str, int] = {}  # q and k -> heads whose rows are in pairs

    def __enter__(self) -> GgufTensors:
        record = self._record = source_record(self.folder)
        if record is None:
            raise LoadError(f"{self.folder} belongs to no GGUF file; name the file itself.")
        header = read_header(record.verified_path())
        family = gguf_family(header)
        self.folder = header.paths[0]  # refusals name the file
        self._tensors = checkpoint_tensors(header)
        self.shapes = {name: one.shape for name, one in self._tensors.items()}
        for kind in {one.type for one in self._tensors.values()}:
            self._require_readable(kind)
        self._files = {path: np.memmap(path, np.uint8, "r") for path in header.paths}
        self._in_pairs = family.in_pairs
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._files.clear()

    def _require_readable(self, kind: str) -> None:
        import gguf

        one = gguf.GGMLQuantizationType[kind]
        try:
            gguf.quants.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[one][1]), np.uint8), one)
        except NotImplementedError:
            raise LoadError(
                f"{self.folder} stores tensors as {kind}, which cannot be read; convert the model to another type."
            ) from None

    def check(self, spec: ModelSpec) -> None:
        super().check(spec)
        if self._in_pairs:
            names = {"q": spec.n_heads, "k": spec.n_kv_heads}
            self._heads = {
                f"model.layers.{i}.self_attn.{x}_proj.{kind}": heads
                for i in range(spec.n_layers)
                for x, heads in names.items()
                for kind in ("weight", "bias")
            }

    def tensor(self, name: str) -> Tensor:
        one = self._tensors[name]
        numbers = torch.empty(one.shape, device="cpu")
        self._unpack(name, numbers)
        return numbers

    def copy_tensor(self, name: str, target: Tensor, add: float = 0.0) -> None:
        if add or (self.adapter is not None and self.adapter.changes(name)):
            super().copy_tensor(name, target, add)
        else:
            self._unpack(name, target)

    def norm_offset(self, spec: ModelSpec) -> float:
        return 0.0  # files have Gemma's norms with the one

    def matrix(self, names: Sequence[str], dtype: torch.dtype, device: torch.device) -> Tensor:
        if not self._can_stay(names, dtype, device):
            return self.read(list(names), dtype, device)
        form = self._tensors[names[0]].type
        rows = torch.cat([torch.from_numpy(self._packed_rows(name)) for name in names])
        self._check_finite(names, rows, form, dtype)
        self.kept += names
        return GgufMatrix.from_rows(rows, form, dtype)

    def head(self, spec: ModelSpec, embed: Tensor) -> Tensor:
        name = EMBEDDING if spec.tied else "lm_head.weight"
        if spec.tied and not self._can_stay([name], embed.dtype, embed.device):
            return embed
        return self.matrix([name], embed.dtype, embed.device)

    def needed_bytes(self, spec: ModelSpec, dtype: torch.dtype, device: torch.device) -> int:
        """Bytes of the weights in memory, as they will be kept."""
        return loaded_bytes(self._tensors, spec, dtype, device, self._keep_packed)

    def remarks(self, name: str, dtype: torch.dtype) -> list[str]:
        record = self._record
        assert record is not None, "its file was opened"
        kind = str(dtype).removeprefix("torch.")
        said = f"{record.title}, dequantised from {record.types} to {kind}"
        if self.kept:
            forms = sorted({self._tensors[x].type for x in self.kept})
            said = f"{record.title}, multiplied as it is stored in {' and '.join(forms)}; the rest is dequantised to {kind}"
        return [f"{name} is {said} ({record.path.name}).", *record.remarks]

    def _can_stay(self, names: Sequence[str], dtype: torch.dtype, device: torch.device) -> bool:
        """Whether the kernels multiply these matrices, one above the other, as they are stored."""
        changed = self.adapter is not None and any(map(self.adapter.changes, names))
        some = [self._tensors[name] for name in names]
        if not self._keep_packed or changed or not is_multiplied_packed(some):
            return False
        return kernels_in_use(dtype, device) == "rows"

    def _stored_rows(self, name: str) -> np.ndarray[Any, Any]:
        """uint8 [rows, bytes of a row], in the order of the file; a vector is one row."""
        one = self._tensors[name]
        rows = one.shape[0] if len(one.shape) == 2 else 1
        return self._files[one.path][one.start : one.start + one.size].reshape(rows, -1)

    def _packed_rows(self, name: str) -> np.ndarray[Any, Any]:
        """The same in memory of our own and in the order of a checkpoint."""
        rows = self._stored_rows(name)
        return np.array(rows if (order := self._row_order(name)) is None else rows[order.numpy()])

    def _row_order(self, name: str) -> Tensor | None:
        """int64 [rows]: for each row of q or k the one of the file; None: they are in order.

        The file has the features 0, d / 2, 1, d / 2 + 1, ... of a head; a checkpoint has 0, 1, 2, ...
        """
        heads = self._heads.get(name)
        if heads is None:
            return None
        count = self._tensors[name].shape[0]
        places = torch.arange(count, device="cpu").view(heads, count // heads // 2, 2)
        return places.transpose(1, 2).flatten()

    def _unpack(self, name: str, target: Tensor) -> None:
        """Write the numbers of a tensor to `target`."""
        one, order = self._tensors[name], self._row_order(name)
        if len(one.shape) == 2:
            unpack_rows(self._stored_rows(name), one.type, target, order)
            return
        flat = torch.empty(1, one.numbers, device="cpu")
        unpack_rows(self._stored_rows(name), one.type, flat)
        target.copy_((flat[0] if order is None else flat[0, order]).view(one.shape))

    def _check_finite(self, names: Sequence[str], rows: Tensor, form: str, dtype: torch.dtype) -> None:
        """Raises LoadError where a number is not finite in `dtype`, as `read` does."""
        one = FORMATS[form]
        blocks = rows.view(-1, one.size)
        scales = [blocks[:, at : at + 2].contiguous().view(torch.float16) for at in SCALES[form]]
        largest = max(float(x.abs().max()) for x in scales)
        if not largest * LARGEST_CODE <= torch.finfo(dtype).max:  # it may still be: look at the numbers
            for name in names:
                self.read([name], dtype, rows.device)
