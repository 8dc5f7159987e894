"""The figures of `bench words`: by sampler and search, from the results for each question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..questions.columns import columns
from ..questions.result_file import BenchResult
from .labbench import BASELINE, mean

VERSION = 1  # of the JSON object
MASKS = 0.1  # of a step's time that masks may take


@dataclass(frozen=True)
class WordsRow:
    """The result of one method for one question, its turns together.

    score:  the mean over the turns; None where nothing is judged
    fits:   whether all answers have the requested form; None where no form is requested
    tokens: written;  grams: their 4-grams, by turn;  again: how many of these occur earlier in the answer
    bits:   the surprise of all tokens under the model's own distribution
    passes: of the target, behind the prompt;  fed: rows of all passes of all models
    mask_s: time to make masks; None where none are made;  seconds: of the steps;  fault: why there is no whole answer
    """

    question: int | str
    kind: str
    method: str
    score: float | None = None
    fits: bool | None = None
    tokens: int = 0
    grams: int = 0
    again: int = 0
    bits: float = 0.0
    passes: int = 0
    fed: int = 0
    mask_s: float | None = None
    seconds: float = 0.0
    fault: str = ""
    spent: Mapping[str, float | None] = field(default_factory=dict)


class WordsResult(BenchResult[WordsRow]):
    """What all methods made of the questions so far."""

    kind = WordsRow

    def record(self) -> dict[str, Any]:
        """As plain data: settings, figures by method, and the goals."""
        names = list(dict.fromkeys(row.method for row in self.rows))
        kinds = list(dict.fromkeys(row.kind for row in self.rows))
        methods = {name: _figures([row for row in self.rows if row.method == name], kinds) for name in names}
        return {
            "words": VERSION,
            "settings": self.settings,
            "complete": self.complete,
            "seconds": round(self.seconds, 3),
            "kinds": {
                kind: sum(row.kind == kind and row.method == BASELINE for row in self.rows) for kind in kinds
            },
            "skipped": self.skipped,
            "methods": methods,
            "goals": goals(methods),
            "columns": columns(self.settings, self.rows),
            "rows": [asdict(row) for row in self.rows],
        }


def _figures(rows: Sequence[WordsRow], kinds: Sequence[str]) -> dict[str, Any]:
    """The figures of one method.

    A fault is a wrong answer without form, and counts in no other figure. In the accuracy all kinds have the same weight, in
    the rest all questions.
    """
    whole = [row for row in rows if not row.fault]
    scores = [
        mean([row.score for row in rows if row.kind == kind and row.score is not None]) for kind in kinds
    ]
    masked = [row for row in whole if row.mask_s is not None]
    tokens, grams = sum(row.tokens for row in whole), sum(row.grams for row in whole)
    return {
        "faults": [row.fault for row in rows if row.fault],
        "accuracy": mean([x for x in scores if x is not None]),
        "fits": mean([float(row.fits) for row in rows if row.fits is not None]),
        "again": sum(row.again for row in whole) / grams if grams else None,
        "bits": sum(row.bits for row in whole) / tokens if tokens else None,
        "length": tokens / len(whole) if whole else None,
        "passes": sum(row.passes for row in whole) / tokens if tokens else None,
        "fed": sum(row.fed for row in whole) / tokens if tokens else None,
        "masks": _mask_share(masked),
    }


def _mask_share(rows: Sequence[WordsRow]) -> float | None:
    """The share of the steps' time in which masks were made."""
    seconds = sum(row.seconds for row in rows)
    return sum(row.mask_s or 0.0 for row in rows) / seconds if seconds else None


def goals(methods: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each method that makes masks: the share of its steps that they take, and whether that is little enough."""
    shares = {name: one["masks"] for name, one in methods.items() if one["masks"] is not None}
    return [
        {"what": name, "share": share, "due": MASKS, "met": share <= MASKS} for name, share in shares.items()
    ]
