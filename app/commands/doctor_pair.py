"""The command `doctor pair`: what the files of a target and of a draft model say, side by side."""

from __future__ import annotations

import argparse

from .shared.output import print_json, table


def pair(args: argparse.Namespace) -> int:
    """Print the sheet of both models; exit code 1 if their ids differ in more than special tokens."""
    from decodescope.engine.draft_doctor.pair_sheet import compare_pair, open_unloaded

    sheet = compare_pair(open_unloaded(args.model), open_unloaded(args.draft))
    if args.json:
        print_json(sheet.record())
    else:
        rows = [[x.what, x.target, x.draft, "differs" if x.target != x.draft else ""] for x in sheet.rows]
        print(table(("", sheet.target, sheet.draft, ""), rows))
        notes = [f"{x.what}: {x.matters}" for x in sheet.rows if x.matters]
        end = "The pair can be used." if sheet.fits else "The pair cannot be used without translating tokens."
        print("\n" + "\n".join([*notes, end]))
    return 0 if sheet.fits else 1
