"""Reads the source for the house tests: modules, their imports, scripts, and the files of the project."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("engine", "lab", "app", "testing")


class Import(NamedTuple):
    """One import. `when` is "import", "call" (inside a function) or "typing" (inside `if TYPE_CHECKING`)."""

    target: str  # engine.trace.records.events for ours, torch.nn for others'
    when: str
    absolute: bool
    line: int


@cache
def modules() -> dict[str, Path]:
    """Map each dotted name inside the package to its file, for the three rooms."""
    found = {}
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def imports(module: str) -> list[Import]:
    """All imports of one of our modules; relative ones are resolved."""
    found: list[Import] = []
    is_package = modules()[module].name == "__init__.py"
    package = module if is_package else module.rpartition(".")[0]

    def visit(node: ast.AST, when: str) -> None:
        if isinstance(node, ast.Import):
            found.extend(ours(a.name, when, node) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".") if node.level else []
            base = ".".join(parts[: len(parts) - node.level + 1])
            full = ".".join(x for x in (base, node.module) if x)
            for a in node.names:
                name = full.removeprefix("decodescope.")
                deeper = f"{name}.{a.name}"
                found.append(ours(f"{full}.{a.name}" if deeper in modules() else full, when, node))
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                visit(child, "typing")
            for child in node.orelse:
                visit(child, when)
        else:
            inner = "call" if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) else when
            for child in ast.iter_child_nodes(node):
                visit(child, inner)

    def ours(name: str, when: str, node: ast.Import | ast.ImportFrom) -> Import:
        relative = isinstance(node, ast.ImportFrom) and node.level > 0
        absolute = not relative and name.split(".")[0] in ("decodescope", *ROOMS)
        return Import(name.removeprefix("decodescope."), when, absolute, node.lineno)

    visit(parsed(modules()[module]), "import")
    return found


def within(name: str, *packages: str) -> bool:
    """Whether a dotted name is one of `packages` or is inside one."""
    return any(name == p or name.startswith(p + ".") for p in packages)


def broken(rule: dict[str, str] | list[str]) -> str:
    """The message of a broken rule, with one line per place."""
    return (
        "\n" + "\n".join(f"{k}: {v}" for k, v in rule.items())
        if isinstance(rule, dict)
        else "\n" + "\n".join(rule)
    )


def imported(room: str, *whens: str) -> Iterator[tuple[str, Import]]:
    """Yield (module, import) for every import of a room at these times."""
    for module in modules():
        if within(module, room):
            yield from ((module, i) for i in imports(module) if i.when in whens)


@cache
def families() -> dict[str, str]:
    """Map each kind to the folder of its method files, as engine/core/component.py says."""
    for node in parsed(ROOT / "engine" / "core" / "component.py").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FOLDERS":
            return ast.literal_eval(node.value)
    raise AssertionError("engine/core/component.py no longer defines FOLDERS")


@cache
def method_modules() -> list[str]:
    """Every module that holds one method: those in a family's folder and its rooms, without packages and `shared`."""
    folders = tuple(f"engine.methods.{f}." for f in families().values())
    found = (m for m in modules() if m.startswith(folders) and modules()[m].name != "__init__.py")
    return sorted(m for m in found if ".shared." not in m)


@cache
def files() -> list[Path]:
    """The files of the project: those that git tracks or would track; without git, all outside the usual caches."""
    try:
        command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
        found = [ROOT / name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        away = re.compile(
            r"(^|/)(\.venv|node_modules|\.git|\.hypothesis|build|dist|runs|__pycache__|\.\w+_cache|[^/]*\.egg-info)(/|$)"
        )
        found = [p for p in ROOT.rglob("*") if not away.search(p.relative_to(ROOT).as_posix())]
    return [p for p in found if p.is_file() and not p.is_symlink()]


WEB = ROOT / "lab" / "web"


def scripts() -> dict[str, Path]:
    """Map each dotted name below lab/web to its file: debugger.search is debugger/search.js."""
    return {".".join(p.relative_to(WEB).with_suffix("").parts): p for p in sorted(WEB.rglob("*.js"))}
