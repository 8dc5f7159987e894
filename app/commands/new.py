"""The command `new`: write a working part of your own, and its test, as a starting point."""

from __future__ import annotations

import argparse
import keyword
import re
from pathlib import Path

from decodescope.engine.core.component import FOLDERS, registry
from decodescope.engine.core.paths import expand_path, shorten_path
from decodescope.engine.core.refusal import Refusal

from .shared.output import print_json

TEMPLATES = Path(__file__).with_name("templates")
ROOT = Path(__file__).resolve().parents[2]  # of a checkout
ROOM = {"drafter": "lookup"}  # the default family folder, for kinds that sort their parts into folders
NAME = re.compile(r"[a-z][a-z0-9_]{1,39}")
LAST_TABLE = "| {kind} | "  # how the row of a kind begins in docs/methods.md
DRAFTERS = "| `none` |"  # the first row of the table of drafters


def new(args: argparse.Namespace) -> int:
    """Write the files, and say what to do next. Raises Refusal for an invalid name, or a file that exists already."""
    kind, name = args.kind, args.name
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        raise Refusal(
            f"{name[:40]!r} cannot name a part: take lower-case letters, digits and underscores, such as my_{kind}."
        )
    if name in registry(kind):
        raise Refusal(f"There is a {kind} {name!r} already: choose another name.")
    inside = args.into is None and _is_checkout(Path.cwd())
    folder = expand_path(args.into or ".")
    home = ROOT / "engine" / "methods" / FOLDERS[kind] / ROOM.get(kind, "") if inside else folder
    part, test = home / f"{name}.py", (ROOT / "tests" / "methods" if inside else folder) / f"test_{name}.py"
    for path in (part, test):
        if path.exists():
            raise Refusal(
                f"{shorten_path(str(path))} is there already: choose another name, or move the file away."
            )
    written = [part, test]
    try:
        home.mkdir(parents=True, exist_ok=True)
        part.write_text(_fill_template(f"{kind}.txt", name), encoding="utf-8")
        test.write_text(_test_source(kind, name, inside), encoding="utf-8")
        if inside:
            written += _add_to_lists(kind, name)
    except OSError as error:
        raise Refusal(f"{shorten_path(str(home))} cannot be written: {error.strerror or error}.") from None
    own = "" if inside else f"--parts {part} "
    follow = [f"decodescope {own}check {name}", f"python -m pytest {test}"]
    if args.json:
        print_json({"kind": kind, "name": name, "files": [str(x) for x in written], "next": follow})
    else:
        print("\n".join(["Written:", *(f"  {x}" for x in written), "Next:", *(f"  {x}" for x in follow)]))
    return 0


def _is_checkout(folder: Path) -> bool:
    """Whether a folder is inside the checkout that this package runs from."""
    return (ROOT / ".git").exists() and folder.resolve().is_relative_to(ROOT)


def _fill_template(template: str, name: str) -> str:
    """A template with the name of the part in it."""
    words = name.split("_")
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    for mark, value in {
        "@NAME@": name,
        "@CLASS@": "".join(word.capitalize() for word in words),
        "@TITLE@": " ".join(words).capitalize(),
    }.items():
        text = text.replace(mark, value)
    return text


def _test_source(kind: str, name: str, inside: bool) -> str:
    """The test of a part: its contracts, and its own property."""
    own = _fill_template(f"{kind}_test.txt", name)
    others = ["import pytest"] + ["import torch"] * ("torch." in own)
    core = ["from decodescope.engine.core.component import build"] * ("build(" in own)
    contract = [
        "from decodescope.testing.contracts import Contract, contracts",
        "from decodescope.testing.contracts.exact_law import NotCounted",
    ]
    tools = ["from decodescope.testing import toys"] * ("toys." in own)
    lines = [
        *others,
        "",
        *([] if inside else ["from decodescope.engine import load_parts"]),
        *core,
        *tools,
        *contract,
        "",
    ]
    if not inside:
        lines = [
            "from pathlib import Path",
            "",
            *lines,
            f'load_parts(Path(__file__).with_name("{name}.py"))',
        ]
    text = _fill_template("test.txt", name).replace("@KIND@", kind)
    return text.replace("@IMPORTS@", "\n".join(lines)).replace("@OWN@", own.rstrip() + "\n").rstrip() + "\n"


def _add_to_lists(kind: str, name: str) -> list[Path]:
    """Enter the part into the lists of a checkout: docs/methods.md, and the settings of tests/toys.py."""
    page, toys = ROOT / "docs" / "methods.md", ROOT / "tests" / "toys.py"
    text = page.read_text(encoding="utf-8")
    if kind == "drafter":
        row = f"| `{name}` | say what it guesses with |  |  |  |\n"
        text = text.replace(DRAFTERS, row + DRAFTERS, 1)
    elif kind == "acceptance":
        text = text.replace(
            "| `lossless` | yes |", f"| `{name}` | no | say what it does |\n| `lossless` | yes |", 1
        )
    else:
        begin = LAST_TABLE.format(kind=kind)
        text = text.replace(begin, f"{begin}`{name}` (say what it does), ", 1)
    page.write_text(text, encoding="utf-8")
    settings = toys.read_text(encoding="utf-8")
    mark = "SETTINGS: dict[str, list[dict[str, Any]]] = {\n"
    toys.write_text(settings.replace(mark, f'{mark}    "{name}": [{{}}],\n', 1), encoding="utf-8")
    return [page, toys]
