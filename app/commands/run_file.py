"""The command `run`: decode one prompt, or the prompts of a file of JSON lines."""

from __future__ import annotations

import argparse

from decodescope.app.basis.parser import TEXTS
from decodescope.app.runs.prompts import JSON_LINES
from decodescope.engine.core.refusal import Refusal

from .batch import batch
from .shared import run as one
from .shared.output import print_note


def run(args: argparse.Namespace) -> int:
    """Decode as requested; the exit code."""
    many = args.prompt_file is not None and args.prompt_file.endswith(JSON_LINES)
    return _run_many(args) if many else one.run(args)


def _run_many(args: argparse.Namespace) -> int:
    """Decode the prompts of a file as the command `batch` does; --trace then names the folder of their traces."""
    if asked := [x for x in ("layers", "reference") if getattr(args, x) is not None]:
        raise Refusal(
            f"--{asked[0]} is about one prompt, and {args.prompt_file} may hold many: leave it out."
        )
    if args.trace is None:
        for text in one.recording_option_notes(args):
            print_note(text)
        args.trace_level = None
    more = {
        "prompts": args.prompt_file,
        "texts": TEXTS,
        "traces": args.trace,
        "out": None,
        "plan_only": False,
    }
    return batch(argparse.Namespace(**vars(args), **more))
