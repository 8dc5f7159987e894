"""Table: a few rows of words and numbers in a chapter; long text is not cut."""

from __future__ import annotations

from collections.abc import Sequence

from decodescope.lab.formatting.numbers import f
from decodescope.lab.formatting.tokens import escape_html


class NotebookTable:
    """Rows below a heading each, shown as a table in a notebook and as aligned text by print."""

    def __init__(self, heads: Sequence[str], rows: Sequence[Sequence[object]], caption: str = ""):
        self.heads, self.caption = list(heads), caption
        self.rows = [[_format_cell(x) for x in row] for row in rows]

    def _repr_html_(self) -> str:
        heads = "".join(f"<th>{escape_html(x)}</th>" for x in self.heads)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape_html(x)}</td>" for x in row) + "</tr>" for row in self.rows
        )
        below = f"<p>{escape_html(self.caption)}</p>" if self.caption else ""
        return (
            f'<div class="ds-table"><style>{_RULES}</style><table><tr>{heads}</tr>{body}</table>{below}</div>'
        )

    def __str__(self) -> str:
        wide = [max(len(row[i]) for row in (self.heads, *self.rows)) for i in range(len(self.heads))]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, wide, strict=True))
            for row in (self.heads, *self.rows)
        ]
        return "\n".join(line.rstrip() for line in (*lines, *([self.caption] if self.caption else [])))

    __repr__ = __str__


def _format_cell(value: object) -> str:
    """A value for people: numbers with three figures, words as they are."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f(value, 3)
    return str(value)


_RULES = """
.ds-table table { border-collapse: collapse; margin: 4px 0; font-size: 13px; font-variant-numeric: tabular-nums; }
.ds-table th, .ds-table td { text-align: left !important; vertical-align: top; padding: 3px 24px 3px 0; max-width: 480px;
  white-space: normal; background: none; }
.ds-table p { margin: 4px 0; opacity: .8; font-size: 13px; }
"""
