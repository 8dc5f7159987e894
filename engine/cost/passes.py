"""Passes: bytes moved and FLOP of the forward passes of a step, by the cost model, next to their measured time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.trace.checks.model_shapes import validate_model
from decodescope.engine.trace.encoding.record_decoder import read_dataclass
from decodescope.engine.trace.records.events import DraftTree, Header, Pass, Prefill
from decodescope.engine.trace.records.parts import part_description
from decodescope.engine.trace.records.phases import is_deciding_pass
from decodescope.engine.trace.values.limits import TraceError

from .cost import DTYPE_BITS, Cost, cost_of

SPENT = ("draft", "verify")  # phases of the passes that write
# phases of what the target runs besides: what waited goes on, an oracle looks ahead, a table of states is filled
ASIDE = ("flush", "search", "lookup")
# what a price follows from
PRICED = tuple(x.name for x in fields(Pass) if x.name not in ("wall_us", "instrumented", "read"))


def spec_of(record: Mapping[str, Any]) -> ModelSpec:
    """The shape of a model, from its record in a trace's header. Raises TraceError if the header records none."""
    validate_model(record, "the model in the header")
    spec = read_dataclass(ModelSpec, record)
    if len(spec.windows) not in (0, spec.n_layers):
        raise TraceError("The header's model has no shape that a model can have: open an intact copy.")
    rows = [*[4] * spec.n_layers, 1]
    if spec.bits and (
        [*map(len, spec.bits)] != rows or not all(0 < x <= 64 for row in spec.bits for x in row)
    ):
        raise TraceError("The header's model says bits of weights that none has: open an intact copy.")
    cut = [*spec.widths, *(x for groups in spec.groups for x in groups)]
    if {len(spec.groups), len(spec.widths)} - {0, spec.n_layers} or min(cut, default=0) < 0:
        raise TraceError("The header's model was cut as none can be: open an intact copy.")
    if spec.picture is not None and (wrong := spec.picture.vocab_problem(spec.vocab)):
        raise TraceError(f"The header's model gives its picture {wrong}: open an intact copy.")
    return spec


class PassPricer:
    """Prices the passes of one run. A lane whose shape the header does not record has no price.

    before: lane -> the model's shape before transforms of its weights, where there were some
    prompt: tokens of the prompt that the target read, as the header says, until `learn` finds that a prompt compression left
            some out
    """

    def __init__(self, header: Header):
        self.dtype, self.bits = header.dtype, DTYPE_BITS.get(header.dtype)
        self._packs, self.prompt = part_description(header, "kv_compression"), len(header.prompt)
        self.specs: dict[str, ModelSpec] = {}
        inner = part_description(header, "strategy").get("decoders", {})
        for lane, record in [("target", header.model), *header.lanes.items(), *inner.items()]:
            try:
                self.specs[lane] = spec_of(record)
            except TraceError:  # a header without a model's shape
                continue
        self.before = {
            lane: spec.original_spec for lane, spec in self.specs.items() if spec.original_spec is not spec
        }
        self._alone = lru_cache(maxsize=4096)(self._price_pass)

    def learn(self, prefill: Prefill) -> Prefill:
        """Record how much of the prompt was read, and return the record."""
        if prefill.cut is not None:
            self.prompt = len(prefill.cut.kept)
        return prefill

    def rows(self, passes: Iterable[Pass], draft: DraftTree | None = None) -> list[dict[str, Any]]:
        """One row per lane and phase, in the order of the passes.

        A row has the number of passes, rows fed, FLOP, bytes moved and seconds. It also has the most bytes of weights and KV
        that one pass reads, which a processor's cache would have to hold. For a lane whose weights were transformed, `before`
        has the same three prices of these passes for the original model.
        """
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for one in passes:
            if self.bits is None or one.lane not in self.specs or one.wall_us <= 0:
                continue
            tree = draft if is_deciding_pass(one) else None
            row = rows.setdefault(
                (one.lane, one.phase),
                {
                    "lane": one.lane,
                    "phase": one.phase,
                    "n": 0,
                    "rows": 0,
                    "flops": 0,
                    "bytes": 0,
                    "kept": 0,
                    "s": 0.0,
                },
            )
            row["n"] += 1
            row["rows"] += one.tokens * one.batch
            _add_cost(row, self.cost(one, tree))
            if one.lane in self.before:
                name = self.before[one.lane].name
                _add_cost(
                    row.setdefault("before", {"name": name, "flops": 0, "bytes": 0, "kept": 0}),
                    self.cost(one, tree, True),
                )
            row["s"] = round(row["s"] + one.wall_us / 1e6, 9)
        return list(rows.values())

    def saved_layers(self, passes: Iterable[Pass], emitted: int) -> float | None:
        """Layers of one row that a step saved, by FLOPs; None: it has no price.

        That is what plain decoding of so many tokens runs, less what the target's passes did. Tests, propagated states and
        answers beyond one a token are counted against it.
        """
        spec, ran = self.specs.get("target"), [x for x in passes if x.lane == "target" and x.phase in SPENT]
        if spec is None or self.bits is None or not ran:
            return None
        held, aside = ran[-1].held, [x for x in passes if x.lane == "target" and x.phase in ASIDE]
        # n: answers
        plain, bare = (self.cost(Pass("target", "verify", 1, held, 1.0, logits=n)).flops for n in (1, 0))
        return (plain * emitted - sum(self.cost(x).flops for x in (*ran, *aside))) * spec.n_layers / bare

    def cost(self, one: Pass, draft: DraftTree | None = None, before: bool = False) -> Cost:
        """The price of one pass of a lane whose shape is known.

        `draft`: the tree that it checked; before: price the same pass for the model that the lane's was made from.
        """
        if draft is not None and draft.parents:
            spec = (self.before if before else self.specs)[one.lane]
            return cost_of(spec, one, draft=draft, bits=self.bits or 0, read_bits=self.read_bits(one))
        known = {name: freeze_lists(getattr(one, name)) for name in PRICED}
        if one.read is not None:
            known["held"] = freeze_lists(one.read)
        return self._alone(before, self.read_bits(one), *known.values())

    def _price_pass(self, before: bool, read: float | None, *known: Any) -> Cost:
        one = Pass(wall_us=1.0, **dict(zip(PRICED, known, strict=True)))
        return cost_of(
            (self.before if before else self.specs)[one.lane], one, bits=self.bits or 0, read_bits=read
        )

    def read_bits(self, one: Pass) -> float | None:
        """Average bits of a number of the entries that a pass reads, where KV compression has packed older ones.

        None: nothing is packed. The prompt is read before that.
        """
        bits = self._packs.get("reads", self._packs.get("bits"))
        whole = self._packs.get("whole")
        held = one.held
        if (
            not bits
            or not whole
            or not self.bits
            or one.lane != "target"
            or not isinstance(held, int)
            or held < self.prompt
        ):
            return None
        packed = held - held % whole
        mean_bits: float = self.bits + packed * (bits - self.bits) / (held + one.tokens)
        return mean_bits


def _add_cost(sums: dict[str, Any], cost: Cost) -> None:
    """Add the price of a pass to those of a row."""
    sums["flops"] += cost.flops
    sums["bytes"] += cost.bytes
    sums["kept"] = max(sums["kept"], cost.weight_bytes + cost.kv_read_bytes + cost.kv_write_bytes)


def freeze_lists(held: Any) -> Any:
    """Held or read entries of a pass, as tuples instead of lists, so that equal passes are priced once."""
    return tuple(freeze_lists(x) for x in held) if isinstance(held, list) else held
