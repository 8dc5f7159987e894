"""The command `app`: open the lab in the browser."""

from __future__ import annotations

import argparse
import gc
from dataclasses import fields

from decodescope.app.basis.limits import LabLimits
from decodescope.app.commands.shared.run import further_models
from decodescope.app.runs.placed_key import Placement


def app(args: argparse.Namespace) -> int:
    """Serve until it is stopped."""
    gc.disable()  # until the page is built nearly all objects stay; then `serve` collects
    try:
        _serve(args)
    finally:
        gc.enable()
    return 0


def _serve(args: argparse.Namespace) -> None:
    from .server import serve

    names = further_models(args)
    model = args.model or first_model()
    serve(
        model=model,
        draft=names.pop("draft", "lab-draft" if model == "lab" else None),
        further=names,
        host=args.host,
        port=args.port,
        data=args.data,
        open_browser=not args.no_browser,
        allow_host=args.allow_host,
        models=args.models,
        threads=args.threads,
        place=Placement(args.dtype or "", args.device or ""),
        allow_get=args.allow_get,
        limits=LabLimits(**{x.name: getattr(args, x.name) for x in fields(LabLimits)}),
    )


def first_model() -> str:
    """The model that a page begins with if none is named: the first one that was fetched, else lab."""
    from decodescope.engine.model.fetched.catalogue import fetchable_models, is_fetched

    return next((x.name for x in fetchable_models() if is_fetched(x)), "lab")
