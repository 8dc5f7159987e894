"""An imitation of a CUDA device: tensors say that they are on it, and all its rules apply except its speed.

Inside `pretended()`, tensors may be created on "cuda" or moved there. Their data is in the CPU's memory, and each operator runs
there. What a device would refuse is refused: operands of two devices, a device's tensor read as an array. Each wait for the
device is counted, with the engine's line that caused it. So a step runs as on a device, including its CUDA branches, without
such a device.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from decodescope import engine

ENGINE = Path(engine.__path__[0])  # the path in its frames, also if the package is imported through a link
ENGINES = f"{ENGINE}{os.sep}"  # prefix of the paths of its files
PLACE = torch.device("cuda", 0)
HERE = torch.device("cpu")
# where torch's own code believes the tensors to be: a build without CUDA does not know CUDA
UNDER = torch.device("meta")
aten = torch.ops.aten
READS = {aten._local_scalar_dense.default}  # .item(), int(), float(), bool()
SIZES = {  # they decide the output's size, so that the CPU has to know it
    *(aten.nonzero.default, aten.masked_select.default, aten.bincount.default, aten.repeat_interleave.Tensor),
    *(aten._unique2.default, aten.unique_consecutive.default, aten.unique_dim.default, aten.equal.default),
}
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
WHOLE = set[Any]()  # operators that torch does not decompose, collected as they occur
MOVES = {aten._to_copy.default, aten.copy_.default}


class Away(Tensor):
    """A tensor on the device; `x` holds its data."""

    x: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, x: Tensor) -> Away:
        more = dict(
            strides=x.stride(), storage_offset=x.storage_offset(), storage_size=x.untyped_storage().nbytes()
        )
        with torch.inference_mode(False):  # the base of a view may have been made outside of it
            made = Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype, device=UNDER, **more)
        made.x = x
        return made

    @property
    def device(self) -> torch.device:
        return PLACE

    @classmethod
    def __torch_dispatch__(cls, f: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{f} of a pretended device's tensor, outside of it")

    def __getitem__(self, at: Any) -> Any:
        return super().__getitem__(_index(at))

    def __setitem__(self, at: Any, x: Any) -> None:
        super().__setitem__(_index(at), x)

    def new_tensor(self, data: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        return torch.tensor(data, dtype=dtype or self.dtype, device=PLACE)

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError("can't convert cuda:0 device type tensor to numpy; use Tensor.cpu() first")
        return self.cpu().numpy()

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def __repr__(self, **_: Any) -> str:
        return f"Away({self.x!r})"


def _index(at: Any) -> Any:
    """Return an index with its lists turned into tensors on the device, as they are there."""
    if isinstance(at, tuple):
        return tuple(map(_index, at))
    return torch.tensor(at, dtype=None if at else torch.int64, device=PLACE) if isinstance(at, list) else at


class Moment:
    """An event of the device's clock, which never advances."""

    def __init__(self, **_: Any):
        pass

    def record(self, *_: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, _: Moment) -> float:
        return 0.001


MACHINE = dict(
    _lazy_init=lambda: None,
    Event=Moment,
    device_count=lambda: 1,
    get_device_name=lambda *_: "a device that is none",
    mem_get_info=lambda *_: (1 << 33, 1 << 33),
)  # of torch.cuda


@dataclass
class Seen:
    """What the device was asked, by the engine's line that asked.

    waits: results that the CPU waited for: read, copied to the CPU, or needed for their size
    ups:   copies from the CPU's memory to the device
    """

    waits: Counter[str] = field(default_factory=Counter)
    ups: Counter[str] = field(default_factory=Counter)

    def clear(self) -> None:
        self.waits.clear()
        self.ups.clear()


def _line() -> str:
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(ENGINES):
            path = Path(frame.f_code.co_filename).relative_to(ENGINE)
            return f"{path.as_posix()}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back  # type: ignore[assignment] # None at the end
    return "tests"


