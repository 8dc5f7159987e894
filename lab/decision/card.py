"""Card: an explained decision as HTML for a notebook. All text is escaped; numbers are formatted here."""

from __future__ import annotations

from decodescope.lab.formatting.style import DARK, LIGHT, MONO, SANS
from decodescope.lab.formatting.tokens import escape_html

from .explanation import Explanation
from .residual import DistributionRow

WIDE, HIGH = 356, 42  # the box, px
OWN = ("bonus", "resample", "target")
COLOUR = {"accept": "accept", "reject": "reject", "draft": "accept", **dict.fromkeys(OWN, "target-text")}
_LINE = 'fill="none" stroke-width="1.75"'
SHAPE = {
    "accept": f'<circle r="6.5" fill="currentColor"/><path d="M-3,0L-1,2.5L3,-2" {_LINE} stroke="var(--panel)"/>',
    "reject": f'<g {_LINE} stroke="currentColor"><circle r="6.5"/><path d="M-2.6,-2.6L2.6,2.6M2.6,-2.6L-2.6,2.6"/></g>',
    "bonus": '<path d="M0,-8L2,-2.6 7.6,-2.5 3.1,1 4.7,6.5 0,3.2 -4.7,6.5 -3.1,1 -7.6,-2.5 -2,-2.6Z" fill="currentColor"/>',
    "resample": '<path d="M0,-7L6.6,5.5H-6.6Z" fill="currentColor"/>',
    "target": '<path d="M0,-7L7,0L0,7L-7,0Z" fill="currentColor"/>',
    "draft": f'<path d="M0,-6L6,0L0,6L-6,0Z" {_LINE} stroke="currentColor"/>',
    "unreached": '<circle r="3" fill="currentColor"/>',
}


class Card(Explanation):
    """An explanation that a notebook shows as a card."""

    def _repr_html_(self) -> str:
        return render_card(self)


def render_card(e: Explanation) -> str:
    """`e` as a card and its arithmetic."""
    colour = COLOUR.get(e.status, "muted")
    sign = f'<svg width="18" height="18" viewBox="-9 -9 18 18" aria-hidden="true">{SHAPE[e.status]}</svg>'
    agrees = {True: "✓ re-derived", False: "does not re-derive", None: ""}[e.agrees]
    lies = " lies" if e.agrees is False else ""
    verdict = f'<span class="verdict {colour}">{sign}{escape_html(e.title)}</span>'
    parts = [
        f'<p class="head">{verdict}<span class="agrees{lies}">{agrees}</span></p>',
        f'<p><b class="token">{escape_html(e.token)}</b><span class="where">{escape_html(e.where)}</span></p>',
        _render_box(e) if e.box is not None else "",
        _render_numbers(e),
        _render_distributions(e) if e.rows else "",
        f'<p class="then">{escape_html(e.then)}</p>' if e.then else "",
    ]
    lines = "".join(
        f"<li>{escape_html(x.words)}{''.join(f'<code>{escape_html(s)}</code>' for s in x.sums)}</li>"
        for x in e.lines
    )
    sums = f'<div class="sums"><ol>{lines}</ol><p class="rule">rule: {escape_html(e.rule)}</p></div>'
    return f'<div class="ds-card"><style>{_style_sheet()}</style><div class="card">{"".join(parts)}</div>{sums}</div>'


