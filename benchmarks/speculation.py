"""Turn a result of bench speculation into the section of docs/benchmarks.md, and into the figures of assets/methods.json.

    decodescope bench speculation --out found.json
    python benchmarks/speculation.py found.json [--write] [--figure found.html]
    python benchmarks/speculation.py --write

Without --write the section is printed. With it, the section is put between its two marks (at the end if there are none yet)
and the figures into assets/methods.json, which the page's catalogue reads; and the columns of docs/methods.md that say
headlines and figures are written anew from that file. Without a result, only these columns are.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labbench import table

from decodescope.app.commands.bench.speculation import (
    COLUMNS,
    GOALS,
    acceptance_by_position,
    cells,
    format_number,
    gain_warning,
    goal_rows,
    heading,
    kind_cells,
    names_by_gain,
)
from decodescope.app.runs.catalogue.parts import BOOK
from decodescope.engine.bench.figures.speculation import VERSION
from decodescope.engine.core.component import registry

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGIN, END = "<!-- speculation: written by benchmarks/speculation.py -->", "<!-- speculation: end -->"
TITLE = "## What drafting gains"
# kind -> the name under which a part of it was measured; {} is its own
NAMES = {"drafter": "{}", "schedule": "draft_model ({})", "strategy": "{}"}
# kind -> how its table in docs/methods.md begins
TABLES = {"drafter": "| name | guesses with |", "schedule": "| name | decides by |"}
# how the table of docs/methods.md begins that has only the headline in its last column; its first cells are kind and name
TOLD = "| part | from | on the shipped models |"
PLAIN = {"none": "autoregressive", "draft_model (fixed)": "draft_model"}
COLUMNS_OF_METHODS = ("the authors' headline", "tokens a pass", "times plain")
SAID = "Measured: "


def command(found: Mapping[str, Any]) -> str:
    """The command that measures the same again."""
    s = found["settings"]
    words = ["decodescope bench speculation", f"--model {s['model']}"]
    words += [f"--{role} {name}" for role, name in s["drafts"].items()]
    words += [
        f"--dtype {s['dtype']} --threads {s['threads']} --new-tokens {s['new_tokens']} --repeats {s['repeats']}"
    ]
    words += [f"--temperature {s['temperature']:g}", f"--seed {s['seed']}"] + ["--short"] * bool(
        s["questions"].get("short")
    )
    return " ".join(words)


def page(found: Mapping[str, Any]) -> str:
    """The section in Markdown: how it was taken, the figures by method and by kind, and the goals."""
    methods = found["methods"]
    kinds = found["kinds"]
    order = names_by_gain(found)
    deep = max((len(x["offered_by_position"]) for x in methods.values()), default=0)
    drafted = [name for name in order if methods[name]["offered_by_position"]]
    places = [[_code(name), *acceptance_by_position(methods[name])] for name in drafted]
    parts = [
        TITLE,
        f"    {command(found)}",
        ". ".join(heading(found))
        + ". Columns are explained in [benchmarks/README.md](../benchmarks/README.md).",
        table(("method", *COLUMNS), [[_code(name), *cells(methods[name])] for name in order]),
        table(
            ("times plain (questions)", *(f"{kind} ({n})" for kind, n in kinds.items())),
            [[_code(name), *kind_cells(methods[name], kinds)] for name in order],
        ),
        table(
            ("accepted at position", *map(str, range(1, deep + 1))),
            [[*x, *[""] * (deep + 1 - len(x))] for x in places],
        ),
        table(GOALS, goal_rows(found)),
        *([gain_warning(found)] if gain_warning(found) else []),
        *[f"Left out: {_code(name)}: {why}" for name, why in found["settings"]["left_out"].items()],
    ]
    return "\n\n".join(parts)


def _code(name: str) -> str:
    return f"`{name.replace('`', ' ')}`"


def with_section(text: str, section: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """The document `text` with the section between its marks, at the end if it had none."""
    begin, end = marks
    whole = f"{begin}\n{section}\n{end}"
    before, mark, rest = text.partition(begin)
    if not mark:
        return f"{text.rstrip()}\n\n{whole}\n"
    _, mark, after = rest.partition(end)
    if not mark:
        sys.exit(f"docs/benchmarks.md has {begin} without {end}: put the second mark back.")
    return before + whole + after


def measured(found: Mapping[str, Any]) -> dict[str, Any]:
    """What assets/methods.json keeps of a result: the command, and by kind and name tokens a pass and times plain."""
    figures: dict[str, dict[str, list[float]]] = {}
    for kind, naming in NAMES.items():
        for name in registry(kind):
            one = found["methods"].get(PLAIN.get(naming.format(name), naming.format(name)))
            if one is not None and one["tau"] and one["ratio"]:
                figures.setdefault(kind, {})[name] = [round(one["tau"], 2), round(one["ratio"]["median"], 2)]
    return {"command": command(found), "figures": figures}


def as_text(told: Mapping[str, Any]) -> str:
    """The text of assets/methods.json: a line for each headline and each pair of figures."""
    return (
        re.sub(r"\[\s+([\d.]+),\s+([\d.]+)\s+\]", r"[\1, \2]", json.dumps(told, ensure_ascii=False, indent=1))
        + "\n"
    )


def with_columns(text: str, told: Mapping[str, Any]) -> str:
    """Fill the tables of the document `text` with headlines and figures of assets/methods.json, `told`.

    The tables of drafters and schedules get them in their last three columns, with the command below. The table of other parts
    gets their headlines in the last one.
    """
    lines = text.split("\n")
    for kind, begin in TABLES.items():
        lines = _table(lines, kind, begin, told)
    return "\n".join(_others(lines, told["headlines"]))


def _found(lines: Sequence[str], begin: str) -> tuple[int, int]:
    """The first line of the table that begins so, and the one behind its last."""
    first = next((i for i, line in enumerate(lines) if line.startswith(begin)), None)
    if first is None:
        sys.exit(
            f"docs/methods.md has no table that begins with {begin}: put it back, or change benchmarks/speculation.py."
        )
    return first, next(
        i for i in range(first, len(lines) + 1) if i == len(lines) or not lines[i].startswith("|")
    )


def _others(lines: list[str], headlines: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The lines with the last column of the table of other parts."""
    first, last = _found(lines, TOLD)
    for i in range(first + 2, last):
        part, source, ours = (cell.strip() for cell in lines[i].strip().strip("|").split("|")[:3])
        kind, name = part.split()
        lines[i] = _line([part, source, ours, headlines.get(kind, {}).get(name.strip("`"), "")])
    return lines


