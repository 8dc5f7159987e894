"""Turn a result of LabBench into the tables of docs/benchmarks.md, or into its figure.

decodescope bench labbench --short --out found.json
python benchmarks/labbench.py found.json [--figure found.html]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from decodescope.app.commands.bench.labbench import COLUMNS, cells
from decodescope.app.commands.shared.bench import MET, acceptance_by_position, format_share
from decodescope.engine.bench.figures.labbench import VERSION


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; what would end a cell is taken out of it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(" ".join(cell.replace("|", "/").split()) for cell in line) + " |" for line in lines
    )


def page(found: Mapping[str, Any]) -> str:
    """The result in Markdown: how it was taken, the figures by method and by kind, and the targets."""
    s, methods = found["settings"], found["methods"]
    asked, count = s["questions"], sum(found["kinds"].values())
    how = "greedy" if not s["temperature"] else f"temperature {s['temperature']:g}"
    about = (
        f"`{s['model']}`"
        + (f" with `{s['draft']}`" if s["draft"] else "")
        + f", {s['dtype']}, {how}; {count} questions"
        f"{' (short form)' if asked.get('short') else ''} in {found['seconds'] / 60:.0f} minutes on {s['machine']}, "
        f"{s['device']}, {s['threads']} threads, torch {s['torch']}."
    )
    kinds = [
        [f"{kind} ({n})", *(format_share(one["by_kind"][kind]["accuracy"]) for one in methods.values())]
        for kind, n in found["kinds"].items()
    ]
    deep = max((len(x["offered_by_position"]) for x in methods.values()), default=0)
    places = [
        [name, *acceptance_by_position(one)] for name, one in methods.items() if one["offered_by_position"]
    ]
    goals = [
        [x["what"], f"{100 * x['goal']:.0f} %", format_share(x["value"]), str(x["questions"]), MET[x["met"]]]
        for x in found["targets"]
    ]
    parts = [
        about,
        table(("method", *COLUMNS), [[name, *cells(one)] for name, one in methods.items()]),
        table(("accuracy (questions)", *methods), kinds),
        table(
            ("accepted at position", *map(str, range(1, deep + 1))),
            [[*x, *[""] * (deep + 1 - len(x))] for x in places],
        ),
        table(("target of plain decoding", "goal", "reached", "questions", ""), goals),
    ]
    return "\n\n".join(parts)


def read(path: Path, name: str = "labbench", version: int = VERSION) -> dict[str, Any]:
    """The result of `bench NAME` in a file; ends the program with one sentence if it holds none."""
    way = f"give the file of decodescope bench {name} --out"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"{path} cannot be read ({str(error)[:80]}): {way}.")
    if not isinstance(found, dict) or found.get(name) != version:
        sys.exit(f"{path} holds no result of bench {name} in version {version}: {way}.")
    if not found["rows"]:
        sys.exit(f"{path} holds nothing that was measured.")
    return found


def main() -> None:
    """Read, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="what decodescope bench labbench --out wrote")
    parser.add_argument("--figure", type=Path, metavar="OUT", help="draw it into this HTML file too")
    args = parser.parse_args()
    found = read(args.file)
    if args.figure is not None:
        from decodescope.lab.figures.measured.labbench import figure

        figure(found).write_html(args.figure, include_plotlyjs=True)
    print(page(found))


if __name__ == "__main__":
    main()
