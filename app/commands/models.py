"""The command `models`: the models that need no download."""

from __future__ import annotations

import argparse

from .shared.output import print_json, table


def models(args: argparse.Namespace) -> int:
    """Print the models that need no download."""
    from decodescope.engine.session.load import shipped_models as shipped

    shelf = [{**x, "path": str(x["path"])} for x in shipped()]
    if args.json:
        print_json({"models": shelf})
        return 0
    rows = [[x["name"], f"{x['params'] / 1e6:.1f} M", f"{x['context']:,} tokens", x["path"]] for x in shelf]
    print(table(("name", "parameters", "context", "path"), rows))
    return 0
