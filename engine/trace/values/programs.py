"""Analyse a Python text without running it: whether it parses, which names it lacks, where its comments are."""

from __future__ import annotations

import ast
import builtins
import textwrap
import warnings
from collections.abc import Iterator, Sequence

OPENS = (
    "for",
    "if",
    "while",
    "try",
    "#!/",
)  # a line that begins so has others below it, or is none of the program
_KNOWN = frozenset(dir(builtins))
_ADDED = "pass"


def parse_program(program: str) -> ast.Module | None:
    """The tree of a program, or of the beginning of one: a block that its last line opens has a `pass` put into it. None: it is
    neither. Nothing is compiled or run."""
    text = textwrap.dedent(program).rstrip()
    last = text.rpartition("\n")[2]
    indent = last[: len(last) - len(last.lstrip())]
    for end in ("\n", f"\n{indent}    {_ADDED}\n"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)
                return ast.parse(text + end)
        except (
            SyntaxError,
            ValueError,
            RecursionError,
            MemoryError,
        ):  # all of them are ways in which it does not parse
            continue
    return None


def unbound_names(tree: ast.Module) -> set[str]:
    """Names that a program reads and nothing in it binds, Python's own left out."""
    read, bound = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        bound.update(_bound_names(node))
    return read - bound - _KNOWN


def imported_names(line: str) -> set[str] | None:
    """The names that a line which imports binds; None if it is no such line."""
    tree = parse_program(line.strip()) if line.lstrip().startswith(("import ", "from ")) else None
    return None if tree is None else {name for node in tree.body for name in _bound_names(node)}


def find_comment_lines(lines: Sequence[str]) -> list[bool]:
    """For each line, whether it is a comment or inside a text between triple quotes."""
    out, inside = [], False
    for line in lines:
        marks = sum(line.count(mark) for mark in ('"""', "'''"))
        out.append(inside or marks > 0 or line.lstrip().startswith("#"))
        inside ^= marks % 2 == 1
    return out


def _bound_names(node: ast.AST) -> Iterator[str]:
    """The names that a node binds besides those that it stores into."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
