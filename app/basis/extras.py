"""Extras: which command needs which of the optional packages that `pip install decodescope` leaves out."""

from __future__ import annotations

import argparse

from decodescope.engine.core.extras import require

# command, and the only option with which it needs them -> extra
NEEDS = {
    ("app", ""): "app",
    ("gallery", "course"): "notebooks",
    ("workload", "html"): "bench",
    ("measure", "html"): "bench",
    ("train", "html"): "bench",
    ("doctor", "html"): "bench",
}


def check_extras(args: argparse.Namespace) -> None:
    """Refuse a command before it begins if packages that it needs are not installed."""
    for (command, option), extra in NEEDS.items():
        if args.command == command and (not option or getattr(args, option, None)):
            require(extra, f"decodescope {command}{f' --{option}' if option else ''}")
