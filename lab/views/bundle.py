"""Bundle: scope.js and the modules of scope/ as one script without imports, for the page, the notebook and the exported file.

The modules are named ones: `import { a, b } from "./folder/file.js";` at the top, `export` before a declaration. Their text is
concatenated, dependencies first, so their names share one scope; a name that is declared twice is refused. Comments and
indentation are removed: they are a quarter of the size.

Code that few runs need is split from the core into parts, each a script of its own, and is delivered with the runs that need
it. The page fetches a part when the first message needs it. A notebook or file contains the parts that its own runs need.

A browser loads no module from a file on disk, so a gallery's pages get the same as a plain script, with their own behind it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from .script import strip_spaces

WEB = Path(__file__).resolve().parent.parent / "web"
ENTRY = "scope.js"
# which field of a step needs which part; the same as in web/scope/shared/extras.js
ASKS = {
    "canvas": "canvas", "branches": "trees", "tree": "trees", "threads": "threads", "depth": "depth", "lanes": "turns",
    "scale": "scale", "rounds": "repeats", "survey": "survey",
}  # fmt: skip
# named after the module that each part begins with
PARTS = tuple(sorted({*ASKS.values(), "pair", "picture", "prompt_compression", "model", "entries"}))
SINGLE = frozenset(PARTS) - {"pair"}  # parts that one run can need
_FROM = r'\{\s*(\w+(?:,\s*\w+)*),?\s*\} from "(\.{1,2}/[\w./-]+\.js)";\n'
_IMPORT = re.compile("^import " + _FROM, re.MULTILINE)
_PASSED = re.compile("^export " + _FROM, re.MULTILINE)
_EXPORTED = re.compile(r"^export \{ ([\w, ]+) \};\n", re.MULTILINE)
_DECLARED = re.compile(r"^(export )?(?:async )?(?:const|let|class|function\*?) (\w+)", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?:/\*(?s:.*?)\*/[ \t]*|//.*)\n", re.MULTILINE)
# a trailing comment, not similar text in a string
_SPARE = re.compile(r"^\s+|[ \t]+// [^\"'`\n]*$", re.MULTILINE)
_OTHER = re.compile(  # remaining imports and exports, and declarations with names that are not read here
    r"^import\b.*|^export (?!default \{|(?:async )?(?:const|let|class|function)\b).*"
    r"|^(?:const|let) [\[{].*|^var .*|\bimport\(.*",
    re.MULTILINE,
)


class BundleError(ValueError):
    """Modules that cannot be joined. One sentence: which, and what to write instead."""


def needed_parts(messages: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The parts that these messages need."""
    return frozenset(part for one in messages for part in requested_parts(one))


def requested_parts(message: Mapping[str, Any]) -> set[str]:
    """The parts that one message needs.
    A head needs one if pictures are written, a prompt was cut, a model was made from another, a depth rule was chosen or its
    cache may hold other entries than plain ones."""
    if message.get("kind") != "head":
        return {part for key, part in ASKS.items() if message.get(key)}
    ruled = message.get("parts", {}).get("adaptive_depth", {}).get("usual") is False
    changed = any(one["changed"] for one in message.get("built", {}).values())
    asks = (
        ("picture", message.get("picture")),
        ("prompt_compression", message.get("shortened")),
        ("model", changed),
        ("depth", ruled),
        ("entries", message.get("entries")),
    )
    return {name for name, wanted in asks if wanted}


@cache
def bundle(parts: frozenset[str] = frozenset(PARTS)) -> str:
    """The drawing module with these parts as one script that imports nothing; its exports are those of its entries."""
    return join_modules(WEB, ENTRY, *(part_module(part) for part in sorted(parts)))


@cache
def core_script() -> str:
    """The drawing module without parts, as the page has it; it also exports what the parts import from it."""
    return _split_core()[0]


def part_script(name: str) -> str:
    """A part as a script that imports from the core, scope.js."""
    return _split_core()[1][name]


@cache
def part_module(name: str) -> str:
    """The module that a part begins with, as its path in the scripts' folder."""
    (path,) = (WEB / "scope").rglob(f"{name}.js")
    return path.relative_to(WEB).as_posix()


def join_modules(folder: Path, entry: str, *more: str) -> str:
    """The modules of `folder` that `entry` and the modules `more` need, in one text that ends with their exports.
    Raises BundleError."""
    modules = _Modules(folder, entry)
    for name in (entry, *more):
        modules.take(name)
    return modules.text(
        modules.texts, {*modules.passed, *(x for name in more for x in modules.exports[name])}
    )


@cache
def _split_core() -> tuple[str, dict[str, str]]:
    """The core, and the parts by name."""
    modules = _Modules(WEB, ENTRY)
    modules.take(ENTRY)
    base = list(modules.texts)
    kit = set(modules.passed)
    parts = {}
    for name in PARTS:
        before, first = set(modules.texts), part_module(name)
        modules.take(first)
        own = [x for x in modules.texts if x not in before]
        wanted = [(x, other) for module in own for names, other in modules.wanted[module] for x in names]
        if shared := sorted({other for _, other in wanted if other not in (*base, *own)}):
            raise BundleError(f"{name} and another part need {', '.join(shared)}; import it in the core too.")
        taken = sorted({x for x, other in wanted if other in base})
        kit.update(taken)
        core = posixpath.relpath(ENTRY, posixpath.dirname(first))
        head = f'import {{ {", ".join(taken)} }} from "{core}";\n'
        parts[name] = head + modules.text(own, modules.exports[first])
    return modules.text(base, kit), parts


