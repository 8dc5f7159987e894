"""The command `methods`: every part of every kind and every weight transform, with its knobs.

It also lists the methods that are a command of their own."""

from __future__ import annotations

import argparse
from typing import Any

from decodescope.app.runs.catalogue.commands import commands
from decodescope.app.runs.catalogue.parts import parts, transforms
from decodescope.engine.core.exactness import exactness_text

from .shared.output import print_json


def methods(args: argparse.Namespace) -> int:
    """Print every part of every kind, with its knobs, and then the commands."""
    rows, own = [*parts(), *transforms()], commands()
    if args.exactness is not None:
        rows, own = ([x for x in some if x["exactness"] == args.exactness] for some in (rows, own))
    if args.json:
        print_json({"methods": rows, "commands": own})
        return 0
    for kind in dict.fromkeys(part["kind"] for part in rows):
        print(f"{kind}")
        for part in (x for x in rows if x["kind"] == kind):
            needs = "".join(f" [needs --{role}]" for role in part["needs"]["models"])
            needs += "".join(f" [needs heads/{x}, not shipped]" for x in part["needs"]["missing"])
            print(f"  {part['name']}: {part['title']} [{exactness_text(part['exactness'])}]{needs}")
            for knob in part["params"]:
                print(f"      {knob['name']} = {knob['default']}  {value_range(knob)}{knob['help']}")
    print("command")
    for command in own:
        print(f"  {command['name']}: {command['title']} [{exactness_text(command['exactness'])}]")
        print(f"      {command['run']}")
    return 0


def value_range(knob: dict[str, Any]) -> str:
    """The values that a knob takes, in words."""
    if knob["choices"]:
        return f"({', '.join(map(str, knob['choices']))}) "
    if knob["low"] is None and knob["high"] is None:
        return f"({knob['unit']}) " if knob["unit"] else ""
    low, high = ("" if x is None else f"{x:g}" for x in (knob["low"], knob["high"]))
    return f"({low} to {high}{' ' + knob['unit'] if knob['unit'] else ''}) " if high else f"(from {low}) "
