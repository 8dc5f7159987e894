"""Compiled: what a short pass does between the attention of two layers, made into one call for this machine.

Torch's compiler (`torch.export`, then inductor ahead of time, C++ on the CPU) joins norms, activations, rotation and sums
around the four products, which stay those of `linear`. One package serves every layer of a model and every number of rows from
1 to `FEW`: the weights are arguments, the rows a symbol, so nothing is ever compiled twice, and models of one shape share it.
The package is in the user's folder, and a later process opens it without a compiler.

Why not `torch.compile`: its checks before each call (guards and wrappers) take as long as the joined operators save,
about 0.1 ms a layer of the shipped model. A package has no such checks, so `weights_of` checks once whether it fits.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import platform
import secrets
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.files import data_folder
from decodescope.engine.core.spec import ModelSpec

from ..layers.layer import Layer
from ..layers.matrix import Matrix, linear
from ..layers.norm import single_weight

VERSION = 1
FEW = 64  # rows of a plain pass, at most
TRIED = 5  # rows with which a package is made
ENDING = ".pt2"
PLAIN = "leave --compile out: the plain passes write the same text"
UNFIT = "it runs as without --compile"


class CompileError(RuntimeError):
    """Passes cannot be compiled here; one sentence for people."""


class UncompilableModel(CompileError):
    """A model has nothing that could be compiled, on whatever machine."""


@dataclass(frozen=True)
class CompiledPackage:
    """A package and the weights that it is called with.

    layers:  those of the model that it was made for; it is used for no others
    weights: by layer but the last, what its call reads in addition to the states
    seconds: time to make it, or to open it if it was `kept` from earlier;  path: its file
    """

    layers: list[Layer]
    weights: list[list[Tensor]]
    call: Callable[[list[Tensor]], list[Tensor]]
    seconds: float
    kept: bool
    path: Path

    def run_between(self, i: int, x: Tensor, y: Tensor, cos: Tensor, sin: Tensor) -> list[Tensor]:
        """From the output y [1, H_kv, group * T, D] of the attention of layer i and the states x [1, T, d_model] that entered
        it: the states that enter the next layer, its rotated queries [1, H_kv, group * T, D], and its keys and values
        [2, 1, H_kv, T, D]. cos, sin: [1, T, 1, dim], contiguous."""
        return self.call([x, y, cos, sin, *self.weights[i]])

    def remark(self, name: str) -> str:
        """The remark of a load about it."""
        if self.kept:
            return f"{name} runs compiled; its package was there, and was opened in {self.seconds:.1f} s: {self.path}."
        return f"{name} runs compiled; that took {self.seconds:.1f} s, once for this machine, and is kept in {self.path}."


def package_folder() -> Path:
    """The folder of the packages, next to the user's other data."""
    return data_folder() / "compiled"


def weights_of(spec: ModelSpec, layers: list[Layer]) -> list[list[Tensor]]:
    """The inputs of `BetweenAttention` from each layer but the last and from the layer after it. Raises Unfit."""
    if len(layers) < 2:
        raise UncompilableModel(
            f"{spec.name} has one layer, and what is compiled stands between two: {UNFIT}."
        )
    rows = []
    for a, b in itertools.pairwise(layers):
        d, biases = spec.d_model, (a.out_bias, a.gate_up_bias, a.down_bias, b.qkv_bias)
        some = [
            a.out,
            single_weight(a.mlp_norm, d).contiguous(),
            a.gate_up,
            a.down,
            single_weight(b.attn_norm, d).contiguous(),
            b.qkv,
        ]
        some += [x for x in (*biases, b.q_norm, b.k_norm) if x is not None]
        if any(isinstance(x, Matrix) for x in some):
            raise UncompilableModel(
                f"The weights of {spec.name} are stored in few bits, which is not compiled: {UNFIT}."
            )
        rows.append(some)
    if len({tuple((x.shape, x.dtype, x.is_mkldnn) for x in some) for some in rows}) > 1:
        raise UncompilableModel(
            f"The layers of {spec.name} are not alike, and one call is compiled for all: {UNFIT}."
        )
    return rows