class _Modules:
    """Modules of a folder, in the order in which they run: path in it -> text without imports, what it exports and imports.

    passed: what the entry exports, its own and what it passes on
    """

    def __init__(self, folder: Path, entry: str):
        self.folder, self.entry = folder, entry
        self.texts: dict[str, str] = {}
        self.exports: dict[str, set[str]] = {}
        self.wanted: dict[str, list[tuple[list[str], str]]] = {}
        self.passed: list[str] = []
        self._owners: dict[str, str] = {}

    def take(self, name: str, above: tuple[str, ...] = ()) -> None:
        """Add a module, and its dependencies before it. Raises BundleError."""
        if name in above:
            raise BundleError(
                f"{' -> '.join([*above, name])}: modules import each other in a circle; move what both need."
            )
        if name in self.texts:
            return
        path = self.folder / name
        if name.startswith("../") or not path.is_file():
            raise BundleError(
                f"{above[-1] if above else 'the bundle'} imports {name}, which is not in {self.folder.name}."
            )
        text = strip_comments(path.read_text(encoding="utf-8"))
        wanted = self.wanted[name] = _read_imports(_IMPORT, text, name)
        if name == self.entry:
            wanted += _read_imports(_PASSED, text, name)
            self.passed.extend(x for match in _PASSED.finditer(text) for x in _parse_names(match[1]))
            text = _PASSED.sub("", text)
        text = _IMPORT.sub("", text)
        for names, other in wanted:
            self.take(other, (*above, name))
            if missing := [x for x in names if x not in self.exports[other]]:
                raise BundleError(
                    f"{name} imports {', '.join(missing)} from {other}, which does not export it."
                )
        if match := _OTHER.search(text):
            raise BundleError(
                f'{name}: "{match[0][:60]}" cannot be joined; import and export by name, declare one name each.'
            )
        if "export default" in text and name != self.entry:
            raise BundleError(f"{name} has a default export; only {self.entry} may.")
        self.exports[name] = {match[2] for match in _DECLARED.finditer(text) if match[1]}
        for match in _DECLARED.finditer(text):
            if (first := self._owners.setdefault(match[2], name)) != name:
                raise BundleError(
                    f"{match[2]} is in {first} and in {name}; joined they are one scope: rename one."
                )
        if name == self.entry:
            self.passed.extend(sorted(self.exports[name]))
        self.texts[name] = re.sub(r"^export (?!default)", "", text, flags=re.MULTILINE)

    def text(self, names: Iterable[str], exports: Iterable[str]) -> str:
        """These modules as one text that ends with its exports."""
        parts = [f"// ---- {posixpath.basename(x)}\n{minify_script(self.texts[x])}\n" for x in names]
        return "\n".join([*parts, f"export {{ {', '.join(sorted(exports))} }};\n"])


def strip_comments(text: str) -> str:
    """A script without the comments that have lines of their own."""
    return _COMMENT.sub("", text)


def minify_script(text: str) -> str:
    """A script without trailing comments, empty lines, indentation, and the spaces around its signs.
    No string in it may span lines."""
    return strip_spaces(_SPARE.sub("", strip_comments(text).strip()))


def declared_names(text: str) -> list[str]:
    """The names that a script declares for all of it."""
    return [match[2] for match in _DECLARED.finditer(strip_comments(text))]


def classic_script(*scripts: Path, parts: frozenset[str] = frozenset(PARTS)) -> str:
    """The drawing module with these parts, followed by these scripts, as one script that is no module. Raises BundleError.
    It imports and exports nothing and leaves no global name. The scripts import by name from scope.js and from the scripts
    named before."""
    module = bundle(parts)
    known = {
        (WEB / ENTRY).as_posix(): {x for match in _EXPORTED.finditer(module) for x in _parse_names(match[1])}
    }
    owners: dict[str, str] = {}
    texts = []
    for path in scripts:
        text = strip_comments(path.read_text(encoding="utf-8"))
        for names, other in _read_imports(_IMPORT, text, path.as_posix()):
            if other not in known:
                raise BundleError(
                    f"{path.name} imports {posixpath.basename(other)}, which is not named before it."
                )
            if missing := [x for x in names if x not in known[other]]:
                raise BundleError(
                    f"{path.name} imports {', '.join(missing)} from {posixpath.basename(other)}, "
                    "which does not export it."
                )
        text = _IMPORT.sub("", text)
        if unread := _OTHER.search(text):
            raise BundleError(f'{path.name}: "{unread[0][:60]}" cannot be joined; import and export by name.')
        known[path.as_posix()] = {match[2] for match in _DECLARED.finditer(text) if match[1]}
        for match in _DECLARED.finditer(text):
            if (first := owners.setdefault(match[2], path.name)) != path.name:
                raise BundleError(
                    f"{match[2]} is in {first} and in {path.name}; joined they are one scope: rename one."
                )
        texts.append(
            f"// ---- {path.name}\n" + re.sub(r"^export ", "", text, flags=re.MULTILINE).strip() + "\n"
        )
    whole = _EXPORTED.sub("", re.sub(r"^export default\b ?", "void ", module, flags=re.MULTILINE))
    # the module may have the same name as a script: the scripts have an inner scope of their own
    return "\n".join(['(() => {\n"use strict";', whole, "(() => {", *texts, "})();", "})();\n"])


def _read_imports(form: re.Pattern[str], text: str, path: str) -> list[tuple[list[str], str]]:
    """The names that a module at this path imports in this form, each time with the path of the other module."""
    folder = posixpath.dirname(path)
    return [
        (_parse_names(match[1]), posixpath.normpath(posixpath.join(folder, match[2])))
        for match in form.finditer(text)
    ]


def _parse_names(listed: str) -> list[str]:
    return re.findall(r"\w+", listed)
