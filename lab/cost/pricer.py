"""Pricer: a recorded run priced by the cost model, on its own machine or another one, with its own models or others.

The recorded decisions stay: the same passes, rows and entries held. A pass takes the longer of its arithmetic and its traffic,
plus its launches (`HardwareProfile.time_us`, the whole-step bound). The time between passes is left out. Every figure is a
model's; `assumptions` lists in words what it is based on.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decodescope.engine.core.params import ParamError
from decodescope.engine.core.roles import TARGET
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import DTYPE_BITS, expected_tokens, ops_of, speedup
from decodescope.engine.cost.hardware import HardwareProfile
from decodescope.engine.cost.pass_curve import PassCurve, recorded_curve
from decodescope.engine.cost.passes import PassPricer
from decodescope.engine.cost.utilization import Utilization, pass_utilization, steps_utilization
from decodescope.engine.trace.records.auxiliary_nodes import drafted_depths, drafted_nodes
from decodescope.engine.trace.records.events import DraftTree, Header, Pass, Prefill, Step
from decodescope.engine.trace.records.parts import part_description
from decodescope.engine.trace.records.phases import DECIDES, READS, is_deciding_pass

STEPS = 4000  # number of first steps of a run that are priced
POINTS = 400  # checks that are shown one by one
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)  # draft lengths on the surface
SHARES = tuple(x / 10 for x in range(10, 0, -1))  # shares of drafted tokens that are accepted


def _model_shape(  # noqa: PLR0913
    name: str,
    layers: int,
    heads: int,
    kv: int,
    width: int,
    d_model: int,
    d_ff: int,
    vocab: int,
    qwen: bool = False,
) -> ModelSpec:
    """qwen: with biases of queries, keys and values, and one matrix for embedding and unembedding."""
    return ModelSpec(name, layers, heads, kv, width, d_model, d_ff, vocab, tied=qwen, qkv_bias=qwen)


# Shapes as their makers published them with the weights (config.json); only sizes are used, no weights are read. Compared with
# published copies of these configs and printed models; a test compares the parameters with those that the makers name.
SHAPES: dict[str, ModelSpec] = {
    "qwen2.5-0.5b": _model_shape("Qwen2.5 0.5B", 24, 14, 2, 64, 896, 4864, 151936, qwen=True),
    "tinyllama-1.1b": _model_shape("TinyLlama 1.1B", 22, 32, 4, 64, 2048, 5632, 32000),
    "llama-2-7b": _model_shape("Llama 2 7B", 32, 32, 32, 128, 4096, 11008, 32000),
    "llama-3.1-8b": _model_shape("Llama 3.1 8B", 32, 32, 8, 128, 4096, 14336, 128256),
    "llama-2-13b": _model_shape("Llama 2 13B", 40, 40, 40, 128, 5120, 13824, 32000),
    "llama-2-70b": _model_shape("Llama 2 70B", 80, 64, 8, 128, 8192, 28672, 32000),
}


@dataclass(frozen=True)
class PricedRun:
    """The input of the pricer: a header, the prefill, and the first steps."""

    header: Header
    prefill: Prefill | None
    steps: Sequence[Step]

    @property
    def depth(self) -> float:
        """Levels of guesses per step, the mean over the steps that drafted; 0: none did."""
        heights = [max(deep) for step in self.steps if (deep := drafted_depths(step.draft))]
        return statistics.fmean(heights) if heights else 0.0

    @property
    def tau(self) -> float:
        """Tokens per pass of the target."""
        passes = sum(is_deciding_pass(one) for step in self.steps for one in step.passes)
        return sum(len(step.emitted) for step in self.steps) / passes if passes else 0.0


@dataclass(frozen=True)
class CostDeviation:
    """The deviation of the model from the clock, on the machine of the run.

    model, clock: seconds of all its passes;  least, most: smallest and largest ratio of model to clock by kind of pass
    """

    model: float
    clock: float
    least: float
    most: float

    @property
    def share(self) -> float:
        """Model over clock, minus 1; negative: the passes took longer than the model says."""
        return self.model / self.clock - 1

    def __str__(self) -> str:
        each = (
            f"; by kind of pass {_signed_percent(self.least - 1)} to {_signed_percent(self.most - 1)}"
            if self.most > self.least
            else ""
        )
        took = (
            f"its passes took {_format_seconds(self.clock)}, and the model says {_format_seconds(self.model)}"
        )
        return f"The model is off by {_signed_percent(self.share)} for this run on its own machine: {took}{each}."


def cost_deviation(rows: Sequence[Mapping[str, Any]]) -> CostDeviation | None:
    """The deviation from `Pricer.rows` on the machine of the run itself; None: no pass has a price and a time."""
    shares = [row["model"] / row["s"] for row in rows if row["s"] > 0]
    if not shares:
        return None
    model, clock = (sum(row[name] for row in rows if row["s"] > 0) for name in ("model", "s"))
    return CostDeviation(model, clock, min(shares), max(shares))


def _signed_percent(share: float) -> str:
    return f"{100 * share:+.0f} %".replace("-", "−")


def _format_seconds(s: float) -> str:
    return f"{s:.2f} s" if s >= 1 else f"{1e3 * s:.1f} ms"


class Pricer:
    """Prices the passes of a run on `machine`; `models` (lane -> shape) replace the run's own.

    Raises ParamError where the machine has no peak, or where a pass ran layers that another model does not have.
    """

    def __init__(
        self, run: PricedRun, machine: HardwareProfile, models: Mapping[str, ModelSpec] | None = None
    ):
        self.run, self.machine = run, machine
        self.dtype = run.header.dtype
        try:
            machine.peak(self.dtype)
        except ParamError:
            if not isinstance(machine.peak_flops, Mapping):
                raise
            self.dtype = next(iter(machine.peak_flops))
        self.passes = PassPricer(run.header)
        if run.prefill is not None:
            self.passes.learn(run.prefill)
        self.passes.dtype, self.passes.bits = self.dtype, DTYPE_BITS.get(self.dtype)
        self.replaced = {lane: shape for lane, shape in (models or {}).items() if lane in self.passes.specs}
        self.passes.specs |= self.replaced
        if self.passes.bits is None or "target" not in self.passes.specs:
            raise ParamError(
                "The record does not have the shape of the run's model or its type: nothing can be priced."
            )

    @property
    def curve(self) -> PassCurve | None:
        """The measured curve of the run's own target, if this is the machine, type and model that it was measured on."""
        header = self.run.header
        own = self.machine.kind == "measured" and (header.machine or {}).get("name") == self.machine.name
        same = self.dtype == header.dtype and TARGET not in self.replaced
        return recorded_curve(header.pass_us, TARGET) if own and same else None

    def pass_us(self, one: Pass, draft: DraftTree | None = None) -> float | None:
        """Microseconds of one pass; None: the shape of its lane is not recorded."""
        return None if one.lane not in self.passes.specs else self._estimate(one, draft).us

    def _estimate(self, one: Pass, draft: DraftTree | None) -> Any:
        if one.lane in self.replaced and (one.attn, one.ffn, one.propagated) != (None, None, None):
            raise ParamError(
                f"The passes of {one.lane} leave layers out by number, which another model has not: keep the run's own model."
            )
        each = next((x for x in (one.read, one.held) if isinstance(x, list)), None)
        if one.lane in self.replaced and each is not None and len(each) != self.replaced[one.lane].n_layers:
            raise ParamError(
                f"What the passes of {one.lane} held or read is recorded of {len(each)} layers, and another model has "
                f"{self.replaced[one.lane].n_layers}: keep the run's own model."
            )
        return self.machine.time_us(
            self.passes.cost(one, draft if is_deciding_pass(one) else None), self.dtype
        )

    def rows(self) -> list[dict[str, Any]]:
        """Per lane and phase: passes, rows fed, FLOP, bytes, seconds by the clock and by the model, and the main bound."""
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        bounds: dict[tuple[str, str], Counter[str]] = {}
        for one, draft in self._all_passes():
            if one.lane not in self.passes.specs or one.wall_us <= 0:
                continue
            estimate = self._estimate(one, draft)
            cost = self.passes.cost(one, draft)
            key = (one.lane, one.phase)
            zero = {
                "lane": key[0],
                "phase": key[1],
                "n": 0,
                "rows": 0,
                "flops": 0,
                "bytes": 0,
                "s": 0.0,
                "model": 0.0,
            }
            row = rows.setdefault(key, zero)
            for name, more in [
                ("n", 1),
                ("rows", one.tokens * one.batch),
                ("flops", cost.flops),
                ("bytes", cost.bytes),
            ]:
                row[name] += more
            row["s"] += one.wall_us / 1e6
            row["model"] += estimate.us / 1e6
            word = "cache bandwidth" if estimate.resident and estimate.bound == "memory" else estimate.bound
            bounds.setdefault(key, Counter())[word] += estimate.us
        return [{**row, "bound": bounds[key].most_common(1)[0][0]} for key, row in rows.items()]

    def _all_passes(self) -> list[tuple[Pass, DraftTree | None]]:
        first: list[tuple[Pass, DraftTree | None]] = [
            (x, None) for x in (self.run.prefill.passes if self.run.prefill else [])
        ]
        return first + [
            (x, step.draft if is_deciding_pass(x) else None) for step in self.run.steps for x in step.passes
        ]

    def plain_us(self) -> float:
        """A pass over one token, after as many entries as the run's checks held on average."""
        held = [one.entries for step in self.run.steps for one in step.passes if is_deciding_pass(one)]
        return self._check_us(1, round(statistics.fmean(held)) if held else len(self.run.header.prompt))

    def _check_us(self, rows: int, held: int) -> float:
        return float(
            self.machine.time_us(self.passes.cost(Pass("target", "verify", rows, held, 1.0)), self.dtype).us
        )

    def surface(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Speed relative to plain decoding by length of the draft and share of drafted tokens that are accepted.

        On the machine of the run costs are those measured there, where the header keeps them: of a pass by its rows, and of
        drafting by the clock. Else they are the model's.

        draft: a drafted level in plain steps, from this run's own drafting; 0: it has none. point: length and share of the
        run; the share is the one at which a chain of that length emits as many tokens per pass as the run did.
        """
        held = [one.entries for step in self.run.steps for one in step.passes if is_deciding_pass(one)]
        middle, alone = round(statistics.fmean(held)) if held else 1, self.plain_us()
        levels = self.run.depth * sum(bool(drafted_nodes(step.draft)) for step in self.run.steps)
        curve = self.curve
        known = curve is not None and curve.covers(LENGTHS[-1] + 1)
        time = "s" if known else "model"
        spent = sum(row[time] for row in rows if row["phase"] not in READS and not _is_check(row))
        alone = curve.time_us(1) if curve is not None and known else alone
        draft = spent * 1e6 / levels / alone if levels else 0.0
        check = {
            n: curve.ratio(n + 1) if curve is not None and known else self._check_us(n + 1, middle) / alone
            for n in LENGTHS
        }
        grid = [[round(speedup(share, n, draft, check[n]), 4) for n in LENGTHS] for share in SHARES]
        point = (
            {"length": self.run.depth, "share": acceptance_for_tau(self.run.tau, self.run.depth)}
            if levels
            else None
        )
        return {
            "lengths": LENGTHS,
            "shares": SHARES,
            "grid": grid,
            "draft": draft,
            "check": list(check.values()),
            "point": point,
        }

    def utilization(self) -> dict[str, Any]:
        """The shares of the machine's limits that the run reached; the machine must be its own.
        They are given for all steps together (`steps`), and by lane and phase for bandwidth and peak (`rows`)."""
        kinds: dict[tuple[str, str], Utilization] = {}
        for one, draft in self._all_passes():
            key = (one.lane, one.phase)
            kinds[key] = kinds.get(key, Utilization()) + pass_utilization(
                self.passes, one, draft, self.machine
            )
        rows = [(key, x.record(self.machine, self.dtype)) for key, x in kinds.items() if x.us]
        return {
            "steps": steps_utilization(self.passes, self.run.steps, self.machine).record(
                self.machine, self.dtype
            ),
            "rows": [
                {"lane": lane, "phase": phase, "mbu": x["mbu"], "mfu": x["mfu"]} for (lane, phase), x in rows
            ],
        }

    def assumptions(self) -> list[str]:
        """The assumptions behind the figures, one sentence each."""
        m, launch = self.machine, self.machine.launch_us
        said = [
            f"Tokens per pass are held at {self.run.tau:.2f}, as recorded, and so are the passes and their rows."
        ]
        for lane, shape in self.replaced.items():
            said.append(f"{shape.name} replaces the {lane} model; its guesses are taken to be as good.")
        if self.dtype != self.run.header.dtype:
            said.append(
                f"Weights, activations and cache are {self.dtype} there; the run was {self.run.header.dtype}."
            )
        near = " or from the processor's cache where they fit" if m.cache_bandwidth else ""
        said.append(f"One sequence; weights come from memory{near} at every pass.")
        if launch:
            said.append(f"Each operator costs {launch:.1f} µs to launch, and none is captured in a graph.")
        else:
            said.append(
                "What a launch costs there is not known and left out: small passes look faster than they are."
            )
        if (curve := self.curve) is not None:
            sizes = ", ".join(map(str, curve.rows))
            said.append(
                f"The table of lengths and shares uses measured times: passes over {sizes} rows, timed before the run."
            )
        said.append(
            "A pass takes the longer of its arithmetic and its traffic, plus its launches; its parts overlap fully."
        )
        inside = sum(one.wall_us for step in self.run.steps for one in step.passes)
        whole = sum(step.wall_us for step in self.run.steps)
        if whole > inside > 0:
            said.append(
                f"What lies between the passes, {100 * (1 - inside / whole):.0f} % of this run's time, is left out."
            )
        weights = sum(self.passes.specs[lane].params for lane in self.lanes) * (self.passes.bits or 0) / 8
        if m.memory_bytes and weights > m.memory_bytes:
            said.append(
                f"The weights take {weights / 1e9:.0f} GB, and its memory has {m.memory_bytes / 1e9:.0f}: they would not fit."
            )
        said.append(f"Figures of {m.name}: {m.kind}, {m.source}.")
        return said

    @property
    def lanes(self) -> set[str]:
        """Lanes with priced passes."""
        return {one.lane for one, _ in self._all_passes()} & set(self.passes.specs)

    def checks(self) -> list[tuple[float, float]]:
        """FLOP per byte and FLOP/s of the target's measured checks, POINTS of them at most."""
        checks = [
            (one, draft) for one, draft in self._all_passes() if is_deciding_pass(one) and one.wall_us > 0
        ]
        priced = [
            (self.passes.cost(one, draft), one.wall_us)
            for one, draft in checks[:: -(-len(checks) // POINTS) or 1]
        ]
        return [(cost.intensity, cost.flops / us * 1e6) for cost, us in priced]

    def operators(self, step: Step) -> list[dict[str, Any]]:
        """The cost of the passes of one step by kind of operator, all layers together, in order of execution."""
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for one in step.passes:
            spec = self.passes.specs.get(one.lane)
            if spec is None:
                continue
            tree = (
                step.draft
                if is_deciding_pass(one) and step.draft is not None and step.draft.parents
                else None
            )
            read = self.passes.read_bits(one)
            for op in ops_of(spec, one, draft=tree, bits=self.passes.bits or 0, read_bits=read):
                zero = {
                    "lane": one.lane,
                    "name": op.name,
                    "n": 0,
                    "flops": 0,
                    "weights": 0,
                    "kv": 0,
                    "act": 0,
                    "us": 0.0,
                }
                row = rows.setdefault((one.lane, op.name), zero)
                row["n"] += 1
                row["flops"] += op.flops
                row["weights"] += op.weight_bytes
                row["kv"] += op.kv_read_bytes + op.kv_write_bytes
                row["act"] += op.act_bytes
                row["us"] += self.machine.time_us([op], self.dtype).us
        return list(rows.values())

    def record(self) -> dict[str, Any]:
        """All of it as plain data: rows, seconds a token by model and clock, surface, assumptions. plain, speedup: None if
        the target writes no text without a decoder that the strategy makes from its heads."""
        rows = self.rows()
        tokens = sum(len(step.emitted) for step in self.run.steps)
        spent = sum(row["model"] for row in rows if row["phase"] not in READS)
        # it cannot write text alone
        plain = (
            None if part_description(self.run.header, "strategy").get("decoders") else self.plain_us() / 1e6
        )
        measured = sum(step.wall_us for step in self.run.steps) / 1e6
        m = self.machine
        return {
            "name": m.name,
            "kind": m.kind,
            "source": m.source,
            "dtype": self.dtype,
            "peak": m.peak(self.dtype),
            "bandwidth": m.bandwidth,
            "cache_bandwidth": m.cache_bandwidth,
            "cache_bytes": m.cache_bytes,
            "launch_us": m.launch_us,
            "rows": rows,
            "token": spent / tokens if tokens else None,
            "plain": plain,
            "measured": measured / tokens if tokens else None,
            "speedup": plain * tokens / spent if plain and spent and tokens else None,
            "surface": self.surface(rows),
            "assumptions": self.assumptions(),
        }


def acceptance_for_tau(tau: float, length: float) -> float:
    """The share of accepted tokens at which a chain of `length` guesses emits `tau` tokens per pass; by halving."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_tokens(middle, length) < tau else (low, middle)  # type: ignore[arg-type]
    return (low + high) / 2


def _is_check(row: Mapping[str, Any]) -> bool:
    return bool(row["lane"] == "target" and row["phase"] in DECIDES)
