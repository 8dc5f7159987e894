"""Placement: the type and device of a model, the memory that it takes there, and its speed, known before it is loaded.

Only the headers of its files are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NamedTuple, cast

import psutil
import torch
from safetensors import SafetensorError, safe_open

from decodescope.engine.core.component import registry
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import PassShape, pass_ops
from decodescope.engine.cost.hardware import HardwareProfile, load_profile
from decodescope.engine.decoding.bases.weights import WeightTransform
from decodescope.engine.kernels.choice import expected_kernels
from decodescope.engine.kernels.formats import FORMATS
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.checkpoint.gguf.source import GgufShape, read_gguf_shape, source_record
from decodescope.engine.model.checkpoint.gguf.tensors import is_multiplied_packed, loaded_bytes
from decodescope.engine.model.checkpoint.weights import check_header, layer_plan, weight_files
from decodescope.engine.model.layers.matrix import can_pack
from decodescope.engine.timing.measure import profile_key

SHIPPED = Path(__file__).resolve().parents[2] / "assets" / "models"
DTYPES = {
    str(x).removeprefix("torch."): x for x in (torch.float32, torch.bfloat16, torch.float16, torch.float64)
}
STORED = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
HELD = 256  # tokens of text in the pass that a speed is computed for
OWN_FORMATS = ("W8", "W4")  # of FORMATS: those that no GGUF file has


def default_dtype(source: Path) -> torch.dtype:
    """The type in which the model in a folder, or in a GGUF file, is loaded if nobody asks for another.

    float32 for the shipped models, whose recorded texts it gives; bfloat16 for a GGUF file; for others the type in which
    their file stores most of its numbers.
    """
    if source.resolve().parent == SHIPPED:
        return torch.float32
    if source.is_file() or source_record(source) is not None:
        return torch.bfloat16
    return _stored_dtype(source)


def _stored_dtype(folder: Path) -> torch.dtype:
    """The type of most numbers in a folder's first weight file; float32 if it cannot be read, which loading then reports."""
    counts = Counter[str]()
    try:
        for path in weight_files(folder)[:1]:
            check_header(path)
            with safe_open(path, "pt") as file:
                for name in file.keys():  # noqa: SIM118 # the file is no mapping
                    part = file.get_slice(name)
                    counts[part.get_dtype()] += prod(part.get_shape())
    except (SafetensorError, LoadError, OSError):
        return torch.float32
    return STORED.get(counts.most_common(1)[0][0], torch.float32) if counts else torch.float32


def _gguf_shape(source: Path) -> GgufShape | None:
    """What the header of the model's GGUF file says; None for a model in another file."""
    if source.is_file():
        return read_gguf_shape(source)
    record = source_record(source)
    return None if record is None else read_gguf_shape(record.path)


def weight_bytes(source: Path, spec: ModelSpec, dtype: torch.dtype, device: torch.device) -> int:
    """Bytes of the weights in memory, of the model in a folder or in a GGUF file, while it is loaded.

    Transforms make it smaller afterwards.
    """
    shape = _gguf_shape(source)
    if shape is None:
        return dense_bytes(spec, dtype, device)
    return loaded_bytes(shape.tensors, spec, dtype, device, not spec.weights)


def dense_bytes(spec: ModelSpec, dtype: torch.dtype, device: torch.device) -> int:
    """Bytes of the weights of a checkpoint in memory."""
    needed = spec.params * dtype.itemsize
    if spec.tied and can_pack(dtype, device):  # packed for the head, and plain for looking up
        needed += spec.vocab * spec.d_model * dtype.itemsize
    return needed


