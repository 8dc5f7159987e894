"""Places in the engine's source that make a tensor without naming a device, or that make a pass wait for the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CREATIONS = {
    *(
        "tensor",
        "as_tensor",
        "asarray",
        "from_numpy",
        "frombuffer",
        "scalar_tensor",
        "zeros",
        "ones",
        "full",
        "empty",
    ),
    *("empty_strided", "eye", "arange", "linspace", "logspace", "rand", "randn", "randint", "randperm"),
    *(
        "tril_indices",
        "triu_indices",
        "Tensor",
        "FloatTensor",
        "DoubleTensor",
        "LongTensor",
        "IntTensor",
        "BoolTensor",
    ),
}
LEAVES = {"item", "tolist", "cpu", "numpy", "nonzero"}  # calls that read values from the device


@dataclass(frozen=True)
class Call:
    """A call in a file. `where`: the innermost function or class method, as "file.py:Class.name"."""

    where: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.where} line {self.line}: {self.name}"


@cache
def calls(source: str, file: str) -> list[tuple[Call, ast.Call, list[str]]]:
    """Return every call of a method, with the names of the calls around it.

    Those are the calls that have it in their arguments, or that are made on its result.
    """
    came = list[tuple[Call, ast.Call, list[str]]]()

    def walk(node: ast.AST, names: list[str], around: list[str]) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names, around = [*names, node.name], []
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                came.append((Call(f"{file}:{'.'.join(names)}", node.lineno, node.func.attr), node, around))
            around = [*around, _name(node)]
        for child in ast.iter_child_nodes(node):
            walk(child, names, around)

    walk(ast.parse(source), [], [])
    return came


def homeless(source: str, file: str) -> Iterator[Call]:
    """Yield the tensor creations of a file that name no device.

    A device may be named by `device=`, or by a `.to(...)` around the creation. The start of a net's parameters counts too: they
    are filled on the device of the file that is read. What becomes a list or array at once (`.tolist()`) never was on a device.
    """
    for call, node, around in calls(source, file):
        creates = (
            call.name in CREATIONS and _of(node) == "torch" and all(x.arg != "device" for x in node.keywords)
        )
        if creates and not {"to", "tolist", "numpy", "Parameter", "register_buffer"} & {*around}:
            yield call


def leaving(source: str, file: str) -> Iterator[Call]:
    """Yield the calls of a file that wait for a tensor's values."""
    for call, node, _ in calls(source, file):
        if call.name in LEAVES and _of(node) != "np":
            yield call


def _name(node: ast.Call) -> str:
    """The last word of the called name; a `.to(...)` that names no device is "cast": it moves nothing."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    moves = name != "to" or any("device" in ast.unparse(x) for x in (*node.args, *node.keywords))
    return str(name) if moves else "cast"


def _of(node: ast.Call) -> str:
    """The name that a call's function belongs to; empty if that is no plain name."""
    value = node.func.value if isinstance(node.func, ast.Attribute) else None
    return value.id if isinstance(value, ast.Name) else ""


def read(root: Path, room: str = "") -> Iterator[tuple[str, str]]:
    """(source, file) of all Python files of the engine, or of those of one room."""
    for path in sorted((root / room).rglob("*.py")):
        yield path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
