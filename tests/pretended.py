"""A CUDA device that is none: tensors which say that they are on it, and every rule of such a device but its speed.

Inside `pretended()` tensors may be made on "cuda" or moved there. What they hold lies in the CPU's memory, each operator runs
there, and what a device would refuse is refused: operands of two devices, a device's tensor read as an array. What a device
would have to be waited for is counted, with the engine's line that asked for it. So a step is walked as on a device, its
branches for CUDA too, where there is none.
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

ENGINE = Path(engine.__path__[0])  # as its frames name it, also where the package is imported through a link
ENGINES = f"{ENGINE}{os.sep}"  # what the paths of its files begin with
PLACE = torch.device("cuda", 0)
HERE = torch.device("cpu")
# where torch's own code takes the tensors to be: it knows no CUDA in a build without
UNDER = torch.device("meta")
aten = torch.ops.aten
READS = {aten._local_scalar_dense.default}  # .item(), int(), float(), bool()
SIZES = {  # what decides how much comes out, so that the CPU has to know it
    *(aten.nonzero.default, aten.masked_select.default, aten.bincount.default, aten.repeat_interleave.Tensor),
    *(aten._unique2.default, aten.unique_consecutive.default, aten.unique_dim.default, aten.equal.default),
}
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
WHOLE = set[Any]()  # operators that torch makes of no others, as they are met
MOVES = {aten._to_copy.default, aten.copy_.default}


class Away(Tensor):
    """A tensor on the device; `x` is what it holds."""

    x: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, x: Tensor) -> Away:
        more = dict(
            strides=x.stride(), storage_offset=x.storage_offset(), storage_size=x.untyped_storage().nbytes()
        )
        with torch.inference_mode(False):  # what a view is of may have been made outside of it
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
    """An index whose lists have become tensors on the device, as they do there."""
    if isinstance(at, tuple):
        return tuple(map(_index, at))
    return torch.tensor(at, dtype=None if at else torch.int64, device=PLACE) if isinstance(at, list) else at


class Moment:
    """An event of the device's clock, which stands still."""

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

    waits: results that the CPU waited for: read, copied down, or looked at for their number
    ups:   copies from the CPU's memory up to the device
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
    """Runs what is asked of the device in the CPU's memory, and says no where it would."""

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
            return 0  # the one way that is written in plain operators
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
        """Operands of two devices, but for numbers of the CPU where single values are worked with, copies and indices."""
        if len(away) == len(given) or not away or f in MOVES:
            return
        here = [x for x in given if not isinstance(x, Away)]
        if f in INDEXED and isinstance(args[0], Away):
            # what is written there; the places may be the CPU's
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
        """The operator on what its operands hold; what it changed in place stays the tensor that it was."""
        ours = {id(x.x): x for x in away}
        out = f(*_mapped(args, _held), **{name: _mapped(x, _held) for name, x in kwargs.items()})
        stays = to is not None and to != PLACE
        if f in READS or stays:
            return out

        def named(x: Tensor) -> Tensor:
            if any(x is y for y in args):  # the CPU's own, written to
                return x
            same = ours.get(id(x))
            assert same is None or same.shape == x.shape, f"{f} changes a shape in place"
            return Away(x) if same is None else same

        return _mapped(out, named)


def _by_name(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, the device and what follows it by name."""
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
    """The tensors of an operator's arguments, which stand in lists at most: torch's own walk takes ten times as long."""
    for x in some:
        if isinstance(x, Tensor):
            into.append(x)
        elif type(x) in (list, tuple):
            _tensors(x, into)
    return into


def _mapped(x: Any, f: Callable[[Tensor], Tensor]) -> Any:
    """The same with every tensor made another one."""
    if isinstance(x, Tensor):
        return f(x)
    return type(x)([_mapped(y, f) for y in x]) if isinstance(x, list | tuple) else x


@contextmanager
def pretended() -> Iterator[Pretended]:
    """A machine with one CUDA device that is none."""
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # numbers become a tensor here, which is then moved
    try:
        with patch.multiple(torch.cuda, **MACHINE), Pretended() as mode:
            yield mode
    finally:
        torch._C._set_only_lift_cpu_tensors(before)
