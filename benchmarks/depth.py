"""Turn a result of `bench depth` into the table of docs/benchmarks.md.

decodescope bench depth --short --out found.json
python benchmarks/depth.py found.json [--untimed]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labbench import read, table

from decodescope.app.commands.bench.depth import COLUMNS, GOALS, cells, goal_rows
from decodescope.engine.bench.figures.depth import VERSION


def page(found: Mapping[str, Any], timed: bool) -> str:
    """The result in Markdown: how it was taken, a line for each rule, and the goals; without times where they say nothing."""
    s, last = found["settings"], None if timed else -1
    about = (
        f"`{s['model']}`, {s['dtype']}; {sum(found['kinds'].values())} questions; {s['machine']}, {s['device']}, "
        f"{s['threads']} threads, torch {s['torch']}."
    )
    lines = [[name, *cells(one)[:last]] for name, one in found["methods"].items()]
    parts = [about, table(("rule", *COLUMNS[:last]), lines)]
    if timed and found["goals"]:
        parts.append(table(GOALS, goal_rows(found)))
    return "\n\n".join(parts)


def main() -> None:
    """Read and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="what decodescope bench depth --out wrote")
    parser.add_argument(
        "--untimed", action="store_true", help="leave the times out: the machine had other work"
    )
    args = parser.parse_args()
    print(page(read(args.file, "depth", VERSION), not args.untimed))


if __name__ == "__main__":
    main()
