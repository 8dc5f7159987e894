"""Turn a result of `bench prompts` into the table of docs/prompts.md.

decodescope bench prompts --short --out found.json
python benchmarks/prompts.py found.json
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labbench import read, table

from decodescope.app.commands.bench.prompts import COLUMNS, cells
from decodescope.engine.bench.figures.prompt_compression import VERSION


def page(found: Mapping[str, Any]) -> str:
    """The result in Markdown: how it was taken, and a line for each method."""
    s = found["settings"]
    draft = s["further"].get("draft", {}).get("name")
    about = (
        f"`{s['model']}`" + (f" with the draft model `{draft}`" if draft else "") + f", {s['dtype']}; "
        f"{sum(found['kinds'].values())} questions; {s['machine']}, {s['device']}, {s['threads']} threads, torch {s['torch']}."
    )
    return "\n\n".join(
        [about, table(("method", *COLUMNS), [[name, *cells(one)] for name, one in found["methods"].items()])]
    )


def main() -> None:
    """Read and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="what decodescope bench prompts --out wrote")
    print(page(read(parser.parse_args().file, "prompts", VERSION)))


if __name__ == "__main__":
    main()
