"""Turn a result of `bench kv` into the table of docs/benchmarks.md, or into its curves.

decodescope bench kv --out found.json
python benchmarks/kv.py found.json [--figure found.html]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labbench import read, table

from decodescope.app.commands.bench.kv import COLUMNS, rows, sizes
from decodescope.engine.bench.figures.kv import VERSION


def page(found: Mapping[str, Any]) -> str:
    """The result in Markdown: how it was taken, and a line for each method and budget."""
    s = found["settings"]
    about = (
        f"`{s['model']}`, {s['dtype']}; {sizes(found)}; {found['seconds']:.0f} s on {s['machine']}, {s['device']}, "
        f"{s['threads']} threads, torch {s['torch']}."
    )
    return f"{about}\n\n{table(('method', *COLUMNS), rows(found))}"


def main() -> None:
    """Read, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="what decodescope bench kv --out wrote")
    parser.add_argument("--figure", type=Path, metavar="OUT", help="draw the curves into this HTML file too")
    parser.add_argument("--keys", action="store_true", help="those of the pass keys, not of the words' price")
    args = parser.parse_args()
    found = read(args.file, "kv", VERSION)
    if args.figure is not None:
        from decodescope.lab.figures.measured.kv_price import figure

        figure(found, shows="keys" if args.keys else "nats").write_html(args.figure, include_plotlyjs=True)
    print(page(found))


if __name__ == "__main__":
    main()
