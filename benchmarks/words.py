"""Turn a result of `bench words` into the table of docs/benchmarks.md.

decodescope bench words --short --out found.json
python benchmarks/words.py found.json
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labbench import read, table

from decodescope.app.commands.bench.words import COLUMNS, GOALS, cells, goal_rows
from decodescope.engine.bench.figures.words import VERSION


def page(found: Mapping[str, Any]) -> str:
    """The result in Markdown: how it was taken, a line for each method, and the goals."""
    s = found["settings"]
    amateur = s["further"].get("amateur", {}).get("name")
    about = (
        f"`{s['model']}`" + (f" with the amateur `{amateur}`" if amateur else "") + f", {s['dtype']}; "
        f"{sum(found['kinds'].values())} questions, seed {s['seed']}; {s['machine']}, {s['device']}, {s['threads']} threads, "
        f"torch {s['torch']}."
    )
    parts = [
        about,
        table(("method", *COLUMNS), [[name, *cells(one)] for name, one in found["methods"].items()]),
    ]
    if found["goals"]:
        parts.append(table(GOALS, goal_rows(found)))
    return "\n\n".join(parts)


def main() -> None:
    """Read and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="what decodescope bench words --out wrote")
    print(page(read(parser.parse_args().file, "words", VERSION)))


if __name__ == "__main__":
    main()
