"""Turn a result of `bench cascade` into the table of docs/cascades.md.

decodescope bench cascade --short --out found.json
python benchmarks/cascade.py found.json
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labbench import read, table

from decodescope.app.commands.bench.cascade import COLUMNS, GOAL, cells, goal_rows
from decodescope.engine.bench.figures.cascade import VERSION


def page(found: Mapping[str, Any]) -> str:
    """The result in Markdown: how it was taken, a line for each router and threshold, and the goal."""
    s = found["settings"]
    about = f"`{s['model']}` and `{s['draft']}`, {s['dtype']}; {sum(found['kinds'].values())} questions; torch {s['torch']}."
    parts = [
        about,
        table(("method", *COLUMNS), [[name, *cells(one)] for name, one in found["methods"].items()]),
    ]
    if rows := goal_rows(found):
        parts.append(table(GOAL, rows))
    return "\n\n".join(parts)


def main() -> None:
    """Read and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="what decodescope bench cascade --out wrote")
    print(page(read(parser.parse_args().file, "cascade", VERSION)))


if __name__ == "__main__":
    main()
