"""The figures of `bench models`: by model, its results for each question, compared with the dense one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..questions.columns import columns
from ..questions.result_file import BenchResult
from .labbench import mean

VERSION = 1  # of the JSON object
DENSE = "dense"


@dataclass(frozen=True)
class ModelsRow:
    """The result of one model for one question, its turns together.

    method: the model's name;  score: the mean over the turns;  right: whether all turns are; None where nothing is judged
    tokens: written;  places: positions in the question's first turn and its reference at which distributions were compared
    nats:   -ln p of the tokens that come;  kl: from the dense model's distribution to this one's, in nats
    same:   where both models have the same likeliest token;  these three are sums over the places
    spent:  the measurements from which the six columns follow;  fault: why there is no whole answer
    """

    question: int | str
    kind: str
    method: str
    score: float | None = None
    right: bool | None = None
    tokens: int = 0
    places: int = 0
    nats: float = 0.0
    kl: float = 0.0
    same: float = 0.0
    fault: str = ""
    spent: Mapping[str, float | None] = field(default_factory=dict)


class ModelsResult(BenchResult[ModelsRow]):
    """What all models made of the questions so far."""

    kind = ModelsRow

    def record(self) -> dict[str, Any]:
        """As plain data: settings, figures by model, the six columns, and rows."""
        names = list(dict.fromkeys(row.method for row in self.rows))
        kinds = list(dict.fromkeys(row.kind for row in self.rows))
        dense = {row.question: row for row in self.rows if row.method == DENSE}
        of = {name: [row for row in self.rows if row.method == name] for name in names}
        return {
            "models": VERSION,
            "settings": self.settings,
            "complete": self.complete,
            "seconds": round(self.seconds, 3),
            "kinds": {kind: sum(row.kind == kind for row in dense.values()) for kind in kinds},
            "skipped": self.skipped,
            "methods": {name: _figures(rows, dense, kinds) for name, rows in of.items()},
            "columns": columns(self.settings, self.rows),
            "rows": [asdict(row) for row in self.rows],
        }


def _figures(
    rows: Sequence[ModelsRow], dense: Mapping[int | str, ModelsRow], kinds: Sequence[str]
) -> dict[str, Any]:
    """The figures of one model.

    A fault is a wrong answer, and counts in no other figure. In the accuracy all kinds have the same weight.

    kept: by kind: of the questions that the dense model has right, how many this model has right too, and their number
    """
    whole = [row for row in rows if not row.fault]
    judged = [row for row in rows if row.score is not None or row.fault]
    scores = [mean([row.score or 0.0 for row in judged if row.kind == kind]) for kind in kinds]
    places = sum(row.places for row in whole)
    due = [row for row in rows if row.question in dense and dense[row.question].right]
    each = {kind: [bool(row.right) for row in due if row.kind == kind] for kind in kinds}
    return {
        "faults": [row.fault for row in rows if row.fault],
        "accuracy": mean([x for x in scores if x is not None]),
        "kl": sum(row.kl for row in whole) / places if places else None,
        "perplexity": math.exp(sum(row.nats for row in whole) / places) if places else None,
        "same": sum(row.same for row in whole) / places if places else None,
        "kept": {kind: [sum(right), len(right)] for kind, right in each.items() if right},
        "kept_share": mean([float(x) for right in each.values() for x in right]),
    }
