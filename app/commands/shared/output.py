"""Output: how a command prints its results, for programs and for people."""

from __future__ import annotations

import argparse
import codecs
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decodescope.engine.core.paths import expand_path
from decodescope.engine.core.refusal import Refusal

if TYPE_CHECKING:
    from decodescope.engine.session.load import Model


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on standard output; NaN and infinity raise an error, since JSON has no word for them."""
    print(json.dumps(value, allow_nan=False, default=str))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns under their heads, two spaces apart; the last column is not padded."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head) - 1)]
    return "\n".join(
        "  ".join([cell.ljust(width) for cell, width in zip(line, widths, strict=False)] + line[-1:]).rstrip()
        for line in lines
    )


def print_note(text: str) -> None:
    """Print a remark that is not a result, on standard error."""
    print(text, file=sys.stderr, flush=True)


def load_model(name: str, *how: Any) -> Model:
    """A model as `load` reads it, with a note for each remark on its files."""
    from decodescope.engine.session.load import load

    model = load(name, *how)
    for text in model.remarks:
        print_note(f"Note: {text}")
    return model


def progress_printer(as_json: bool) -> Callable[[str], None]:
    """A function that prints the progress of a measurement: one line per step.
    It prints nothing where a progress bar shows the steps or JSON is requested."""
    from decodescope.engine.core.progress import is_enabled

    return (lambda text: None) if as_json or is_enabled() else print_note


class LivePrinter:
    """Text that appears while it is written: bytes go in, whole characters come out on standard output."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.last = ""

    def add(self, data: bytes, final: bool = False) -> None:
        """Print the characters that `data` completes; `final`: nothing follows, and leftover bytes are no character."""
        text = self._decoder.decode(data, final)
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self.last = text[-1]


def new_file_path(name: str, option: str, what: str, *endings: str) -> Path:
    """The path `name`, if neither it nor it with one of `endings` exists.
    Raises Refusal before anything is loaded if it cannot be written. option: the option that gives the name;  what: what is
    written there"""
    target = expand_path(name)
    try:
        for taken in (target, *(target.with_name(target.name + ending) for ending in endings)):
            if taken.exists():
                raise Refusal(f"{taken} exists already: choose another name for {option}, or move it away.")
        if not target.parent.is_dir():
            raise Refusal(f"There is no folder {target.parent} for {what}: make it first, or choose another.")
    except (
        OSError,
        ValueError,
    ) as error:  # a name that the system does not accept, or a folder that may not be read
        wrong = getattr(error, "strerror", None) or error
        raise Refusal(f"{what[0].upper()}{what[1:]} cannot be written to {name[:200]}: {wrong}.") from None
    return target


def result_paths(args: argparse.Namespace) -> tuple[Path | None, Path | None]:
    """Where --out and --html are written, None for one that was not given. Raises Refusal as `new_file_path`, and for one name
    twice."""
    out = None if args.out is None else new_file_path(args.out, "--out", "the result")
    html = None if args.html is None else new_file_path(args.html, "--html", "its picture")
    if out is not None and out == html:
        raise Refusal("--out and --html name the same file: give them different ones.")
    return out, html


def format_bytes(count: int) -> str:
    """Bytes as people read them, e.g. `1.5 MiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