class Pretended(TorchDispatchMode):
    """Runs the device's operators in the CPU's memory, and refuses what the device would refuse."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # it is never compiled, and the compiler takes seconds to import

    def __init__(self) -> None:
        super().__init__()
        self.seen = Seen()

    def __torch_dispatch__(self, f: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = _by_name(f, args, kwargs or {})
        given = _tensors((args, [*kwargs.values()]), [])
        away = [x for x in given if isinstance(x, Away)]
        to = kwargs.get("device")
        if to is not None and (to.type == "cuda" or to == UNDER):
            to, kwargs["device"] = PLACE, HERE
        if not away and to != PLACE:
            return f(*args, **kwargs)
        if f is aten._fused_sdp_choice.default:
            return 0  # the one implementation that is written in plain operators
        if f not in MOVES and f not in WHOLE:
            with self:
                parts = f.decompose(*args, **{**kwargs, **({} if to is None else {"device": to})})
            if parts is not NotImplemented:
                return parts
            WHOLE.add(f)
        self._refuse(f, args, given, away)
        self._count(f, args, given, away, to)
        return self._run(f, args, kwargs, away, to)

    def _refuse(self, f: Any, args: Any, given: list[Tensor], away: list[Away]) -> None:
        """Refuse operands of two devices, except CPU scalars in pointwise operators, copies and indexing."""
        if len(away) == len(given) or not away or f in MOVES:
            return
        here = [x for x in given if not isinstance(x, Away)]
        if f in INDEXED and isinstance(args[0], Away):
            # the values that are written there; the places may be the CPU's
            here = [x for x in args[2:3] if not isinstance(x, Away)]
        if (f in INDEXED or torch.Tag.pointwise in f.tags) and all(x.ndim == 0 for x in here):
            return
        shapes = [tuple(x.shape) for x in here]
        raise RuntimeError(
            f"Expected all tensors to be on the same device: {f} of cuda and of cpu {shapes}, in {_line()}"
        )

    def _count(
        self, f: Any, args: Any, given: list[Tensor], away: list[Away], to: torch.device | None
    ) -> None:
        here = len(given) - len(away)
        if f in MOVES:
            source = args[1] if f is aten.copy_.default else args[0]
            stays = isinstance(args[0], Away)
            lands = stays if f is aten.copy_.default or to is None else to == PLACE
            if isinstance(source, Away) != lands:
                (self.seen.ups if lands else self.seen.waits)[_line()] += 1
        elif f in READS or f in SIZES:
            self.seen.waits[_line()] += 1
        elif f in INDEXED:
            self.seen.ups[line := _line()] += here
            self.seen.waits[line] += any(
                x is not None and isinstance(x, Away) and x.dtype == torch.bool for x in args[1]
            )

    def _run(self, f: Any, args: Any, kwargs: Any, away: list[Away], to: torch.device | None) -> Any:
        """Run the operator on its operands' data; a tensor that it changed in place stays the same tensor."""
        ours = {id(x.x): x for x in away}
        out = f(*_mapped(args, _held), **{name: _mapped(x, _held) for name, x in kwargs.items()})
        stays = to is not None and to != PLACE
        if f in READS or stays:
            return out

        def named(x: Tensor) -> Tensor:
            if any(x is y for y in args):  # the CPU's own tensor, written to
                return x
            same = ours.get(id(x))
            assert same is None or same.shape == x.shape, f"{f} changes a shape in place"
            return Away(x) if same is None else same

        return _mapped(out, named)


def _by_name(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with the device and those after it given by name."""
    at = _devices_place(f)
    if at is None or at >= len(args):
        return args, dict(kwargs)
    names = [x.name for x in f._schema.arguments]
    return args[:at], {**dict(zip(names[at:], args[at:], strict=False)), **kwargs}


@cache
def _devices_place(f: Any) -> int | None:
    return next((i for i, x in enumerate(f._schema.arguments) if x.name == "device"), None)


def _held(x: Tensor) -> Tensor:
    return x.x if isinstance(x, Away) else x


def _tensors(some: Any, into: list[Tensor]) -> list[Tensor]:
    """Collect the tensors in an operator's arguments, nested at most in lists; torch's own walk takes ten times as long."""
    for x in some:
        if isinstance(x, Tensor):
            into.append(x)
        elif type(x) in (list, tuple):
            _tensors(x, into)
    return into


def _mapped(x: Any, f: Callable[[Tensor], Tensor]) -> Any:
    """Return the same structure with `f` applied to every tensor."""
    if isinstance(x, Tensor):
        return f(x)
    return type(x)([_mapped(y, f) for y in x]) if isinstance(x, list | tuple) else x


@contextmanager
def pretended() -> Iterator[Pretended]:
    """Imitate a machine with one CUDA device."""
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # numbers become a tensor on the CPU, which is then moved
    try:
        with patch.multiple(torch.cuda, **MACHINE), Pretended() as mode:
            yield mode
    finally:
        torch._C._set_only_lift_cpu_tensors(before)
