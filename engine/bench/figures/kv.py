"""The figures of `bench kv`: by method and budget, from the results for each text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..questions.columns import columns
from ..questions.passkeys import KIND as PASSKEY
from ..questions.result_file import BenchResult
from .labbench import BASELINE, mean

VERSION = 2  # of the JSON object; 1 had no pass keys
PRICED = ("text", "copy")  # kinds with priced words
KINDS = (*PRICED, PASSKEY)


@dataclass(frozen=True)
class KVRow:
    """The result of one method for one text at one budget.

    share:    the budget as a share of the prompt; None: the method has no such knob
    tokens:   words that were priced, or tokens of the answer
    nats:     -ln p of the words that come, a mean;  kl: from the full cache's distribution to this one's, a mean in nats
    same:     share of words at which both have the same likeliest token;  these three are None for a pass key
    right:    whether the answer is the pass key;  said: the answer;  None and "" where nothing was asked
    held:     entries of all layers and KV heads behind the last word;  full: those of the full cache
    kv_bytes: of all storages of the cache, then;  full_bytes: those of the full cache;  fault: why nothing could be measured
    """

    question: int | str
    kind: str
    method: str
    share: float | None
    tokens: int = 0
    nats: float | None = None
    kl: float | None = None
    same: float | None = None
    held: int = 0
    full: int = 0
    kv_bytes: int = 0
    full_bytes: int = 0
    right: bool | None = None
    said: str = ""
    fault: str = ""
    spent: Mapping[str, float | None] = field(default_factory=dict)


class KVResult(BenchResult[KVRow]):
    """What all methods made of the texts so far."""

    kind = KVRow

    def _columns(self) -> dict[str, dict[str, float | None]]:
        rows = [replace(row, method=_budget_label(row)) for row in self.rows if row.kind in PRICED]
        return columns(self.settings, rows, {_budget_label(row): row.method for row in self.rows})

    def record(self) -> dict[str, Any]:
        """As plain data: settings, and for each method its points, the largest budget first."""
        points: dict[str, list[dict[str, Any]]] = {}
        for name, share in dict.fromkeys((row.method, row.share) for row in self.rows):
            rows = [row for row in self.rows if (row.method, row.share) == (name, share)]
            points.setdefault(name, []).append(_budget_point(share, rows))
        return {
            "kv": VERSION,
            "settings": self.settings,
            "complete": self.complete,
            "seconds": round(self.seconds, 3),
            "kinds": {
                kind: sum(row.kind == kind and row.method == BASELINE for row in self.rows) for kind in KINDS
            },
            "skipped": self.skipped,
            "methods": points,
            "columns": self._columns(),
            "rows": [asdict(row) for row in self.rows],
        }


def _budget_label(row: KVRow) -> str:
    """The name of a table's line for a method and its budget."""
    return (
        row.method if row.share is None or row.method == BASELINE else f"{row.method} {100 * row.share:.0f} %"
    )


def _budget_point(share: float | None, rows: Sequence[KVRow]) -> dict[str, Any]:
    """The figures of one method at one budget.

    These are entries and bytes behind the priced words as a share of the full cache's, and means by kind of text. For the pass
    keys they are how many were asked for (a fault is no answer) and answered, with the bytes held behind the answers.
    """
    whole = [row for row in rows if not row.fault]
    of = {kind: [row for row in whole if row.kind == kind] for kind in KINDS}
    priced = [row for kind in PRICED for row in of[kind]]
    return {
        "share": share,
        "faults": [row.fault for row in rows if row.fault],
        "bytes": _share_of_full(priced, "kv_bytes", "full_bytes"),
        "entries": _share_of_full(priced, "held", "full"),
        "by_kind": {
            kind: {name: mean([getattr(row, name) for row in of[kind]]) for name in ("nats", "kl", "same")}
            for kind in PRICED
        },
        PASSKEY: {
            "asked": sum(row.kind == PASSKEY for row in rows),
            "right": sum(bool(row.right) for row in of[PASSKEY]),
            "bytes": _share_of_full(of[PASSKEY], "kv_bytes", "full_bytes"),
        },
    }


def _share_of_full(rows: Sequence[KVRow], mine: str, full: str) -> float | None:
    """The sum of one figure as a share of that of the full cache; None where there is nothing."""
    whole = sum(getattr(row, full) for row in rows)
    return sum(getattr(row, mine) for row in rows) / whole if whole else None
