"""Six columns that every table of methods has: memory, compute use, latency, throughput, energy, compression.

Only this module has their arithmetic.

    memory       bytes of the weights of all models that are read, and the most that all caches held: counted from storages
    compute use  FLOPs of the steps' passes over their time, as a share of the peak that `decodescope hardware` measured (MFU)
    latency      a whole answer, prompt included, in seconds; the median
    throughput   tokens a second of the steps, all answers together
    energy       joules a token, by the processor's counters
    compression  memory of the first method, plain decoding, over that of this one

A figure that cannot be known is None, in a table "n/a".
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from torch import Tensor

from decodescope.engine.core.params import ParamError
from decodescope.engine.cost.hardware import load_profile
from decodescope.engine.cost.passes import PassPricer
from decodescope.engine.cost.utilization import Utilization, pass_utilization
from decodescope.engine.session.load import Model
from decodescope.engine.timing.energy import joules_between, read_joules
from decodescope.engine.timing.measure import profile_key
from decodescope.engine.trace.records.events import Header, Pass, Prefill, Step
from decodescope.engine.trace.records.phases import is_deciding_pass

SIX = ("memory", "compute use", "latency", "throughput", "energy", "compression")
Spent = dict[str, float | None]  # what an answer took; a row holds one


class Meter:
    """Counts the cost of one session.

    Make it from its header before it starts, then give it the prompt's record and every step.
    """

    def __init__(self, header: Header):
        self._prices, self._before = PassPricer(header), read_joules()
        self._worked = Utilization()
        self._kv = 0
        self._prefill_s = 0.0
        self._decode_s = 0.0

    def add_prompt(self, began: Prefill) -> None:
        """Count what the prompt took."""
        self._prefill_s += began.wall_us / 1e6
        self._kv = max(self._kv, sum(x.held_bytes for x in began.cache))

    def add(self, step: Step) -> None:
        """Count a step."""
        self.add_passes(step.passes, step.wall_us / 1e6, sum(x.held_bytes for x in step.cache), step)

    def add_passes(
        self, passes: Iterable[Pass], seconds: float, kv_bytes: int, step: Step | None = None
    ) -> None:
        """Count passes behind the prompt with their time, and what all caches held then; `step`: the step they belong to."""
        tree = None if step is None else step.draft
        parts = (pass_utilization(self._prices, x, tree if is_deciding_pass(x) else None) for x in passes)
        self._worked = sum(parts, self._worked)
        self._kv = max(self._kv, kv_bytes)
        self._decode_s += seconds

    def totals(self, tokens: int) -> Spent:
        """What was spent on an answer of so many tokens."""
        return {
            "tokens": tokens,
            "seconds": self._prefill_s + self._decode_s,
            "decode_s": self._decode_s,
            "flops": self._worked.cost.flops,
            "kv_bytes": self._kv,
            "joules": joules_between(self._before, read_joules()),
        }


Records = tuple[Header, Prefill, Sequence[Step]]


def cost_from_records(records: Records | None, tokens: int, seconds: float, energy: float | None) -> Spent:
    """The cost of a finished answer of so many tokens.

    It comes from its records, the caller's clock, and joules. None: nobody recorded it, and so only the latter are known.
    """
    known: Spent = {"tokens": tokens, "seconds": seconds, "decode_s": None, "flops": None, "kv_bytes": None}
    if records is not None:
        meter = Meter(records[0])
        meter.add_prompt(records[1])
        for step in records[2]:
            meter.add(step)
        known |= meter.totals(tokens)
    return {**known, "seconds": seconds, "joules": energy}


def sum_costs(parts: Sequence[Spent]) -> Spent:
    """The cost of several answers, the turns of one talk: the caches' bytes are their maximum, the rest adds up."""
    if not parts:
        return {}
    sums: Spent = {}
    for name in parts[0]:
        values = [x[name] for x in parts]
        known = [x for x in values if x is not None]
        if len(known) < len(values):
            sums[name] = None
        elif name == "kv_bytes":
            sums[name] = max(known)
        else:
            sums[name] = sum(known)
    return sums


@dataclass(frozen=True)
class AnswerCost:
    """A row that holds only the cost of one answer of a method."""

    method: str
    spent: Spent


class CostedRow(Protocol):
    """A row of a measurement: the result of one method for one question."""

    @property
    def method(self) -> str:
        """Its name."""
        ...

    @property
    def spent(self) -> Mapping[str, float | None]:
        """What it took; empty where that is not known."""
        ...


def columns(
    settings: Mapping[str, Any], rows: Iterable[CostedRow], names: Mapping[str, str] | None = None
) -> dict[str, dict[str, float | None]]:
    """Method -> its six figures, by the names of SIX; compression is relative to the first method.

    names: name of a line in the table -> the method whose weights it has, where the two differ.
    """
    by_method: dict[str, list[Mapping[str, float | None]]] = {}
    for row in rows:
        by_method.setdefault(row.method, [])
        if row.spent:
            by_method[row.method].append(row.spent)
    weights, peak = settings.get("weights") or {}, settings.get("peak")
    of = {name: weights.get(name if names is None else names[name]) for name in by_method}
    figures = {name: six_figures(spent, of[name], peak) for name, spent in by_method.items() if spent}
    first = next(iter(figures.values()), {}).get("memory")
    for one in figures.values():
        one["compression"] = first / one["memory"] if first and one["memory"] else None
    return figures


def six_figures(
    spent: Sequence[Mapping[str, float | None]], weights: int | None, peak: float | None
) -> dict[str, float | None]:
    """The figures of one method from the measurements of its answers; `columns`, which has all methods, adds compression."""
    total, seconds = sum_costs([dict(x) for x in spent]), [x["seconds"] for x in spent]
    tokens, decode_s, flops, energy = (total[name] for name in ("tokens", "decode_s", "flops", "joules"))
    whole = [x for x in seconds if x is not None]
    return {
        "memory": None if weights is None else weights + (total["kv_bytes"] or 0),
        "compute use": flops / decode_s / peak if flops and decode_s and peak else None,
        "latency": statistics.median(whole) if whole else None,
        "throughput": tokens / decode_s if tokens and decode_s else None,
        "energy": energy / tokens if energy is not None and tokens else None,
        "compression": None,
    }


def count_weight_bytes(models: Iterable[Model]) -> int:
    """Bytes of all weights that these models hold, each storage once."""
    tensors: dict[int, Tensor] = {}
    for model in models:
        decoder = model.decoder
        own = [decoder.embed, decoder.norm, decoder.head, decoder.unembedding]
        for layer in decoder.layers:
            own += [x for field in fields(layer) if isinstance(x := getattr(layer, field.name), Tensor)]
        tensors |= {_storage_key(x): x for x in own}
    return sum(_tensor_bytes(x) for x in tensors.values())


def _storage_key(weight: Tensor) -> int:
    """A key that identifies a tensor's storage.

    Packed weights, and weights in few bits, are identified by the object itself.
    """
    plain = type(weight) is Tensor and not weight.is_mkldnn
    return weight.data_ptr() if plain else id(weight)


def _tensor_bytes(weight: Tensor) -> int:
    return weight.numel() * weight.element_size() if weight.is_mkldnn else int(weight.nbytes)


def measured_peak(model: Model) -> float | None:
    """FLOP/s measured on this machine for a model's type; None: `decodescope hardware` was not run here."""
    dtype = str(model.decoder.dtype).removeprefix("torch.")
    try:
        profile = load_profile(profile_key(dtype, model.decoder.device))
        return None if profile is None else profile.peak(dtype)
    except ParamError:
        return None
