"""The commands of the command line, with their parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from decodescope.app.basis.parser import build_parser


def command_parsers() -> dict[str, argparse.ArgumentParser]:
    """Words of every command that can be called -> its parser."""
    return dict(_walk(build_parser(), ""))


def _walk(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    below = [x for x in parser._actions if isinstance(x, argparse._SubParsersAction)]
    if name and not any(x.required for x in below):
        yield name, parser
    for action in below:
        for word, sub in action.choices.items():
            yield from _walk(sub, f"{name} {word}".strip())
