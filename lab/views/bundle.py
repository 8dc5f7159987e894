"""Bundle: the modules of web/scope as one script without imports, for the page, the notebook and the exported file.

The modules are named ones: `import { a, b } from "./file.js";` at the top, `export` before a declaration. Their text is
put one after the other, what is needed first, so their names share one scope; a name that stands twice is refused.
Comments on lines of their own stay behind: they are a sixth of what would travel.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

WEB = Path(__file__).resolve().parent.parent / "web"
ENTRY = "scope.js"
_IMPORT = re.compile(r'^import \{\s*(\w+(?:,\s*\w+)*),?\s*\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
_PASSED = re.compile(r'^export \{\s*(\w+(?:,\s*\w+)*),?\s*\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
_DECLARED = re.compile(r"^(export )?(?:async )?(?:const|let|class|function\*?) (\w+)", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?:/\*(?s:.*?)\*/[ \t]*|//.*)\n", re.MULTILINE)
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
    parts = [f"// ---- {name}\n{text.strip()}\n" for name, text in texts.items()]
    return "\n".join([*parts, f"export {{ {', '.join(passed)} }};\n"])


def bare(text: str) -> str:
    """A script without the comments that have lines of their own."""
    return _COMMENT.sub("", text)


def _names(listed: str) -> list[str]:
    return re.findall(r"\w+", listed)
