"""Arithmetic expressions: written from a description in words, and worked out step by step.

expression = term {("+" | "-") term};  term = factor {"*" factor};  factor = number | "(" expression ")"
"""

from __future__ import annotations

from random import Random

from .task import Task, pick

KIND = "expression"

WRITE = (
    "Write as an expression: {}",
    "Write the expression for {}.",
    "Put this into signs: {}",
    "{} as an expression:",
)
EVALUATE = ("Evaluate {}.", "Work out {}.", "What is {}? Show the steps.", "{} step by step:")
NAMED = {"+": "the sum of {} and {}", "-": "the difference of {} and {}", "*": "the product of {} and {}"}
SPOKEN = {"+": "{} plus {}", "-": "{} minus {}", "*": "{} times {}"}
Tree = int | tuple  # a number, or (sign, left, right)


def tree(r: Random, depth: int) -> Tree:
    """A tree of numbers and signs, at most `depth` signs deep."""
    if depth == 0:
        return r.randint(0, 20)
    left, right = r.choice([(depth - 1, 0), (0, depth - 1), (depth - 1, depth - 1)])
    return r.choice("+-*"), tree(r, left), tree(r, right)


def value(node: Tree) -> int:
    """What the tree comes to."""
    if isinstance(node, int):
        return node
    sign, left, right = node
    a, b = value(left), value(right)
    if sign == "+":
        return a + b
    if sign == "-":
        return a - b
    return a * b


def format_tree(node: Tree) -> str:
    """The tree as an expression with no more brackets than it needs."""
    if isinstance(node, int):
        return str(node)
    sign, left, right = node
    a, b = format_tree(left), format_tree(right)
    if sign == "*":
        a = f"({a})" if isinstance(left, tuple) and left[0] != "*" else a
        b = f"({b})" if isinstance(right, tuple) else b
    elif isinstance(right, tuple) and right[0] != "*":
        b = f"({b})"
    return f"{a} {sign} {b}"


def describe_tree(r: Random, node: Tree) -> str:
    """The tree in words; 'plus', 'minus' and 'times' only for a single sign, where nothing can be read wrongly."""
    if isinstance(node, tuple) and all(isinstance(n, int) for n in node[1:]) and r.random() < 0.5:
        return SPOKEN[node[0]].format(*node[1:])
    return name_tree(node)


def name_tree(node: Tree) -> str:
    """'the sum of 3 and the product of 4 and 5'."""
    return str(node) if isinstance(node, int) else NAMED[node[0]].format(*map(name_tree, node[1:]))


def steps(node: Tree) -> list[str]:
    """'a + b = c' for every sign of the tree, the inner ones first."""
    if isinstance(node, int):
        return []
    sign, left, right = node
    return [*steps(left), *steps(right), f"{value(left)} {sign} {value(right)} = {value(node)}"]


def is_small(node: Tree) -> bool:
    """Whether all that comes up on the way is between 0 and 99, and a product has a factor of at most 10."""
    if isinstance(node, int):
        return True
    easy = node[0] != "*" or min(value(n) for n in node[1:]) <= 10
    return easy and 0 <= value(node) < 100 and all(is_small(n) for n in node[1:])


def make(r: Random, split: str) -> Task:
    """An expression to be written or worked out."""
    form, depth = r.choice(["write", "evaluate"]), r.choice([1, 2, 2, 3])

    def draw() -> Tree:
        node = tree(r, depth)
        while not is_small(node):
            node = tree(r, depth)
        return node

    node = pick(split, draw)
    tags = {"form": form, "signs": len(steps(node))}
    if form == "write":
        return Task(
            KIND,
            (r.choice(WRITE).format(describe_tree(r, node)),),
            (format_tree(node),),
            "expression",
            tags,
            repr(node),
        )
    return Task(
        KIND,
        (r.choice(EVALUATE).format(format_tree(node)),),
        ("\n".join(steps(node)),),
        "number",
        tags,
        repr(node),
    )
