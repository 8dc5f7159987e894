"""A machine as a roofline: cost to time, by peak FLOP/s, bandwidth and the price of a launch. No torch.

An operator takes max(FLOPs / peak, bytes / bandwidth), plus `launch_us`. Two bounds are offered, and every Estimate
says which it is: "per operator" adds the operators' times, nothing overlapping; "whole step" treats the pass as one
operator, everything overlapping, and is never the larger. `hardware.py` has the machines.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from decodescope.engine.core.params import ParamError
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.trace.encoding.record_decoder import read_dataclass

from .cost import Cost, Op, PassShape, pass_ops
from .pass_curve import PassCurve

Bound = Literal["compute", "memory", "launch"]
Rule = Literal["per operator", "whole step"]
ByteRule = Literal["all", "weights", "weights+kv"]
Kind = Literal["measured", "carried over", "vendor", "recalled", "derived", "custom"]


@dataclass(frozen=True)
class Estimate:
    """How long a cost takes on a machine, at best.

    bound: what most of the time goes to; intensity: FLOP per byte of the whole
    compute_us, memory_us, launch_us: time in operators bound by arithmetic, bound by traffic, and in launching
    resident: the bandwidth of the processor's cache was used, not that of memory
    """

    us: float
    bound: Bound
    intensity: float
    rule: Rule
    compute_us: float
    memory_us: float
    launch_us: float
    resident: bool = False

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True)
class HardwareProfile:
    """One machine, or one dtype and thread count of it.

    peak_flops: FLOP/s, one figure or one per dtype ("float16", "int8", ...), the first being the default
    bandwidth:  bytes/s of main memory; launch_us: what every operator costs besides, microseconds
    kind, source: where the figures come from, in a word and in words
    memory_bytes: size of main memory; None: not known, or as much as is put in
    cache_bandwidth, cache_bytes: bytes/s when what is read fits in `cache_bytes`; None: not known
    details:    further figures of a measurement by name
    """

    name: str
    peak_flops: float | Mapping[str, float]
    bandwidth: float
    launch_us: float = 0.0
    source: str = "given by the user"
    kind: Kind = "custom"
    cache_bandwidth: float | None = None
    cache_bytes: int | None = None
    details: Mapping[str, float] = field(default_factory=dict)
    memory_bytes: float | None = None

    def __post_init__(self) -> None:
        peaks = self.peak_flops.values() if isinstance(self.peak_flops, Mapping) else [self.peak_flops]
        cached = [] if self.cache_bandwidth is None else [("cache_bandwidth", self.cache_bandwidth)]
        for what, value in [("peak_flops", v) for v in peaks] + [("bandwidth", self.bandwidth), *cached]:
            if not (math.isfinite(value) and value > 0):
                raise ParamError(f"{self.name}: {what} = {value!r}: must be a number above 0.")
        if not (math.isfinite(self.launch_us) and self.launch_us >= 0):
            raise ParamError(f"{self.name}: launch_us = {self.launch_us!r}: must be 0 or more microseconds.")
        if not 0 <= (self.cache_bytes or 0) < math.inf:
            raise ParamError(f"{self.name}: cache_bytes = {self.cache_bytes!r}: must be 0 or more bytes.")
        if not peaks:
            raise ParamError(f"{self.name}: peak_flops is empty: give FLOP/s for one dtype at least.")

    def peak(self, dtype: str | None = None) -> float:
        """FLOP/s for `dtype`; bfloat16 and float16 replace each other. None: the default."""
        if not isinstance(self.peak_flops, Mapping):
            return self.peak_flops
        wanted = dtype or next(iter(self.peak_flops))
        for name in (wanted, {"bfloat16": "float16", "float16": "bfloat16"}.get(wanted, "")):
            if name in self.peak_flops:
                return self.peak_flops[name]
        raise ParamError(f"{self.name} lists no peak for {dtype!r}; it has {', '.join(self.peak_flops)}.")

    def ridge(self, dtype: str | None = None) -> float:
        """FLOP per byte above which arithmetic is the bound."""
        return self.peak(dtype) / self.bandwidth

    def time_us(
        self, work: Cost | Iterable[Op], dtype: str | None = None, resident: bool | None = None
    ) -> Estimate:
        """The time of `work` on this machine: the whole-step bound of a Cost, the per-operator bound of operators.

        dtype chooses the peak: integer peaks only where weights, activations and cache all have 8 bits or fewer.
        resident: read from the processor's cache; None: if its bandwidth is known and weights and KV fit into it.
        """
        if isinstance(work, Cost):
            rule: Rule = "whole step"
            total, parts = work, [(work.flops, work.bytes)]
        else:
            rule, ops = "per operator", list(work)
            total, parts = Cost.of(ops), [(op.flops, op.bytes) for op in ops]
        kept = total.weight_bytes + total.kv_read_bytes + total.kv_write_bytes
        fits = self.cache_bandwidth is not None and kept <= (self.cache_bytes or 0)
        near = self.cache_bandwidth is not None and (fits if resident is None else resident)
        bandwidth, peak = self._bandwidth(near), self.peak(dtype)
        spent: dict[Bound, float] = {"compute": 0.0, "memory": 0.0, "launch": total.launches * self.launch_us}
        for flops, moved in parts:
            arithmetic, traffic = flops / peak * 1e6, moved / bandwidth * 1e6
            spent["compute" if arithmetic > traffic else "memory"] += max(arithmetic, traffic)
        return Estimate(
            us=sum(spent.values()),
            bound=max(spent, key=lambda bound: spent[bound]),
            intensity=total.intensity,
            rule=rule,
            compute_us=spent["compute"],
            memory_us=spent["memory"],
            launch_us=spent["launch"],
            resident=near,
        )

    def _bandwidth(self, resident: bool) -> float:
        return self.cache_bandwidth if resident and self.cache_bandwidth is not None else self.bandwidth

    def record(self) -> dict[str, Any]:
        """As plain data; `from_record` reads it back."""
        peaks = dict(self.peak_flops) if isinstance(self.peak_flops, Mapping) else self.peak_flops
        record = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return record | {"peak_flops": peaks, "details": dict(self.details), "ridge": self.ridge()}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> HardwareProfile:
        """The profile that `record()` described, without its derived or unknown fields.

        Raises TraceError or ParamError where it describes none.
        """
        return read_dataclass(cls, record)


def roof(
    profile: HardwareProfile, intensities: Sequence[float], dtype: str | None = None, resident: bool = False
) -> list[float]:
    """FLOP/s attainable at each intensity (FLOP per byte): min(peak, intensity * bandwidth)."""
    peak, bandwidth = profile.peak(dtype), profile._bandwidth(resident)
    return [min(peak, i * bandwidth) for i in intensities]


def verify_curve(
    profile: HardwareProfile,
    spec: ModelSpec,
    counts: Sequence[int],
    shape: PassShape,
    dtype: str | None = None,
    measured: PassCurve | None = None,
) -> list[float]:
    """v(n) for each n of `counts`: time of a pass over n tokens, all to the head, over that of one; per operator.

    shape: that of each pass; its `tokens` and `logits` are replaced by n
    measured: the curve that was measured on this machine; the numbers that it covers are read from it
    """

    def us(n: int) -> float:
        return profile.time_us(pass_ops(spec, replace(shape, tokens=n, logits=n)), dtype).us

    alone = us(1)
    return [
        measured.ratio(n) if measured is not None and measured.covers(n) else us(n) / alone for n in counts
    ]


def critical_tokens(
    profile: HardwareProfile, weight_bits: float, dtype: str | None = None, batch: int = 1
) -> float:
    """Tokens per sequence at which a linear is no longer bound by memory: ridge * (bytes per weight) / 2 / batch."""
    return profile.ridge(dtype) * weight_bits / 8 / 2 / batch


def mbu(profile: HardwareProfile, cost: Cost, us: float, rule: ByteRule = "all") -> float:
    """Model bandwidth utilisation: the share of main memory's bandwidth that a pass of `us` microseconds reached.

    rule names the bytes counted: "all" of the table, "weights" (gpt-fast; no embedding), or "weights+kv" (the usual
    one). Above 1 the weights were read from the processor's cache.
    """
    counted = {
        "all": cost.bytes,
        "weights": cost.weight_bytes,
        "weights+kv": cost.weight_bytes + cost.kv_read_bytes + cost.kv_write_bytes,
    }[rule]
    return counted / (us * 1e-6) / profile.bandwidth


def mfu(profile: HardwareProfile, cost: Cost, us: float, dtype: str | None = None) -> float:
    """Model FLOP utilisation: the share of the peak that a pass of `us` microseconds reached."""
    return cost.flops / (us * 1e-6) / profile.peak(dtype)
