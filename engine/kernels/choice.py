"""Choice: whose arithmetic passes on a CPU take, torch's or that of this room. Nothing here needs a compiler."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from decodescope.engine.core.files import data_folder

NAMES = ("torch", "rows")  # torch's operators; kernels whose result does not depend on the number of rows
TYPES = (torch.float32, torch.bfloat16, torch.float16)
_CALLS = ".calls"  # of this room: importing it compiles the kernels, or finds them compiled
_using: Kernels | None = None  # that module, once it was chosen


_threads = 1  # of a pass, where the kernels of this room compute it


class LayerProgram(Protocol):
    """All layers of a model as one program."""

    def run(
        self,
        x: Tensor,
        stores: Sequence[Any],
        positions: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None,
    ) -> Tensor:
        """`PassProgram.run` of `passes`."""


class Kernels(Protocol):
    """The functions of `calls`, documented where they are defined: in `tensors` and `passes`."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Rows times a matrix, plus a bias."""

    def rms_norm(self, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        """The root mean square norm."""

    def rotate_(self, x: Tensor, cos: Tensor, sin: Tensor) -> None:
        """The rotary embedding, in place."""

    def apply_gate(self, both: Tensor, activation: str) -> Tensor:
        """activation(gate) * up."""

    def soft_cap(self, x: Tensor, cap: float) -> Tensor:
        """cap * tanh(x / cap)."""

    def pass_program(self, spec: Any, layers: Sequence[Any]) -> LayerProgram | None:
        """The layers of a model as one program; None where they ask for what it has not."""

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | Literal["causal"] | None,
        scale: float,
        cap: float | None = None,
        *,
        weights: Tensor | None = None,
        sums: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Attention of queries over keys and values."""


class KernelError(ValueError):
    """Kernels cannot be used here; the message is one sentence."""


def use_kernels(name: str) -> None:
    """Choose the arithmetic of this process: "torch" or "rows". Models that are loaded afterwards are laid out for it.

    The first time on a machine, rows are compiled, which takes some ten seconds; they are kept in the user's data folder.
    Raises KernelError for another name, and where numba, which compiles them, is missing.
    """
    global _using
    if name not in NAMES:
        raise KernelError(f"There are no kernels called {name!r}; choose {' or '.join(NAMES)}.")
    using, threads = _compiled_kernels() if name == "rows" else None, pass_threads()
    _using = using
    set_pass_threads(threads)


def _compiled_kernels() -> Kernels:
    if importlib.util.find_spec("numba") is None:
        raise KernelError("The kernels called rows need numba, which is not installed: pip install numba.")
    import numba

    sources = sorted(Path(__file__).parent.glob("*.py"))
    mark = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    before = numba.config.CACHE_DIR
    home = data_folder() / "kernels" / mark
    numba.config.CACHE_DIR = str(home)
    try:
        calls: Any = importlib.import_module(_CALLS, __package__)
        _forget_old_versions(home)
        return calls  # type: ignore[no-any-return] # a module that has these functions
    finally:
        numba.config.CACHE_DIR = before


def _forget_old_versions(home: Path) -> None:
    """Of kernels that were compiled from other sources keep the newest two."""
    with contextlib.suppress(OSError):
        os.utime(home)
        others = sorted((x for x in home.parent.iterdir() if x != home), key=lambda x: x.stat().st_mtime)
        for old in others[:-2]:
            shutil.rmtree(old, ignore_errors=True)


def pass_threads() -> int:
    """How many threads a pass on the CPU has."""
    return torch.get_num_threads() if _using is None else _threads


def set_pass_threads(count: int) -> None:
    """Give a pass on the CPU so many threads.

    With the kernels of this room torch has one, for what little is left to it: its own threads would stay awake for some
    milliseconds after each operator, on the processors that the kernels need.
    """
    global _threads
    _threads = count
    torch.set_num_threads(count if _using is None else 1)


@contextlib.contextmanager
def all_threads_for_torch() -> Iterator[None]:
    """torch with the threads of a pass, for what does not go through the kernels of this room."""
    before = torch.get_num_threads()
    torch.set_num_threads(pass_threads())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def kernels_in_use(dtype: torch.dtype | None = None, device: torch.device | None = None) -> str:
    """The name of the arithmetic of this process, or of passes of that type on that device."""
    if _using is None or (dtype is not None and dtype not in TYPES):
        return "torch"
    return "rows" if device is None or device.type == "cpu" else "torch"


def kernels_for(*tensors: Tensor | None) -> Kernels | None:
    """The module `calls` of this room, where it computes what is made of these; None: torch does.

    It does on a CPU, for float32 and half types, where nobody wants a gradient.
    """
    if _using is None or torch.is_grad_enabled():
        return None
    for x in tensors:
        if x is not None and (type(x) is not Tensor or x.dtype not in TYPES or x.device.type != "cpu"):
            return None
    return _using
