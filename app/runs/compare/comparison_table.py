"""Comparison table: one row of figures for each run, what every two runs share, and the table as a file."""

from __future__ import annotations

import csv
import io
import statistics
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import closing
from itertools import combinations
from typing import Any

from decodescope.app.basis.refusal import RequestRefusal, explain_error
from decodescope.engine.bench.questions.bootstrap import bootstrap_interval
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.trace import Trace, open_trace
from decodescope.engine.trace.query.comparability import (
    comparison_key,
    describe_divergence,
    exactness_mark_text,
    is_plain,
)
from decodescope.engine.trace.records.parts import method_label
from decodescope.lab.decision.decision_csv import escape_formula
from decodescope.lab.views.contrast import RunSide, contrast, shared_randomness

from ..record_stream import RecordStream
from .comparison import LETTERS
from .repeats import SURE

KEPT = 16  # runs with figures in memory
# the fields of a row, and their heads in a file
COLUMNS = {
    "letter": "pane",
    "run": "run",
    "method": "method",
    "model": "model",
    "seed": "seed",
    "status": "status",
    "tokens": "tokens",
    "steps": "steps",
    "passes": "target passes",
    "tau": "tokens per pass",
    "accepted": "accepted per drafting step",
    "accepted_low": "95 % from",
    "accepted_high": "95 % to",
    "accepted_n": "drafting steps",
    "share": "share of trials accepted",
    "rate": "tokens per second, one run",
    "held": "KV bytes of memory",
    "kept": "KV bytes of the entries kept",
    "full": "KV bytes of all entries",
    "ratio": "times the baseline's speed",
    "ratio_low": "from",
    "ratio_high": "to",
    "ratio_n": "runs of each",
    "equal": "tokens equal to the baseline's",
    "text": "text",
    "gap": "gap of the target's two likeliest where it parts, nats",
}


class ComparisonTable:
    """Figures of runs for comparison. A run is read once, until something is added to it."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, int, bool], tuple[RunSide, dict[str, Any]]] = OrderedDict()
        self._lock = threading.Lock()

    def compare(self, channels: Sequence[RecordStream]) -> dict[str, Any]:
        """A row per run, and the relation of every two that have begun. Raises RequestRefusal."""
        sides = [self._row(channel) for channel in channels]
        rows = [{"letter": letter, **row} for letter, (_, row) in zip(LETTERS, sides, strict=False)]
        pairs = []
        for i, j in combinations(range(len(sides)), 2):
            a = sides[i][0]
            b = sides[j][0]
            names = (LETTERS[i], LETTERS[j])
            if a is not None and b is not None:
                contrasted = contrast(a, b, names)
                texts = [a.text_of(contrasted.at), b.text_of(contrasted.at)]
                pairs.append(
                    {
                        "a": i,
                        "b": j,
                        **contrasted.record(),
                        "texts": texts,
                        "chance": shared_randomness(a, b, contrasted, names),
                    }
                )
        for row, (side, _) in zip(rows, sides, strict=True):
            if side is not None and side.header.exactness == "lossy":
                row["away"] = _divergence(
                    side, [(letter, one) for letter, (one, _) in zip(LETTERS, sides, strict=False)]
                )
        return {"rows": rows, "pairs": pairs}

    def table(
        self, channels: Sequence[RecordStream], base: int, rounds: dict[str, Any] | None
    ) -> dict[str, Any]:
        """The same with every run's speed against that of run number `base`: from `rounds`, or from one run of each."""
        compared = self.compare(channels)
        rows, pairs = compared["rows"], {(x["a"], x["b"]): x for x in compared["pairs"]}
        ratios = (rounds or {}).get("ratios", {}).get(rows[base]["run"], {})
        for i, row in enumerate(rows):
            pair = pairs.get((min(i, base), max(i, base)))
            if i == base or pair is None:
                continue
            row |= {"equal": pair["at"], "text": pair["verdict"], "gap": pair["gap"]}
            if (again := ratios.get(row["run"])) is not None:
                low, high = again["interval"]
                row |= {"ratio": again["median"], "ratio_low": low, "ratio_high": high, "ratio_n": again["n"]}
            elif row.get("rate") and rows[base].get("rate"):
                row |= {"ratio": row["rate"] / rows[base]["rate"], "ratio_n": 1}
        return {**compared, "base": LETTERS[base], "repeats": rounds}

    def _row(self, channel: RecordStream) -> tuple[RunSide | None, dict[str, Any]]:
        key = (channel.run, channel.count, channel.over)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        begun: dict[str, Any] = {"run": channel.run, "status": channel.status}
        if channel.wire is None:
            return None, begun
        try:
            side = _read_side(channel)
            row = (side, begun | _run_figures(side))
        except (ValueError, LookupError, ArithmeticError) as error:
            # a record from elsewhere may be well-formed and yet make no sense
            why = "" if isinstance(error, Refusal) else "A run cannot be compared. "
            raise RequestRefusal(why + explain_error(error)) from None
        with self._lock:
            self._known[key] = row
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return row


def _divergence(side: RunSide, others: Sequence[tuple[str, RunSide | None]]) -> str:
    """Where a text that may differ departs from a plain run with its settings, in words; empty: there is no such run."""
    begun = ((letter, x) for letter, x in others if x is not None and is_plain(x.header))
    alike = ((letter, x) for letter, x in begun if comparison_key(x.header) == comparison_key(side.header))
    letter, plain = next(alike, ("", None))
    return (
        "" if plain is None else describe_divergence(side.tokens, plain.tokens, f"plain decoding ({letter})")
    )


def _read_side(channel: RecordStream) -> RunSide:
    if channel.over and channel.path.is_file():
        with closing(open_trace(channel.path)) as trace:
            return RunSide.of(trace)
    assert channel.wire is not None
    known = [x for x in (channel.wire.header, channel.wire.prefill) if x is not None]
    side = RunSide.of(Trace([*known, *channel.steps(0, channel.count)]))
    side.over = channel.over
    return side


def _run_figures(side: RunSide) -> dict[str, Any]:
    s = side.summary
    h = side.header
    kept = side.kept
    low, high = bootstrap_interval(kept, sure=SURE, of=statistics.fmean) if kept else (None, None)
    return {
        "method": method_label(h),
        "model": str(h.model.get("name", ""))[:80],
        "seed": h.seed,
        "exactness": h.exactness,
        "mark": exactness_mark_text(h),
        "tokens": len(side.tokens),
        "steps": s.steps,
        "passes": s.target_passes,
        "tau": s.tau,
        "accepted": statistics.fmean(kept) if kept else None,
        "accepted_low": low,
        "accepted_high": high,
        "accepted_n": len(kept),
        "share": s.acceptance,
        "rate": s.tokens_per_s,
        "held": s.kv_bytes_held,
        "kept": s.kv_bytes_kept,
        "full": s.kv_bytes_full,
        "end": s.end,
    }


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """The table as comma-separated values with a head."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS.values())
    for row in rows:
        writer.writerow(
            [escape_formula(value) if isinstance(value := row.get(name), str) else value for name in COLUMNS]
        )
    return out.getvalue()
