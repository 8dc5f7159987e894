"""Matrix products of the decoder, with weights laid out once for this processor where it pays.

On x86 processors oneDNN multiplies faster with weights in its own blocked layout than with rows as they are stored, above
all for the few rows that decoding feeds. The plain product rearranges them anew in every call. `pack` does it once, without a
compiler; a packed matrix is an opaque tensor of the same shape and size. Measured on two cores of an AMD EPYC, all 33 products
of one pass of an 11.8 M model (docs/benchmarks.md has the command): one row 2.0 -> 1.1 ms in bfloat16 and 4.8 -> 2.3 ms in
float32, 17 rows 3.1 -> 1.9 and 7.8 -> 3.5 ms.

A weight is a plain tensor, a packed one, or a `Matrix`, which stores its numbers in fewer bytes (`compressed_matrices.py` has
the kinds).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map

from decodescope.engine.kernels.choice import kernels_for, kernels_in_use
from decodescope.engine.kernels.formats import PackedRows

# numbers of a float32 matrix up to which the plain product is no slower: the packed one takes 14 us to start
SMALL = 1 << 16
READ_ONLY = "This weight is stored in few bits and cannot be written to: store `unpack` of it again."


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """x [..., in] times weight [out, in], plain, packed or a `Matrix`, transposed; plus bias [out]. -> [..., out]

    dtype: of the result; None: that of x. The kernels round their sums to it once, torch to that of x first.
    """
    dtype = dtype or x.dtype
    if weight.is_mkldnn:
        return _packed_product()(x, weight, bias, "none", [], "").to(dtype)  # type: ignore[no-any-return] # an operator of torch
    if not isinstance(weight, Matrix):
        kernels = kernels_for(x, weight, bias)
        if kernels is None or x.dtype != weight.dtype:
            return F.linear(x, weight, bias).to(dtype)
        return kernels.linear(x, weight, bias, dtype)
    kernels = kernels_for(x, bias)
    if kernels is None or x.dtype != weight.dtype:
        return weight.product(x, bias).to(dtype)
    if kernels.READS_PACKED and (packed := weight.packed_rows()) is not None:
        return kernels.packed_linear(x, packed, bias, dtype)
    return kernels.linear(x, weight.dense_weight(), bias, dtype)


@cache
def _packed_product() -> Callable[..., Any]:
    """The operator of a packed product, looked up once: by its name it is looked up in every call."""
    return torch.ops.mkldnn._linear_pointwise.default


def pack(weight: Tensor) -> Tensor:
    """`weight` [out, in] in the processor's own layout, or as it is where this build, device or type has none."""
    if (
        weight.is_mkldnn
        or isinstance(weight, Matrix)
        or not weight.numel()
        or not can_pack(weight.dtype, weight.device)
    ):
        return weight
    if weight.dtype == torch.float32 and weight.numel() <= SMALL:
        return weight
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
    return packed


def unpack(weight: Tensor) -> Tensor:
    """`weight` [out, in] as rows of numbers, however they are stored; the same values."""
    if isinstance(weight, Matrix):
        return weight.dense_weight()
    return weight.to_dense() if weight.is_mkldnn else weight


def copy_weight_to(weight: Tensor, **where: Any) -> Tensor:
    """`weight` in another type or place: a `Matrix` stays one, what is packed becomes rows."""
    return weight.copy_to(**where) if isinstance(weight, Matrix) else unpack(weight).to(**where)


def rows_from(weight: Tensor, first: int) -> Tensor:
    """The rows of `weight` from `first` on, stored as it is."""
    return weight.rows_from(first) if isinstance(weight, Matrix) else pack(unpack(weight)[first:])


def bits_per_number(weight: Tensor) -> float:
    """Bits that a number of the weight takes, scales and places included, counted from its storages."""
    return 8 * weight.nbytes / weight.numel() if weight.numel() else 8.0 * weight.element_size()


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """True if `pack` changes anything: the build knows the layout, and the processor multiplies the type."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available() or kernels_in_use() != "torch":
        return False
    if not hasattr(torch.ops.mkldnn, "_reorder_linear_weight") or not hasattr(
        torch.ops.mkldnn, "_linear_pointwise"
    ):
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


class Matrix(Tensor):
    """A weight [out, in] that is stored in fewer bytes than its numbers would take. For `linear` it is a weight like any other;
    anything else that is done with it is done with its numbers, which then are there for that moment. It cannot be written to.

    dtype: the type of its numbers and of what it multiplies;  parts: the tensors that it is stored in, by name
    """

    parts: dict[str, Tensor]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment] # as torch's own subclasses have it

    @classmethod
    def of(cls, shape: tuple[int, int], like: Tensor, parts: Mapping[str, Tensor], **constants: Any) -> Self:
        """One of this `shape` that is stored in these parts; its numbers have the type and place of `like`."""
        one = Tensor._make_wrapper_subclass(cls, shape, dtype=like.dtype, device=like.device)
        one.parts = dict(parts)
        for name, value in constants.items():
            setattr(one, name, value)
        return one

    @classmethod
    def __torch_dispatch__(  # type: ignore[override] # the stub has what switches it off
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func._schema.is_mutable and isinstance(args[0], Matrix):
            raise TypeError(READ_ONLY)
        args, kwargs = tree_map(
            lambda x: x.dense_weight() if isinstance(x, Matrix) else x, (args, kwargs or {})
        )
        return func(*args, **kwargs)

    def __setitem__(self, *_: Any) -> None:
        raise TypeError(READ_ONLY)

    def __repr__(self) -> str:  # type: ignore[override] # without a word for its contents
        return f"{type(self).__name__}({list(self.shape)}, {bits_per_number(self):.3g} bits a number)"

    @property
    def nbytes(self) -> int:  # type: ignore[override] # of its parts
        """Bytes of its storages."""
        return sum(x.untyped_storage().nbytes() for x in self.parts.values())

    def dense_weight(self) -> Tensor:
        """Its numbers, [out, in]."""
        raise NotImplementedError

    def packed_rows(self) -> PackedRows | None:
        """Its rows as the kernels read them without unpacking; None if they cannot."""
        return None

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [..., in] times its numbers, transposed; plus bias [out]. -> [..., out]. The plain way, which has a gradient: its
        numbers are made, used, and gone."""
        return F.linear(x, self.dense_weight(), bias)

    def rows_from(self, first: int) -> Tensor:
        """Its rows from `first` on, stored as it is where its layout lets them."""
        return self.dense_weight()[first:]

    def copy_to(self, **where: Any) -> Tensor:
        """The same in another type or place: what is no whole number is cast."""
        whole = {"device": where.get("device", self.device)}
        parts = {name: x.to(**(where if x.is_floating_point() else whole)) for name, x in self.parts.items()}
        like = torch.empty(0, dtype=where.get("dtype", self.dtype), device=where.get("device", self.device))
        return type(self).of((self.shape[0], self.shape[1]), like, parts, **self.constants)

    @property
    def scale_group_size(self) -> int | None:
        """How many consecutive numbers of a row share a scale; None: there are no scales."""
        return None

    @property
    def constants(self) -> dict[str, Any]:
        """The arguments of `of` in addition to its parts."""
        return {}
