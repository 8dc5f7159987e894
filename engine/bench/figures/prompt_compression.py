"""The figures of `bench prompts`: by prompt compression, from what was read of each question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..questions.result_file import BenchResult
from .labbench import BASELINE, mean

VERSION = 1  # of the JSON object


@dataclass
class PromptCompressionRow:
    """The result of one prompt compression for one question's first turn.

    prompt, read: tokens of it, and how many of these the target read;  nats: -ln p a token of the right answer behind that
    first_s: until the first token;  look_s: the part of it in passes that looked;  flops: of all passes that read the prompt
    fault:  why there is no result
    """

    question: int | str
    kind: str
    method: str
    prompt: int
    read: int = 0
    nats: float | None = None
    first_s: float = 0.0
    look_s: float = 0.0
    flops: float = 0.0
    fault: str = ""


class PromptCompressionResult(BenchResult[PromptCompressionRow]):
    """What all contexts made of the questions so far."""

    kind = PromptCompressionRow

    def record(self) -> dict[str, Any]:
        """As plain data: settings and figures by method."""
        names = list(dict.fromkeys(row.method for row in self.rows))
        kinds = list(dict.fromkeys(row.kind for row in self.rows))
        plain = {row.question: row for row in self.rows if row.method == BASELINE}
        return {
            "prompts": VERSION,
            "settings": self.settings,
            "complete": self.complete,
            "seconds": round(self.seconds, 3),
            "kinds": {
                kind: sum(row.kind == kind and row.method == BASELINE for row in self.rows) for kind in kinds
            },
            "skipped": self.skipped,
            "methods": {
                name: _figures([row for row in self.rows if row.method == name], plain) for name in names
            },
            "rows": [asdict(row) for row in self.rows],
        }


def _figures(
    rows: Sequence[PromptCompressionRow], plain: dict[int | str, PromptCompressionRow]
) -> dict[str, Any]:
    """The figures of one method; all questions have the same weight.

    Times and operations are of all questions together, next to those of plain reading. A fault is in no figure.
    """
    whole = [row for row in rows if not row.fault and not plain[row.question].fault]
    others = [plain[row.question] for row in whole]
    more = [
        row.nats - x.nats
        for row, x in zip(whole, others, strict=True)
        if row.nats is not None and x.nats is not None
    ]
    first, flops = sum(row.first_s for row in whole), sum(row.flops for row in whole)
    return {
        "faults": [row.fault for row in rows if row.fault],
        "read": sum(row.read for row in whole) / sum(row.prompt for row in whole) if whole else None,
        "nats": mean([row.nats for row in whole if row.nats is not None]),
        "more": mean(more),
        "first_ms": 1e3 * first / len(whole) if whole else None,
        "first": first / sum(x.first_s for x in others) if whole else None,
        "look": sum(row.look_s for row in whole) / first if first else None,
        "flops": flops / sum(x.flops for x in others) if whole else None,
    }
