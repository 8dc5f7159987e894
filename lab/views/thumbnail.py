"""Thumbnail: a few steps of a run as a small picture animated by CSS alone; it is still where that is wanted.

The steps decide what is drawn: a block that settles, entries that leave the cache, a draft tree, or the compute of each pass.
It holds no text of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from typing import Any

from decodescope.lab.formatting.tokens import escape_html

WIDE, HIGH = 240, 120  # of the picture
FRAMES = 8  # maximum number; the sheet web/styles/gallery.css animates as many
ROWS, COLUMNS = 7, 8  # maximum branches and depth of a tree
MOST = 120  # entries, tokens or passes in one picture
Message = dict[str, Any]


def thumbnail(messages: Sequence[Message]) -> str:
    """An `svg` element of the steps in these messages (`lab/wire/messages.py`); its title says what it shows."""
    steps = [x for x in messages if x["kind"] == "step"]
    if any("chain" in x for x in steps):
        title = "A block of tokens, pass after pass"
        frames = _block_frames([x for x in steps if "chain" in x])
    elif any(row["evicted"] for x in steps for row in _target_rows(x)):
        title, frames = "The entries of one head: kept and evicted", _cache_frames(steps)
    elif any(x["drafted"] for x in steps):
        title = "Draft trees, step after step"
        frames = _tree_frames([x for x in steps if len(x.get("nodes", ())) > 1])
    else:
        title, frames = "The compute of each pass", _pass_frames(steps)
    still = max(range(len(frames)), key=lambda i: len(frames[i])) if frames else 0
    drawn = "".join(
        f'<g class="frame f{i}{" shown" if i == still else ""}">{frame}</g>' for i, frame in enumerate(frames)
    )
    return (
        f'<svg class="thumbnail of{len(frames)}" viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{escape_html(title)}">'
        f"{drawn}</svg>"
    )


def _target_rows(step: Message) -> list[Message]:
    return [row for row in step["kv"] if row["lane"] == "target"]


def _sample_steps(steps: Sequence[Message]) -> list[Message]:
    """FRAMES steps at even distances, including the first and the last; all if there are fewer."""
    if len(steps) <= FRAMES:
        return list(steps)
    return [steps[round(i * (len(steps) - 1) / (FRAMES - 1))] for i in range(FRAMES)]


# ---- draft trees


def _tree_frames(steps: Sequence[Message]) -> list[str]:
    return [_draw_tree(step["nodes"]) for step in steps[:FRAMES]]


def _draw_tree(rows: Sequence[Sequence[Any]]) -> str:
    """Depth to the right, each branch in its own row; a message row is [parent, text, token, q, p, u, status, ...]."""
    place: dict[int, tuple[int, int]] = {0: (0, 0)}
    used, begun = 0, set()
    for i, row in enumerate(rows[1:], 1):
        parent = row[0]
        if parent not in place:
            continue
        depth, track = place[parent][0] + 1, place[parent][1]
        if parent in begun:  # a first child keeps its parent's row
            used += 1
            track = used
        begun.add(parent)
        if depth <= COLUMNS and track < ROWS:
            place[i] = depth, track
    wide, high = max(3, *(d for d, _ in place.values())), max(t for _, t in place.values())
    across, down = min(44, (WIDE - 32) / wide), min(24, (HIGH - 24) / max(1, high))
    left, top = (WIDE - across * wide) / 2, (HIGH - down * high) / 2
    at = {i: (left + d * across, top + t * down) for i, (d, t) in place.items()}
    status = {i: _mark_status(rows[i], i) for i in place}
    lines, marks = [], []
    for i, (x, y) in at.items():
        if i:
            px, py = at[rows[i][0]]
            bend = f"C{px + across / 2:.1f},{py:.1f} {x - across / 2:.1f},{y:.1f} " if py != y else "L"
            lines.append(f'<path class="edge {status[i]}" d="M{px:.1f},{py:.1f}{bend}{x:.1f},{y:.1f}"/>')
        marks.append(_draw_mark(status[i], x, y))
    return "".join(lines + marks)


def _mark_status(row: Sequence[Any], i: int) -> str:
    """A word of ours, whatever the row contains."""
    word = row[6] if len(row) > 6 else "unreached"
    if i == 0:
        return "root"
    if word in ("accept", "reject", "bonus", "resample", "target", "draft"):
        return word
    return "unreached"


def _draw_mark(status: str, x: float, y: float) -> str:
    if status == "root":
        return f'<rect class="mark root" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
    if status in ("bonus", "resample", "target", "draft"):
        return f'<path class="mark {status}" d="M{x:.1f},{y - 6:.1f}l6,6l-6,6l-6,-6Z"/>'
    return (
        f'<circle class="mark {status}" cx="{x:.1f}" cy="{y:.1f}" r="{3 if status == "unreached" else 5}"/>'
    )


# ---- rows of cells


def _block_frames(steps: Sequence[Message]) -> list[str]:
    """Each frame has one more pass: a row for its block, with the tokens that became final in it filled."""
    shown = [steps[i]["chain"] for i in range(min(FRAMES, len(steps)))]
    origin = shown[0]["start"]
    last = max(x["start"] + len(x["after"]) for x in shown) - origin
    wide, high = min(24, (WIDE - 16) / max(1, last)), (HIGH - 16) / FRAMES
    rows = []
    for k, block in enumerate(shown):
        for i in range(len(block["after"])):
            name = "cell final" if i < block["fixed"] else "cell"
            rows.append(
                (k, _draw_cell(name, 8 + (block["start"] - origin + i) * wide, 8 + k * high, wide, high))
            )
    return ["".join(cell for row, cell in rows if row <= k) for k in range(len(shown))]


def _cache_frames(steps: Sequence[Message]) -> list[str]:
    """The entries of the first layer and head after some steps: those that are held, and those that left."""
    last = max((row["read"] for row in _target_rows(steps[-1])), default=1)
    count = min(MOST, last)
    columns = max(1, min(24, ceil(sqrt(2 * count))))
    lines = -(-count // columns)
    side = min((WIDE - 16) / columns, (HIGH - 16) / lines, 22)
    left, top = (WIDE - columns * side) / 2, (HIGH - lines * side) / 2
    wanted = {x["i"] for x in _sample_steps(steps)}
    gone: set[int] = set()
    frames = []
    for step in steps:
        for row in _target_rows(step):
            for lost in (row.get("prompt") or {}, row):
                gone |= _evicted_positions(lost)
            if step["i"] in wanted:
                cells = []
                for i in range(min(count, row["read"])):
                    name = "cell gone" if i in gone else "cell held"
                    cells.append(
                        _draw_cell(name, left + i % columns * side, top + i // columns * side, side, side)
                    )
                frames.append("".join(cells))
    return frames


def _evicted_positions(lost: Message) -> set[int]:
    """The positions that left the first layer and head; a stretch is [first, last]."""
    runs = [*lost.get("gone", ()), *next(iter(lost.get("out", ())), ())]
    positions: set[int] = set()
    for run in runs:
        first, last = run if isinstance(run, list) else (run, run)
        positions.update(range(first, min(last, MOST) + 1))
    return positions


def _pass_frames(steps: Sequence[Message]) -> list[str]:
    """Bars as high as the compute of the target's passes; each frame has some more of them."""
    work = [sum(x["flops"] for x in step.get("passes", ()) if x["lane"] == "target") for step in steps[:MOST]]
    most = max(work, default=0) or 1
    each = (WIDE - 16) / max(1, len(work))
    bars = []
    for i, flops in enumerate(work):
        high = max(2.0, (HIGH - 16) * flops / most)
        bars.append(_draw_cell("cell final", 8 + i * each, HIGH - 8 - high, each, high))
    count = min(FRAMES, len(bars))
    return ["".join(bars[: round((k + 1) * len(bars) / count)]) for k in range(count)]


def _draw_cell(name: str, x: float, y: float, wide: float, high: float) -> str:
    return (
        f'<rect class="{name}" x="{x + 1:.1f}" y="{y + 1:.1f}" width="{max(0.5, wide - 2):.1f}" '
        f'height="{max(0.5, high - 2):.1f}"/>'
    )