def free_bytes(device: torch.device) -> int | None:
    """Bytes of memory that are free on `device`; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        return int(psutil.virtual_memory().available)
    except (OSError, psutil.Error, NotImplementedError):
        return None  # the operating system will say so itself


# ---- what would fit


class Fit(NamedTuple):
    """A way to load a model that takes `size` bytes. words: the way, to follow "choose" """

    words: str
    size: int


@dataclass(frozen=True)
class Room:
    """The memory that a model may take. weights: bytes of its weights while it is loaded;  all: bytes of weights and caches
    together;  caches: bytes of its caches per byte of a number, as far as they follow from the type"""

    weights: int
    all: int
    caches: int = 0


def fitting_choices(
    source: Path, spec: ModelSpec, dtype: torch.dtype, device: torch.device, room: Room
) -> list[Fit]:
    """The ways to load this model that would fit: another type, a GGUF file of fewer bits, a transform of the weights.

    Of each kind it names the one that keeps most; none of a kind where nothing of it fits.
    """
    choices = list[Fit]()
    for ways in (_other_types, _other_files, _transforms):
        fits = (x for x in ways(source, spec, dtype, device, room) if x is not None)
        choices += [best] if (best := next(fits, None)) is not None else []
    return choices


def _other_types(
    source: Path, spec: ModelSpec, dtype: torch.dtype, device: torch.device, room: Room
) -> Iterator[Fit | None]:
    if dtype.itemsize > torch.bfloat16.itemsize:
        smaller = [x for x in (torch.float32, torch.bfloat16) if x.itemsize < dtype.itemsize]
        for other in smaller:
            size = weight_bytes(source, spec, other, device)
            if size <= room.weights and size + room.caches * other.itemsize <= room.all:
                yield Fit(f"the type {type_name(other)}", size)


def _other_files(
    source: Path, spec: ModelSpec, dtype: torch.dtype, device: torch.device, room: Room
) -> Iterator[Fit | None]:
    now = weight_bytes(source, spec, dtype, device)
    if expected_kernels(dtype, device) != "rows":
        return  # its matrices would be unpacked
    table = spec.vocab * spec.d_model
    formats = {x: 8 * one.size / one.block for x, one in FORMATS.items() if x not in OWN_FORMATS}
    for name, bits in sorted(formats.items(), key=lambda x: -x[1]):
        numbers = spec.params - (0 if spec.tied else table)
        size = table * dtype.itemsize + int(numbers * bits / 8)
        if size < now and size <= room.weights and size + room.caches * dtype.itemsize <= room.all:
            yield Fit(f"a GGUF file of it in {name} or fewer bits", size)


def _transforms(
    source: Path, spec: ModelSpec, dtype: torch.dtype, device: torch.device, room: Room
) -> Iterator[Fit | None]:
    if spec.weights or dense_bytes(spec, dtype, device) > room.weights:
        return  # a transform begins with the whole model
    table = spec.vocab * spec.d_model * dtype.itemsize
    kept = table * (1 if spec.tied and not can_pack(dtype, device) else 2)
    numbers = spec.params - spec.vocab * spec.d_model * (1 if spec.tied else 2)
    known = list[tuple[float, str]]()
    for name, cls in registry("weights").items():
        one = cast("WeightTransform", cls())
        bits = one.stored_bits(8 * dtype.itemsize)
        known += [] if bits is None else [(bits, name)]
    for bits, name in sorted(known, reverse=True):
        size = kept + int(numbers * bits / 8)
        if size + room.caches * dtype.itemsize <= room.all:
            yield Fit(f"the weight compression {name}", size)


def type_name(dtype: torch.dtype) -> str:
    """The name of a type: bfloat16."""
    return str(dtype).removeprefix("torch.")


# ---- speed


def known_profile(dtype: torch.dtype, device: torch.device) -> HardwareProfile | None:
    """What was measured of this machine before: in this type, else in another, since bytes are bytes; None: nothing."""
    for one in dict.fromkeys((dtype, *DTYPES.values())):
        if (profile := load_profile(profile_key(one, device))) is not None:
            return profile
    return None


def most_tokens_per_second(
    source: Path, spec: ModelSpec, dtype: torch.dtype, device: torch.device
) -> float | None:
    """Tokens per second of plain decoding behind HELD tokens, by the cost model on the measured peaks of this machine.

    It is a bound: no run is faster. None where nothing was measured, or where transforms were asked for whose result is
    known only when it is made.
    """
    profile = known_profile(dtype, device)
    if profile is None or (spec.weights and not spec.bits):
        return None
    bits = 8.0 * dtype.itemsize
    weights, head = (bits, bits) if spec.bits else _weight_bits(source, spec, dtype, device)
    shape = PassShape(
        1, HELD, weight_bits=weights, head_bits=head, act_bits=bits, kv_bits=bits, dequant=weights < bits
    )
    try:
        us = profile.time_us(pass_ops(spec, shape), type_name(dtype)).us
    except ParamError:  # measured in another type: decoding waits for memory
        us = profile.time_us(pass_ops(spec, shape)).us
    return 1e6 / us if us else None


def _weight_bits(
    source: Path, spec: ModelSpec, dtype: torch.dtype, device: torch.device
) -> tuple[float, float]:
    """Average bits of a number in the matrices of the layers, and in the head, as passes will read them."""
    usual, shape = 8.0 * dtype.itemsize, _gguf_shape(source)
    if shape is None or expected_kernels(dtype, device) != "rows":
        return usual, usual
    size, numbers = 0.0, 0
    for i in range(spec.n_layers):
        for names in layer_plan(spec).values():
            some = [x for n in names if (x := shape.tensors.get(f"model.layers.{i}.{n}")) is not None]
            mine = sum(x.numbers for x in some)
            numbers += mine
            size += 8 * sum(x.size for x in some) if is_multiplied_packed(some) else usual * mine
    head = shape.tensors.get("model.embed_tokens.weight" if spec.tied else "lm_head.weight")
    packed = head is not None and is_multiplied_packed([head])
    return size / numbers if numbers else usual, (
        8 * head.size / head.numbers if head is not None and packed else usual
    )
