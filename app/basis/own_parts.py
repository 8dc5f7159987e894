"""Own parts: parts from named files and from installed packages, for a command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import entry_points

GROUP = "decodescope.parts"  # as in engine/session/own_parts.py, which needs torch


def load_own_parts(paths: Sequence[str]) -> None:
    """Load the parts of installed packages, and those of the named files and folders.
    Problems of an installed package are reported on stderr. Raises PartsError for a file that cannot be used."""
    installed = entry_points(group=GROUP)
    if not paths and not installed:
        return
    from decodescope.engine.session.own_parts import load_installed, load_parts

    for words in load_installed():
        print(words, file=sys.stderr)
    load_parts(*paths)