def _render_box(e: Explanation) -> str:
    """The box is the draft's claim, its ink the part that the target backs, the dart is u: it sticks in ink, or in paper."""
    assert e.box is not None
    p, q, u = e.box
    share = min(1.0, p / q) if q else 1.0
    ink, at = WIDE * share, WIDE * u
    colour = f"var(--{COLOUR.get(e.status, 'muted')})"
    if u < 0.1:
        anchor = "start"
    elif u > 0.9:
        anchor = "end"
    else:
        anchor = "middle"
    if share < 0.2:
        below = "start"
    elif share > 0.85:
        below = "end"
    else:
        below = "middle"
    name = e.against.replace(" / ", "/")
    ground = "var(--panel)" if at < ink else "none"
    return (
        f'<svg class="box" width="{WIDE + 4}" height="84" viewBox="-2 -20 {WIDE + 4} 84" role="img" '
        f'aria-label="u {u:.3f}, threshold {share:.3f}">'
        f'<rect width="{ink:.1f}" height="{HIGH}" fill="var(--ink)"/>'
        f'<rect width="{WIDE}" height="{HIGH}" rx="2" fill="none" stroke="var(--ink)" stroke-width="1.5"/>'
        f'<path d="M{at:.1f},-4V{HIGH / 2:.0f}" stroke="{colour}" stroke-width="1.5"/>'
        f'<path d="M{at:.1f},{HIGH / 2 - 6:.0f}l6,6l-6,6l-6,-6z" fill="{colour}" stroke="{ground}" stroke-width="1.5"/>'
        f'<text x="{at:.1f}" y="-8" text-anchor="{anchor}" class="strong">u {u:.3f}</text>'
        f'<path d="M{ink:.1f},{HIGH}v5" stroke="var(--ink)"/>'
        f'<text x="{ink:.1f}" y="{HIGH + 17}" text-anchor="{below}" class="strong">{escape_html(name)} {share:.3f}</text></svg>'
    )


def _render_numbers(e: Explanation) -> str:
    rows = "".join(
        f"<tr><td>{escape_html(word)}</td><td><code>{escape_html(symbol)}</code></td><td>{_format_probability(value)}</td></tr>"
        for word, symbol, value in e.numbers
    )
    colour = COLOUR.get(e.status, "muted")
    test = (
        f'<tr class="test {colour}"><td>test</td><td colspan="2">{escape_html(e.test)}</td></tr>'
        if e.test
        else ""
    )
    return f'<table class="numbers">{rows}{test}</table>' if rows or test else ""


def _format_probability(value: float | None) -> str:
    if value is None:
        return "–"
    if value == 0 or value >= 1e-3:
        return f"{value:.4f}"
    return f"{value:.2e}"


def _render_distributions(e: Explanation) -> str:
    left = any(row.left is not None for row in e.rows)
    most = max(max(row.p, row.q, row.left or 0) for row in e.rows) or 1.0
    heads = [
        "<th>token</th><th></th>",
        "<th>q</th>" if e.has_draft_distribution else "",
        "<th>p</th>",
        "<th>left</th>" if left else "",
    ]
    body = "".join(_render_distribution_row(row, most, e.has_draft_distribution, left) for row in e.rows)
    return f'<h4>{escape_html(e.rows_title)}</h4><table class="laws"><tr>{"".join(heads)}</tr>{body}</table>'


def _render_distribution_row(row: DistributionRow, most: float, drawn: bool, left: bool) -> str:
    """Box, ink, and in green the part that sticks out of the box."""
    scale = 108 / most
    q, p = row.q * scale, row.p * scale
    ink = min(p, q) if left else p
    bar = f'<rect y="3" width="{ink:.1f}" height="6" fill="var(--ink)"/>'
    if left and row.left:
        bar += f'<rect x="{ink:.1f}" y="3" width="{row.left * scale:.1f}" height="6" fill="var(--target)"/>'
    if drawn:
        bar += f'<rect x=".5" y=".5" width="{max(q, 0.5):.1f}" height="11" fill="none" stroke="var(--ink)"/>'
    cells = [f"<td>{row.q:.3f}</td>" if drawn else "", f"<td>{row.p:.3f}</td>"]
    if left:
        cells.append(f'<td class="left">{row.left:.3f}</td>' if row.left else "<td>–</td>")
    name = f"<code>{escape_html(row.text)}</code>" if row.token is not None else escape_html(row.text)
    if row.token is None:
        kind = "other"
    elif row.tried:
        kind = "tried"
    else:
        kind = ""
    picture = f'<svg width="112" height="12" aria-hidden="true">{bar}</svg>'
    return f'<tr class="{kind}"><td>{name}</td><td>{picture}</td>{"".join(cells)}</tr>'


