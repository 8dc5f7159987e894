"""Paper: figures that a paper measured, next to those measured here, and why they differ."""

from __future__ import annotations

from collections.abc import Sequence

from .table import NotebookTable


def against_paper(
    source: str, rows: Sequence[tuple[str, float | str, float | str]], why: str
) -> NotebookTable:
    """One row per figure: its name, the paper's value, the value measured here; `why` says in a sentence or two why they
    differ.

    source: paper and table or figure, so that anybody can look it up.
    """
    return NotebookTable(["", source, "here"], rows, f"Why they differ: {why}")
