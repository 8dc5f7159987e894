"""Prompts: several methods on a set of prompts, as tables in one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .page import table_page
from .tables import ReportTable

LETTERS = "ABCD"
ENOUGH = 5  # prompts needed for an interval over them to say that a ratio is not 1


def page(record: Mapping[str, Any]) -> str:
    """One HTML file of a set of prompts that needs no network and runs nothing. record: from app/runs/compare/prompt_sets.py"""
    names = [f"{letter}: {name}" for letter, name in zip(LETTERS, record["methods"], strict=False)]
    lead = [
        f"{len(record['lines'])} prompts, {'; '.join(names)}.",
        "Ratios are of tokens a second of decoding, against A on the same prompt, from one run each. An interval "
        f"({100 * record['sure']:.0f} %, percentile bootstrap) is over the prompts; one that holds 1 is marked.",
        *record["asked"],
    ]
    count = len(record["methods"])
    head = (
        "kind",
        "prompts",
        *(f"{x} against A" for x in LETTERS[1:count]),
        *(f"{x} accepted" for x in LETTERS[:count]),
    )
    kinds = ReportTable("By kind", "Medians of the paired ratios, and drafted tokens that stayed per drafting step.", head,
                  [_kind_row(x) for x in record["kinds"]])  # fmt: skip
    columns = [
        f"{x} {what}" for x in LETTERS[:count] for what in ("tokens/s", "against A", "accepted", "text")
    ]
    columns.remove("A against A")
    columns.remove("A text")
    lines = ReportTable("By prompt", "In the order in which they were asked.", ("prompt", "kind", *columns),
                  [_prompt_row(x) for x in record["lines"]])  # fmt: skip
    return table_page(
        "DecodeScope: methods on a set of prompts", "Methods on a set of prompts", lead, [kinds, lines], []
    )


def _kind_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    ratios = [_format_ratio(x) for x in row["ratio"][1:]]
    accepted = [f"{x['mean']:.2f} ({_format_mean_range(x)})" if x else "no draft" for x in row["accepted"]]
    return (row["kind"], str(row["n"]), *ratios, *accepted)


def _format_ratio(ratio: Mapping[str, Any] | None) -> str:
    if ratio is None:
        return "–"
    low, high = ratio["interval"]
    few = ratio["n"] < ENOUGH
    if few:
        mark = ", too few prompts to tell"
    elif low <= 1 <= high:
        mark = ", not distinguishable from 1"
    else:
        mark = ""
    return f"× {ratio['median']:.2f} ({_format_mean_range(ratio)}{mark})"


def _format_mean_range(figure: Mapping[str, Any]) -> str:
    low, high = figure["interval"]
    return f"{low:.2f} to {high:.2f}, n = {figure['n']}"


def _prompt_row(line: Mapping[str, Any]) -> tuple[str, ...]:
    cells: list[str] = []
    for k, cell in enumerate(line["cells"]):
        cells += _prompt_cells(cell, line["ratios"][k], bool(k))
    return (f"{line['name']} {line['begins']}", line["kind"], *cells)


def _prompt_cells(cell: Mapping[str, Any] | None, ratio: float | None, against: bool) -> Sequence[str]:
    if cell is None:
        return ["–"] * (4 if against else 2)
    accepted = "no draft" if cell["accepted"] is None else f"{cell['accepted']:.2f}"
    if not against:
        return [f"{cell['rate']:.1f}", accepted]
    times = "–" if ratio is None else f"× {ratio:.2f}"
    text = f"parts at token {cell['same'] + 1}" if cell["parted"] else "the same"
    return [f"{cell['rate']:.1f}", times, accepted, text]