class BetweenAttention(torch.nn.Module):
    """The module that is compiled: see `Compiled.between`. spec, layer: its shape; packed: which of the four products are."""

    def __init__(self, spec: ModelSpec, first: Layer, second: Layer):
        super().__init__()
        self.spec, self.normed = spec, second.q_norm is not None and second.k_norm is not None
        self.biased = [
            x is not None for x in (first.out_bias, first.gate_up_bias, first.down_bias, second.qkv_bias)
        ]
        self.packed = [x.is_mkldnn for x in (first.out, first.gate_up, first.down, second.qkv)]

    def forward(
        self, x: Tensor, y: Tensor, cos: Tensor, sin: Tensor, weights: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The states, the queries, the keys and values."""
        s, T = self.spec, x.shape[1]
        K = s.n_kv_heads
        D = s.head_dim
        g = s.group
        out, mlp_norm, gate_up, down, attn_norm, qkv, *more = weights
        b_out, b_gate, b_down, b_qkv = (more.pop(0) if there else None for there in self.biased)
        y = y.view(1, K, g, T, D).permute(0, 3, 1, 2, 4).reshape(1, T, g * K * D)
        x = x + self._product(0, y, out, b_out)
        gate, up = self._product(1, self._norm(x, mlp_norm), gate_up, b_gate).chunk(2, -1)
        gate = F.silu(gate) if s.act == "silu" else F.gelu(gate, approximate="tanh")
        x = x + self._product(2, gate * up, down, b_down)
        z = self._product(3, self._norm(x, attn_norm), qkv, b_qkv).view(1, T, (g + 2) * K, D)
        q, k, v = z.split([g * K, K, K], 2)
        if self.normed:
            q, k = self._norm(q, more[0]), self._norm(k, more[1])
        q, k = rotate_features(q, cos, sin), rotate_features(k, cos, sin)
        q = q.view(1, T, K, g, D).permute(0, 2, 3, 1, 4).reshape(1, K, g * T, D)
        return x, q, torch.stack([k, v]).permute(0, 1, 3, 2, 4).contiguous()

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        wide = x if x.dtype == torch.float64 else x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.spec.norm_eps)
        return (wide * weight).to(x.dtype)

    def _product(self, which: int, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _packed_product()(x, weight, bias) if self.packed[which] else F.linear(x, weight, bias)


def rotate_features(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [1, T, heads, D] turned in its leading cos.shape[-1] features, as `rotate_` turns it in place."""
    dim = cos.shape[-1]
    part = x[..., :dim]
    turned = part * cos + torch.cat([part[..., dim // 2 :], part[..., : dim // 2]], -1) * sin
    return turned if dim == x.shape[-1] else torch.cat([turned, x[..., dim:]], -1)


@cache
def _packed_product() -> Callable[..., Tensor]:
    """A product with packed weights, as an operator that the compiler leaves whole: its own one takes constants alone."""
    library = torch.library.Library("decodescope", "FRAGMENT")
    library.define("packed_product(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
    library.impl("packed_product", linear, "CPU")
    library.impl(
        "packed_product", lambda x, weight, bias: x.new_empty(*x.shape[:-1], weight.shape[0]), "Meta"
    )
    _LIBRARIES.append(library)
    return torch.ops.decodescope.packed_product.default


_LIBRARIES: list[Any] = []  # an operator goes when its library goes


def _lower_product() -> None:
    """Register this operator in inductor as oneDNN's own kernel."""
    from torch._inductor import ir, mkldnn_ir
    from torch._inductor.lowering import register_lowering

    def lowered(x: Any, weight: Any, bias: Any = None) -> Any:
        return ir.TensorBox.create(mkldnn_ir.LinearUnary.create(x, weight, bias, "none", [], ""))

    register_lowering(_packed_product(), type_promotion_kind=None)(lowered)


def compile_passes(spec: ModelSpec, layers: list[Layer], folder: Path | None = None) -> CompiledPackage:
    """The passes of a model compiled, or opened where that was done before. Raises CompileError."""
    weights, began = weights_of(spec, layers), time.perf_counter()
    path = (folder or package_folder()) / f"{_package_key(spec, layers, weights[0])}{ENDING}"
    kept = path.is_file()
    if not kept:
        _make_package(spec, layers, weights[0], path)
    try:
        call = _open_package(path)
    except Exception as error:  # the file may contain anything; the error says what to do
        raise CompileError(
            f"The package {path} cannot be opened ({_short_error(error)}): remove it, or {PLAIN}."
        ) from None
    return CompiledPackage(layers, weights, call, time.perf_counter() - began, kept, path)


def _open_package(path: Path) -> Callable[[list[Tensor]], list[Tensor]]:
    try:
        from torch._C._aoti import AOTIModelPackageLoader

        loader: Any = AOTIModelPackageLoader(str(path), "model", False, 1, -1)
    except ImportError:  # another torch: the way through its compiler, with an import of a few seconds
        from torch._inductor import aoti_load_package

        loader = aoti_load_package(str(path)).loader
    return loader.boxed_run  # type: ignore[no-any-return] # made in C++


def _make_package(spec: ModelSpec, layers: list[Layer], weights: list[Tensor], path: Path) -> None:
    """Compile, and leave the package there. Raises CompileError."""
    compiler(spec.name)
    part = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{ENDING}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _own_folder(), _suppress_warnings():
            _compile(BetweenAttention(spec, *layers[:2]), weights, part)
        os.replace(part, path)
    except OSError as error:
        raise CompileError(
            f"Nothing can be written to {path.parent} ({_short_error(error)}): make room there, or {PLAIN}."
        ) from None
    except Exception as error:  # a compiler fails in many ways; each becomes one sentence
        raise CompileError(
            f"The compiler failed on the passes of {spec.name} ({_short_error(error)}): {PLAIN}."
        ) from None
    finally:
        part.unlink(missing_ok=True)


def _compile(module: BetweenAttention, weights: list[Tensor], path: Path) -> None:
    """Compile with weights that only give their shapes: packed ones become plain zeros, which the compiler only inspects."""
    from torch._inductor import aoti_compile_and_package, cpu_vec_isa

    s, like = module.spec, weights[1]
    K = s.n_kv_heads
    D = s.head_dim
    g = s.group
    R = TRIED
    dim = s.rope.dim
    shapes = ((1, R, s.d_model), (1, K, g * R, D), (1, R, 1, dim), (1, R, 1, dim))
    rows = torch.export.Dim("rows", min=1, max=FEW)
    symbols = ({1: rows}, {2: g * rows}, {1: rows}, {1: rows}, [None] * len(weights))
    if any(module.packed):
        _lower_product()
    with torch.inference_mode(False), torch.no_grad():
        some = [torch.zeros(x.shape, dtype=x.dtype, device=x.device) for x in weights]
        states = [torch.zeros(shape, dtype=like.dtype, device=like.device) for shape in shapes]
        program = torch.export.export(module, (*states, some), dynamic_shapes=symbols)
        for sure in (
            True,
            None,
        ):  # first without trying out what the processor can do, which takes as long again
            try:
                how = {"cpp.threads": 1, "cpp.vec_isa_ok": sure}
                aoti_compile_and_package(program, package_path=str(path), inductor_configs=how)
                return
            except Exception:
                if sure is None:
                    raise
                cpu_vec_isa.valid_vec_isa_list.cache_clear()


def compiler(name: str) -> str:
    """The path of a C++ compiler. Raises CompileError if there is none that torch can use."""
    if sys.platform == "win32":
        raise CompileError(f"The passes of {name} cannot be compiled on Windows: {PLAIN}.")
    asked, wanted = os.environ.get("CXX"), "clang++" if sys.platform == "darwin" else "g++"
    if path := shutil.which((asked or wanted).split()[0]):
        return path
    what = (
        f"CXX names {asked[:80]!r}, which is no program here"
        if asked
        else f"there is no {wanted} on this machine"
    )
    raise CompileError(f"The passes of {name} cannot be compiled, since {what}: install it, or {PLAIN}.")


def _package_key(spec: ModelSpec, layers: list[Layer], weights: list[Tensor]) -> str:
    """32 hex digits over all that the code depends on: shapes and types, torch, and this processor."""
    module = BetweenAttention(spec, *layers[:2])
    shape = [spec.n_kv_heads, spec.head_dim, spec.group, spec.d_model, spec.rope.dim, spec.norm_eps, spec.act]
    some = [[*map(int, x.shape), str(x.dtype), x.device.type] for x in weights]
    said = [
        VERSION,
        FEW,
        torch.__version__,
        _processor(),
        shape,
        module.biased,
        module.packed,
        module.normed,
        some,
    ]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:32]


def _processor() -> str:
    """The processor properties that compiled code depends on: the code must not run on a processor without them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    wanted = sorted({x for x in lines if x.startswith(("model name", "flags", "Features"))})
    return "\n".join(
        [platform.machine(), platform.processor(), torch.backends.cpu.get_cpu_capability(), *wanted]
    )


@contextlib.contextmanager
def _own_folder() -> Iterator[None]:
    """Use a temporary folder for the compiler's files, and remove it afterwards."""
    name = "TORCHINDUCTOR_CACHE_DIR"
    before = os.environ.get(name)
    with tempfile.TemporaryDirectory(prefix="decodescope-", ignore_cleanup_errors=True) as folder:
        os.environ[name] = folder
        try:
            yield
        finally:
            os.environ.pop(name)
            os.environ.update({} if before is None else {name: before})


@contextlib.contextmanager
def _suppress_warnings() -> Iterator[None]:
    """Without torch's warnings, which are about its own insides."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _short_error(error: BaseException) -> str:
    lines = [x.strip() for x in str(error).splitlines() if x.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no more is said'}"[:200]