def _table(lines: list[str], kind: str, begin: str, told: Mapping[str, Any]) -> list[str]:
    """The lines with the columns of one table."""
    first, last = _found(lines, begin)
    headlines, figures = told["headlines"].get(kind, {}), told["measured"]["figures"].get(kind, {})
    made = [f"{begin} {' | '.join(COLUMNS_OF_METHODS)} |", "|---|---|---|---|---|"]
    for line in lines[first + 2 : last]:
        name, what = (cell.strip() for cell in line.strip().strip("|").split("|")[:2])
        tau, ratio = figures.get(name.strip("`"), (None, None))
        made.append(
            _line([name, what, headlines.get(name.strip("`"), ""), format_number(tau), format_number(ratio)])
        )
    after = lines[last:]
    while after and (not after[0] or after[0].startswith(SAID)):
        after.pop(0)
    said = f"{SAID}`{told['measured']['command']}`, greedy; `-`: not measured. More of it: [benchmarks.md](benchmarks.md)."
    return [*lines[:first], *made, "", said, "", *after]


def _line(row: Sequence[str]) -> str:
    return "| " + " | ".join(row) + " |"


def draw(found: Mapping[str, Any]) -> Any:
    """A plotly figure: for each method, its gain by kind of question, and where the time of its median step goes."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    order = [name for name in names_by_gain(found) if found["methods"][name]["side"] == "decodescope"]
    ones, kinds = [found["methods"][name] for name in order], list(found["kinds"])
    made = make_subplots(1, 2, column_widths=[0.6, 0.4], shared_yaxes=True, horizontal_spacing=0.03)
    gains = [[(one["by_kind"][kind]["ratio"] or {}).get("median") for kind in kinds] for one in ones]
    shown = [["" if x is None else f"{x:.2f}" for x in row] for row in gains]
    made.add_trace(
        go.Heatmap(x=kinds, y=order, z=gains, text=shown, texttemplate="%{text}", zmid=1, showscale=False),
        1,
        1,
    )
    for key in ("passes", "heads", "overhead"):
        made.add_trace(
            go.Bar(x=[100 * (one[key] or 0) for one in ones], y=order, name=key, orientation="h"), 1, 2
        )
    made.update_layout(
        title="Times plain decoding, by kind; and the median step, in percent",
        barmode="stack",
        height=200 + 24 * len(order),
        template="plotly_white",
    )
    return made.update_yaxes(autorange="reversed")


def read(path: Path) -> dict[str, Any]:
    """The result in a file; ends the program with one sentence if it holds none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(
            f"{path} cannot be read ({str(error)[:80]}): give the file of decodescope bench speculation --out."
        )
    if not isinstance(found, dict) or found.get("speculation") != VERSION or not found.get("rows"):
        sys.exit(
            f"{path} holds no result of version {VERSION}: give the file of decodescope bench speculation --out."
        )
    return found


def main() -> None:
    """Read, then print or write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, nargs="?", help="what decodescope bench speculation --out wrote")
    parser.add_argument(
        "--write",
        action="store_true",
        help="rewrite docs/benchmarks.md, assets/methods.json, docs/methods.md",
    )
    parser.add_argument("--figure", type=Path, metavar="OUT", help="draw it into this HTML file too")
    args = parser.parse_args()
    if args.file is None and (not args.write or args.figure is not None):
        parser.error(
            "give the file of decodescope bench speculation --out; without one only --write works, on docs/methods.md"
        )
    told = json.loads(BOOK.read_text(encoding="utf-8"))
    made: dict[Path, str] = {}
    if args.file is not None:
        found = read(args.file)
        if args.figure is not None:
            draw(found).write_html(args.figure, include_plotlyjs=True)
        if not args.write:
            print(page(found))
            return
        told["measured"] = measured(found)
        benchmarks = DOCS / "benchmarks.md"
        made = {
            benchmarks: with_section(benchmarks.read_text(encoding="utf-8"), page(found)),
            BOOK: as_text(told),
        }
    methods = DOCS / "methods.md"
    made[methods] = with_columns(methods.read_text(encoding="utf-8"), told)
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
