"""Report page: a report as one HTML file without script; its bars are drawn inline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from decodescope.engine.core.files import write_whole
from decodescope.lab.formatting.style import DARK, LIGHT, MONO, SANS
from decodescope.lab.formatting.tokens import escape_html, visible_piece
from decodescope.lab.views.document import document

from .report import AcceptanceReport
from .step_index import format_places
from .tables import PLACE, ReportTable, headline, tables

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
WIDE, HIGH = 180, 12  # px of a bar


def page(report: AcceptanceReport, path: str | Path | None = None) -> str:
    """One HTML file that needs no network and runs nothing; written to `path` if given, and returned."""
    title = f"DecodeScope: acceptance report, {report.model}"
    shown = tables(report)
    html = table_page(
        title, "Acceptance report", headline(report), [*shown, step_table(report, shown)], report.notes
    )
    if path is not None:
        write_whole(Path(path), [html])
    return html


STEPS = "Steps to look at"


def step_table(report: AcceptanceReport, shown: Sequence[ReportTable]) -> ReportTable:
    """The steps that rows of these tables are linked to, one by one, with what happened there."""
    places = sorted({place for table in shown for row in table.steps for place in row})
    rejected = {(x.run, x.step): x for x in report.deaths}
    rows = []
    for place in places:
        run, step = place
        death = rejected.get(place)
        before = "" if death is None else f"{visible_piece(death.before, 80)}|"
        tokens = ("–", "–") if death is None else (death.drafted, death.came)
        opened = f"found.show({run + 1}, {step})"
        rows.append((format_places([place]), report.begins[run], *tokens, before, opened))
    about = (
        "Rows of the tables above lead here. In a notebook, show(run, step) of the report, here called found, opens the run at "
        "that step; the rows of the page's own report open it in the Debugger."
    )
    head = (PLACE, "prompt", "drafted", "came", "behind", "open it")
    return ReportTable(STEPS, about, head, rows, steps=[[x] for x in places])


def table_page(
    title: str, heading: str, lead: Sequence[str], rows: Sequence[ReportTable], notes: Sequence[str]
) -> str:
    """An HTML file that needs no network and runs nothing: sentences, tables, and sentences again. Texts are escaped here."""
    parts = {
        "POLICY": POLICY,
        "TITLE": escape_html(title),
        "STYLE": _css_variables(":root", LIGHT)
        + "@media (prefers-color-scheme: dark) {"
        + _css_variables(":root", DARK)
        + "}"
        + _STYLE,
        "HEADING": escape_html(heading),
        "LEAD": "".join(f"<p>{escape_html(x)}</p>" for x in lead),
        "TABLES": "".join(map(_table, rows)),
        "NOTES": "".join(f"<p class='note'>{escape_html(x)}</p>" for x in notes),
    }
    # one pass: a model's text is inserted and not scanned again
    return document(_PAGE, parts)


def _table(given: ReportTable) -> str:
    table = given.with_steps()
    bars = list(table.bars) or [None] * len(table.rows)
    head = "".join(f"<th>{escape_html(x)}</th>" for x in table.head) + ("<th></th>" if table.bars else "")
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{_cell(table, i, k, x)}</td>" for k, x in enumerate(row))
        + (f"<td>{_bar(bar)}</td>" if table.bars else "")
        + "</tr>"
        for i, (row, bar) in enumerate(zip(table.rows, bars, strict=True))
    )
    about = f"<p class='about'>{escape_html(table.about)}</p>" if table.about else ""
    below = "".join(f"<p class='about'>{escape_html(x)}</p>" for x in table.below)
    return (
        f"<section><h2>{escape_html(table.title)}</h2>{about}<div class='wide'><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>{below}</section>"
    )


def _cell(table: ReportTable, i: int, k: int, words: str) -> str:
    """A cell of row `i`: in a column of places each is a link to its step, or, in the table of steps, its target."""
    if not table.steps or table.head[k] != PLACE or not table.steps[i]:
        return escape_html(words)
    links = []
    for run, step in table.steps[i]:
        name = f"step-{run + 1}-{step}"
        where = f"id='{name}'" if table.title == STEPS else f"href='#{name}'"
        links.append(f"<a {where}>{escape_html(format_places([(run, step)]))}</a>")
    return "; ".join(links)


def _bar(share: float | None) -> str:
    """A bar of `share` on its background; the number is in the table row."""
    fill = "" if not share else f"<rect class='fill' width='{min(share, 1.0) * WIDE:.1f}' height='{HIGH}'/>"
    ground = f"<rect class='ground' width='{WIDE}' height='{HIGH}'/>" if share is not None else ""
    return f"<svg width='{WIDE}' height='{HIGH}' aria-hidden='true'>{ground}{fill}</svg>"


def _css_variables(where: str, colours: dict[str, str]) -> str:
    return where + " {" + "".join(f"--{name}: {value}; " for name, value in colours.items()) + "}"


_STYLE = (
    """
body { margin: 0; background: var(--bg); color: var(--ink); font: 13px/1.5 """
    + ", ".join(f'"{x}"' if " " in x else x for x in SANS)
    + """; font-variant-numeric: tabular-nums; }
main { max-width: 1200px; margin: 0 auto; padding: 24px; }
h1 { font-size: 20px; font-weight: 600; margin: 0 0 8px; }
h2 { font-size: 13px; font-weight: 600; margin: 24px 0 4px; }
p { margin: 0 0 4px; max-width: 90ch; }
.about, .note { color: var(--muted); font-size: 12px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin-top: 4px; }
th, td { text-align: left; font-weight: 400; padding: 3px 20px 3px 0; vertical-align: top; border-bottom: 1px solid var(--line);
  white-space: pre-wrap; overflow-wrap: anywhere; max-width: 60ch; }
th { color: var(--muted); font-size: 12px; white-space: nowrap; }
td:first-child { font-family: """
    + ", ".join(f'"{x}"' if " " in x else x for x in MONO)
    + """; }
a { color: inherit; text-underline-offset: 2px; }
tr:has(:target) { background: var(--panel); outline: 2px solid var(--accept); }
.ground { fill: var(--gone); }
.fill { fill: var(--accept); }
"""
)
_PAGE = """<h1>@@HEADING@@</h1>
@@LEAD@@
@@TABLES@@
@@NOTES@@
</main>
</body>
</html>
"""
