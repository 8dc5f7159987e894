"""Step index: for each row of a report's tables, the steps in which what it counts can be looked at best."""

from __future__ import annotations

from dataclasses import dataclass, field

LISTED = 3  # steps of a row

Place = tuple[int, int]  # number of the run, from 0, and of its step


@dataclass
class StepIndex:
    """rows: table -> row -> (worth, place) of at most LISTED steps, those of the highest worth, the first ones among equals"""

    rows: dict[str, dict[str, list[tuple[float, Place]]]] = field(default_factory=dict)

    def add(self, table: str, row: str, place: Place, worth: float = 0.0) -> None:
        """Note that the step at `place` is one of a row; a step that is there keeps its highest worth."""
        known = self.rows.setdefault(table, {}).setdefault(row, [])
        if len(known) == LISTED and worth <= known[-1][0]:
            return
        before = max((was for was, at in known if at == place), default=worth)
        kept = [x for x in known if x[1] != place]
        kept.append((max(worth, before), place))
        known[:] = sorted(kept, key=lambda x: (-x[0], x[1]))[:LISTED]

    def places(self, table: str, row: str) -> list[Place]:
        """The steps of a row, the one of the highest worth first."""
        return [place for _, place in self.rows.get(table, {}).get(row, [])]

    def record(self) -> dict[str, dict[str, list[list[int]]]]:
        """As plain data."""
        return {
            table: {row: [[*x] for x in self.places(table, row)] for row in rows}
            for table, rows in self.rows.items()
        }


def format_places(places: list[Place]) -> str:
    """Run, counted from 1, and step of each, as tables show them."""
    return "; ".join(f"{run + 1}, {step}" for run, step in places) or "–"