def _style_sheet() -> str:
    """The card's style sheet: constant, made from the palette."""
    names = ("bg", "panel", "line", "ink", "muted", "accept", "reject", "target", "target-text")
    light, dark = ("".join(f"--{name}:{palette[name]};" for name in names) for palette in (LIGHT, DARK))
    quoted = [", ".join(f'"{x}"' if " " in x else x for x in fonts) for fonts in (SANS, MONO)]
    return (
        _RULES.replace("LIGHT", light)
        .replace("DARK", dark)
        .replace("SANS", quoted[0])
        .replace("MONO", quoted[1])
    )


_RULES = """
.ds-card { LIGHT display: flex; flex-wrap: wrap; gap: 32px; align-items: flex-start; color: var(--ink);
  font: 13px/1.5 SANS; font-variant-numeric: tabular-nums; padding: 4px 0; }
[data-jp-theme-light="false"] .ds-card { DARK }
.ds-card .card { background: var(--panel); border-radius: 10px; padding: 16px 20px; width: 400px;
  box-sizing: border-box; }
.ds-card p { margin: 0 0 8px; }
.ds-card svg { overflow: visible; display: inline-block; max-width: none; }
.ds-card .head { display: flex; justify-content: space-between; align-items: center; }
.ds-card .verdict { font-size: 20px; font-weight: 600; display: inline-flex; gap: 8px; align-items: center; }
.ds-card .accept { color: var(--accept); }
.ds-card .reject { color: var(--reject); }
.ds-card .target-text { color: var(--target-text); }
.ds-card .muted { color: var(--muted); }
.ds-card .agrees, .ds-card .where, .ds-card .rule { color: var(--muted); font-size: 12px; }
.ds-card .agrees.lies { color: var(--bg); background: var(--reject); border-radius: 4px; padding: 1px 6px; }
.ds-card .token { font: 600 15px MONO; margin-right: 10px; unicode-bidi: isolate; white-space: pre; }
.ds-card code { font-family: MONO; font-size: 12px; background: none !important; padding: 0 !important; color: inherit;
  unicode-bidi: isolate; white-space: pre; }
.ds-card .box { margin: 4px 0; }
.ds-card .box text { font-size: 12px; fill: var(--ink); }
.ds-card .strong { font-weight: 600; }
.ds-card table { border-collapse: collapse; border: 0; width: 100%; margin: 0 0 12px; table-layout: auto;
  font-size: 13px; }
.ds-card tr, .ds-card tr:nth-child(n) { background: none !important; border: 0; }
.ds-card td, .ds-card th { border: 0; padding: 2px 0; text-align: left !important; color: inherit; max-width: none; }
.ds-card .numbers td:first-child { color: var(--muted); }
.ds-card .numbers td:last-child { text-align: right !important; font-family: MONO; }
.ds-card .numbers .test td { border-top: 1px solid var(--line); padding-top: 6px; font-weight: 600; color: inherit; }
.ds-card h4 { font-size: 13px; font-weight: 600; margin: 12px 0 4px; color: inherit; }
.ds-card .laws th { color: var(--muted); font-weight: 400; font-size: 12px; }
.ds-card .laws th:nth-child(n+3), .ds-card .laws td:nth-child(n+3) { text-align: right !important; }
.ds-card .laws td:first-child { padding-right: 10px; }
.ds-card .laws .tried { font-weight: 600; }
.ds-card .laws .other { color: var(--muted); }
.ds-card .left { color: var(--target-text); font-weight: 600; }
.ds-card .then { margin: 4px 0 0; color: var(--muted); }
.ds-card .sums { flex: 1 1 320px; max-width: 560px; }
.ds-card ol { margin: 4px 0 12px; padding-left: 24px; }
.ds-card li { margin-bottom: 10px; }
.ds-card li::marker { color: var(--muted); }
.ds-card li code { display: block; margin-top: 2px; white-space: pre-wrap; }
.ds-card .rule { border-top: 1px solid var(--line); padding-top: 8px; }
"""
