"""Choice: whose arithmetic passes take, torch's or that of this room. Nothing here needs a compiler."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib
import importlib.util
import logging
import os
import platform
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from decodescope.engine.core.files import data_folder
from decodescope.engine.core.progress import Progress

from .formats import PackedRows

# torch's operators; kernels whose result does not depend on the number of rows, on a CPU and on CUDA
NAMES = ("torch", "rows", "triton")
TYPES = (torch.float32, torch.bfloat16, torch.float16)
_PARTS = (".products", ".pointwise", ".attention", ".threads")  # what is compiled, in this order
_CALLS = ".calls"  # of this room: what a forward pass calls
_TRITON_CALLS = ".triton_calls"  # the same on CUDA
_PACKED = ".packed"


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
    """The functions of `calls`, documented where they are defined: in `tensors` and `passes`.

    NAME:         what the user calls them
    DEVICE:       the type of device on which they compute
    READS_PACKED: whether `packed_linear` may be called; else matrices of few bits are unpacked for `linear`
    """

    NAME: str
    DEVICE: str
    READS_PACKED: bool

    def linear(
        self, x: Tensor, weight: Tensor, bias: Tensor | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Rows times a matrix, plus a bias."""

    def packed_linear(
        self, x: Tensor, weight: PackedRows, bias: Tensor | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Rows times a matrix of few bits, plus a bias."""

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


class _Choice:
    """Whose arithmetic this process uses.

    is_chosen: True once somebody chose, or the default was taken
    kernels:   the module `calls` or `triton_calls`; None: torch
    """

    def __init__(self) -> None:
        self.is_chosen = False
        self.kernels: Kernels | None = None
        self._lock = threading.Lock()

    def current(self) -> Kernels | None:
        """The kernels that are used; the first time they are asked for, the default is taken."""
        if not self.is_chosen:
            with self._lock:
                if not self.is_chosen:
                    self.kernels = _default_kernels()
                    self.is_chosen = True
        return self.kernels


_choice = _Choice()


def use_kernels(name: str) -> None:
    """Choose the arithmetic of this process: "rows", "torch" or "triton". Models loaded afterwards are laid out for it.

    Where nobody chooses it is rows, and torch where rows cannot be had: without numba, or on a processor without fused
    multiply-add. The first time on a machine, rows are compiled, which takes some ten seconds; they are kept in the user's data
    folder. "triton" computes on CUDA, or on a CPU where Triton interprets (TRITON_INTERPRET=1). Raises KernelError for another
    name, where numba or Triton, which compile them, is missing, and for "triton" without CUDA and interpreter.
    """
    if name not in NAMES:
        raise KernelError(
            f"There are no kernels called {name!r}; choose {', '.join(NAMES[:-1])} or {NAMES[-1]}."
        )
    if name == "rows" and importlib.util.find_spec("numba") is None:
        raise KernelError("The kernels called rows need numba, which is not installed: pip install numba.")
    makers: dict[str, Callable[[], Kernels]] = {"rows": _compiled_kernels, "triton": _triton_kernels}
    _choice.kernels = makers[name]() if name in makers else None
    _choice.is_chosen = True


@contextlib.contextmanager
def kernels_set_to(name: str) -> Iterator[None]:
    """Use these kernels for a while, then those from before. Raises KernelError as `use_kernels` does."""
    before = _choice.is_chosen, _choice.kernels
    use_kernels(name)
    try:
        yield
    finally:
        _choice.is_chosen, _choice.kernels = before


def _default_kernels() -> Kernels | None:
    """rows, or None where they cannot be compiled here."""
    if importlib.util.find_spec("numba") is None or not _has_fused_multiply_add():
        return None
    try:
        return _compiled_kernels()
    except Exception as error:
        logging.getLogger(__name__).warning("torch computes: the kernels could not be compiled (%s).", error)
        return None


def _has_fused_multiply_add() -> bool:
    """Whether the processor computes x * y + z in one instruction; without it rows would be very slow."""
    x86 = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
    return not x86 or torch.backends.cpu.get_cpu_capability() != "DEFAULT"


def _compiled_kernels() -> Kernels:
    with _compiled_into_folder() as home:
        with Progress("compiling kernels, once for this machine", len(_PARTS), "parts") as progress:
            for part in _PARTS:
                importlib.import_module(part, __package__)
                progress.add()
        calls: Any = importlib.import_module(_CALLS, __package__)
        _forget_old_versions(home)
    return calls  # type: ignore[no-any-return] # a module that has these functions


def _triton_kernels() -> Kernels:
    """The module `triton_calls`. Raises KernelError where it cannot compute."""
    if importlib.util.find_spec("triton") is None:
        raise KernelError(
            "The kernels called triton need Triton, which is not installed: pip install triton, on Linux, or choose torch."
        )
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if not interpreted and not torch.cuda.is_available():
        raise KernelError(
            "The kernels called triton need a CUDA device, and torch has none here: choose rows, which do the same on a CPU, "
            "or set TRITON_INTERPRET=1 before the start to have them interpreted, slowly."
        )
    calls: Any = importlib.import_module(_TRITON_CALLS, __package__)
    if interpreted != (calls.DEVICE == "cpu"):
        raise KernelError(
            "The kernels called triton were imported with another TRITON_INTERPRET: set it before the start."
        )
    return calls  # type: ignore[no-any-return] # a module that has these functions


def require_kernels(dtype: torch.dtype, device: torch.device) -> None:
    """Raise KernelError if "triton" was chosen and cannot compute passes of this type on this device."""
    kernels = _choice.kernels
    if kernels is None or kernels.NAME != "triton":
        return
    if dtype not in TYPES:
        raise KernelError(
            f"The kernels called triton do not compute {str(dtype)[6:]}: choose float32, bfloat16 or float16, or torch's "
            "kernels."
        )
    if device.type != kernels.DEVICE:
        way = "unset TRITON_INTERPRET" if kernels.DEVICE == "cpu" else "set TRITON_INTERPRET=1, which is slow"
        raise KernelError(
            f"The kernels called triton compute on {kernels.DEVICE} here, and the model is on {device.type}: move it "
            f"(--device {kernels.DEVICE}), {way}, or choose torch's kernels."
        )


@cache
def compile_packed() -> Any:
    """The module `packed`: it is compiled, or found compiled, when the first matrix of few bits is multiplied."""
    with (
        _compiled_into_folder(),
        Progress("compiling kernels for few bits, once for this machine", 1, "part"),
    ):
        return importlib.import_module(_PACKED, __package__)


@contextlib.contextmanager
def _compiled_into_folder() -> Iterator[Path]:
    """While it is open, numba keeps what it compiles in a folder of the user's data, one for each version of this room."""
    import numba

    sources = sorted(Path(__file__).parent.glob("*.py"))
    mark = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    before = numba.config.CACHE_DIR
    home = _writable_folder(data_folder() / "kernels" / mark)
    numba.config.CACHE_DIR = str(home)
    try:
        yield home
    finally:
        numba.config.CACHE_DIR = before


def _writable_folder(home: Path) -> Path:
    """home, or a folder of this process alone where nothing can be written there."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        if os.access(home, os.W_OK):
            return home
    except OSError:
        pass
    own = tempfile.mkdtemp(prefix="decodescope-kernels-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return Path(own)


def _forget_old_versions(home: Path) -> None:
    """Of kernels that were compiled from other sources keep the newest two."""
    with contextlib.suppress(OSError):
        os.utime(home)
        others = sorted((x for x in home.parent.iterdir() if x != home), key=lambda x: x.stat().st_mtime)
        for old in others[:-2]:
            shutil.rmtree(old, ignore_errors=True)


def pass_threads() -> int:
    """How many threads a pass on the CPU has: as many as torch has outside of `OneThreadForTorch`."""
    return _outside.threads if _outside.depth else torch.get_num_threads()


def set_pass_threads(count: int) -> None:
    """Give a pass on the CPU so many threads."""
    with _outside.lock:
        _outside.threads = count
        torch.set_num_threads(1 if _outside.depth else count)


class _Outside:
    """How many threads torch has while no step is computed, and how many steps are computed at the moment."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth = self.threads = 0
        self.here = threading.local()  # `depth` of the thread that asks


_outside = _Outside()


class OneThreadForTorch:
    """While the kernels of this room compute a step, torch has one thread for what little is left to it.

    Its own threads would stay awake for some milliseconds after each operator, on the processors that the kernels need.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device):
        self._applies = kernels_in_use(dtype, device) == "rows"

    def __enter__(self) -> None:
        if self._applies:
            _outside.here.depth = getattr(_outside.here, "depth", 0) + 1
            with _outside.lock:
                if _outside.depth == 0:
                    _outside.threads = torch.get_num_threads()
                _outside.depth += 1
                torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        if self._applies:
            _outside.here.depth -= 1
            with _outside.lock:
                _outside.depth -= 1
                if _outside.here.depth == 0:
                    torch.set_num_threads(_outside.threads)


def kernels_in_use(dtype: torch.dtype | None = None, device: torch.device | None = None) -> str:
    """The name of the arithmetic of this process, or of passes of that type on that device."""
    elsewhere = device is not None and device.type != "cpu"
    if (dtype is not None and dtype not in TYPES) or (elsewhere and not _choice.is_chosen):
        return "torch"
    kernels = _choice.current()
    if kernels is None or (device is not None and device.type != kernels.DEVICE):
        return "torch"
    return kernels.NAME


def expected_kernels(dtype: torch.dtype, device: torch.device) -> str:
    """What `kernels_in_use` will say of such passes, for estimates: nothing is compiled to know it."""
    if _choice.is_chosen or dtype not in TYPES or device.type != "cpu":
        return kernels_in_use(dtype, device)
    return "rows" if importlib.util.find_spec("numba") and _has_fused_multiply_add() else "torch"


def kernels_for(*tensors: Tensor | None) -> Kernels | None:
    """The module `calls` or `triton_calls` of this room, where it computes what is made of these; None: torch does.

    It does on its own type of device, for float32 and half types, where nobody wants a gradient.
    """
    kernels = _choice.kernels if _choice.is_chosen else _choice.current()
    if kernels is None or torch.is_grad_enabled():
        return None
    for x in tensors:
        if x is not None and (
            type(x) is not Tensor or x.dtype not in TYPES or x.device.type != kernels.DEVICE
        ):
            return None
    return kernels
