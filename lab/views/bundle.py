"""Bundle: the modules of web/scope as one script without imports, for the page, the notebook and the exported file.

The modules are named ones: `import { a, b } from "./file.js";` at the top, `export` before a declaration. Their text is
put one after the other, what is needed first, so their names share one scope; a name that stands twice is refused.
Comments stay behind, and so do the spaces that lines begin with: they are a quarter of what would travel.

A browser loads no module from a file on disk, so a gallery's pages get the same as a plain script, with their own behind it.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from .script import tight

WEB = Path(__file__).resolve().parent.parent / "web"
ENTRY = "scope.js"
_IMPORT = re.compile(r'^import \{\s*(\w+(?:,\s*\w+)*),?\s*\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
_PASSED = re.compile(r'^export \{\s*(\w+(?:,\s*\w+)*),?\s*\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
_BESIDE = re.compile(r'^import \{\s*(\w+(?:,\s*\w+)*),?\s*\} from "(?:\./|\.\./)([\w-]+\.js)";\n', re.MULTILINE)
_EXPORTED = re.compile(r"^export \{ ([\w, ]+) \};\n", re.MULTILINE)
_DECLARED = re.compile(r"^(export )?(?:async )?(?:const|let|class|function\*?) (\w+)", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?:/\*(?s:.*?)\*/[ \t]*|//.*)\n", re.MULTILINE)
_SPARE = re.compile(r"^\s+|[ \t]+// [^\"'`\n]*$", re.MULTILINE)  # a comment behind code, not the like of it in a text
_OTHER = re.compile(  # what is left of imports and exports, and declarations whose names are not read here
    r"^import\b.*|^export (?!default \{|(?:async )?(?:const|let|class|function)\b).*"
    r"|^(?:const|let) [\[{].*|^var .*|\bimport\(.*",
    re.MULTILINE,
)


class BundleError(ValueError):
    """Modules that cannot be joined. One sentence: which, and what to write instead."""


@cache
def bundle() -> str:
    """The drawing module as one script that imports nothing; its exports are those of its entry."""
    return joined(WEB / "scope", ENTRY)


def joined(folder: Path, entry: str) -> str:
    """The modules of `folder` that `entry` needs, in one text that ends with the entry's exports. Raises BundleError."""
    texts: dict[str, str] = {}  # in the order in which they run
    exports: dict[str, set[str]] = {}
    owners: dict[str, str] = {}
    passed: list[str] = []

    def take(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise BundleError(f"{' -> '.join([*above, name])}: modules import each other in a circle; move what both need.")
        if name in texts:
            return
        path = folder / name
        if not path.is_file():
            raise BundleError(f"{above[-1] if above else 'the bundle'} imports {name}, which is not in {folder.name}.")
        text = bare(path.read_text(encoding="utf-8"))
        wanted = [(_names(match[1]), match[2]) for match in _IMPORT.finditer(text)]
        if name == entry:
            wanted += [(_names(match[1]), match[2]) for match in _PASSED.finditer(text)]
            passed.extend(x for match in _PASSED.finditer(text) for x in _names(match[1]))
            text = _PASSED.sub("", text)
        text = _IMPORT.sub("", text)
        for names, other in wanted:
            take(other, (*above, name))
            if missing := [x for x in names if x not in exports[other]]:
                raise BundleError(f"{name} imports {', '.join(missing)} from {other}, which does not export it.")
        if match := _OTHER.search(text):
            raise BundleError(f'{name}: "{match[0][:60]}" cannot be joined; import and export by name, declare one name each.')
        if "export default" in text and name != entry:
            raise BundleError(f"{name} has a default export; only {entry} may.")
        exports[name] = {match[2] for match in _DECLARED.finditer(text) if match[1]}
        for match in _DECLARED.finditer(text):
            if (first := owners.setdefault(match[2], name)) != name:
                raise BundleError(f"{match[2]} stands in {first} and in {name}; joined they are one scope: rename one.")
        if name == entry:
            passed.extend(sorted(exports[name]))
        texts[name] = re.sub(r"^export (?!default)", "", text, flags=re.MULTILINE)

    take(entry, ())
    parts = [f"// ---- {name}\n{spare(text)}\n" for name, text in texts.items()]
    return "\n".join([*parts, f"export {{ {', '.join(passed)} }};\n"])


def bare(text: str) -> str:
    """A script without the comments that have lines of their own."""
    return _COMMENT.sub("", text)


def spare(text: str) -> str:
    """A script without the comments behind its code too, without empty lines, and without the spaces in front of its lines and
    beside its signs; no text of it may go over lines."""
    return tight(_SPARE.sub("", bare(text).strip()))


def declared(text: str) -> list[str]:
    """The names that a script declares for all of it."""
    return [match[2] for match in _DECLARED.finditer(bare(text))]


def classic(*scripts: Path) -> str:
    """The drawing module and, behind it, these scripts as one that is no module: it imports and exports nothing and leaves
    no name. They import by name from scope.js, beside or above them, and from those named before. Raises BundleError."""
    module = bundle()
    known = {ENTRY: {x for match in _EXPORTED.finditer(module) for x in _names(match[1])}}
    owners: dict[str, str] = {}
    parts = []
    for path in scripts:
        text = bare(path.read_text(encoding="utf-8"))
        for match in _BESIDE.finditer(text):
            if match[2] not in known:
                raise BundleError(f"{path.name} imports {match[2]}, which is not named before it.")
            if missing := [x for x in _names(match[1]) if x not in known[match[2]]]:
                raise BundleError(f"{path.name} imports {', '.join(missing)} from {match[2]}, which does not export it.")
        text = _BESIDE.sub("", text)
        if other := _OTHER.search(text):
            raise BundleError(f'{path.name}: "{other[0][:60]}" cannot be joined; import and export by name.')
        known[path.name] = {match[2] for match in _DECLARED.finditer(text) if match[1]}
        for match in _DECLARED.finditer(text):
            if (first := owners.setdefault(match[2], path.name)) != path.name:
                raise BundleError(f"{match[2]} stands in {first} and in {path.name}; joined they are one scope: rename one.")
        parts.append(f"// ---- {path.name}\n" + re.sub(r"^export ", "", text, flags=re.MULTILINE).strip() + "\n")
    whole = _EXPORTED.sub("", re.sub(r"^export default\b ?", "void ", module, flags=re.MULTILINE))
    # a name of the scripts may stand in the module too: they have a scope of their own inside of its
    return "\n".join(['(() => {\n"use strict";', whole, "(() => {", *parts, "})();", "})();\n"])


def _names(listed: str) -> list[str]:
    return re.findall(r"\w+", listed)
