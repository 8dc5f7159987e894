"""A small Python function: name, argument and docstring are given, the body is to be written."""

from __future__ import annotations

from random import Random

from .task import Task, ask, pick

KIND = "code"

ASK = (
    "Write the body of this function.",
    "Complete this function.",
    "What is the body of this function?",
    "Fill in the body.",
    "Finish the function. Write only its body.",
)
ARGUMENTS = {
    "x": ("x", "n", "value", "number", "size"),
    "v": ("values", "items", "numbers", "data"),
    "t": ("text", "word", "line", "name", "title"),
}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
KEYS = ("name", "age", "city", "price", "count", "colour", "size", "title", "id")
# name, kind of argument, docstring, body; {x} the argument, {n} a number, {c} a letter, {k} a key
FAMILY = (
    ("add_{n}", "x", "Return {x} plus {n}.", "return {x} + {n}"),
    ("subtract_{n}", "x", "Return {x} minus {n}.", "return {x} - {n}"),
    ("times_{n}", "x", "Return {x} times {n}.", "return {x} * {n}"),
    ("remainder_{n}", "x", "Return the remainder of {x} divided by {n}.", "return {x} % {n}"),
    ("is_{n}", "x", "Tell whether {x} is {n}.", "return {x} == {n}"),
    ("is_above_{n}", "x", "Tell whether {x} is more than {n}.", "return {x} > {n}"),
    ("is_below_{n}", "x", "Tell whether {x} is less than {n}.", "return {x} < {n}"),
    ("divides_{n}", "x", "Tell whether {x} can be divided by {n}.", "return {x} % {n} == 0"),
    ("at_most_{n}", "x", "Return {x}, or {n} if {x} is more.", "if {x} > {n}:\n    return {n}\nreturn {x}"),
    ("at_least_{n}", "x", "Return {x}, or {n} if {x} is less.", "if {x} < {n}:\n    return {n}\nreturn {x}"),
    ("count_to_{n}", "x", "Return the numbers from {x} to {n}.", "return list(range({x}, {n} + 1))"),
    ("first_{n}", "v", "Return the first {n} of {x}.", "return {x}[:{n}]"),
    ("last_{n}", "v", "Return the last {n} of {x}.", "return {x}[-{n}:]"),
    ("without_first_{n}", "v", "Return {x} without the first {n}.", "return {x}[{n}:]"),
    ("every_{n}", "v", "Return every {n}th of {x}.", "return {x}[::{n}]"),
    ("has_{n}", "v", "Tell whether {n} is in {x}.", "return {n} in {x}"),
    ("count_{n}", "v", "Return how often {n} is in {x}.", "return {x}.count({n})"),
    ("scale_{n}", "v", "Return {x}, each times {n}.", "return [x * {n} for x in {x}]"),
    ("raise_{n}", "v", "Return {x}, each plus {n}.", "return [x + {n} for x in {x}]"),
    ("above_{n}", "v", "Return those of {x} that are more than {n}.", "return [x for x in {x} if x > {n}]"),
    ("below_{n}", "v", "Return those of {x} that are less than {n}.", "return [x for x in {x} if x < {n}]"),
    ("without_{n}", "v", "Return those of {x} that are not {n}.", "return [x for x in {x} if x != {n}]"),
    (
        "sum_above_{n}",
        "v",
        "Return the sum of those of {x} that are more than {n}.",
        "total = 0\nfor x in {x}:\n    if x > {n}:\n        total += x\nreturn total",
    ),
    (
        "count_below_{n}",
        "v",
        "Return how many of {x} are less than {n}.",
        "count = 0\nfor x in {x}:\n    if x < {n}:\n        count += 1\nreturn count",
    ),
    ("append_{n}", "v", "Add {n} at the end of {x} and return it.", "{x}.append({n})\nreturn {x}"),
    ("repeat_{n}", "t", "Return {x} {n} times.", "return {x} * {n}"),
    ("shorten_{n}", "t", "Return the first {n} letters of {x}.", "return {x}[:{n}]"),
    ("is_longer_{n}", "t", "Tell whether {x} has more than {n} letters.", "return len({x}) > {n}"),
    ("count_{c}", "t", "Return how often {c} is in {x}.", 'return {x}.count("{c}")'),
    ("has_{c}", "t", "Tell whether {c} is in {x}.", 'return "{c}" in {x}'),
    ("starts_{c}", "t", "Tell whether {x} starts with {c}.", 'return {x}.startswith("{c}")'),
    ("ends_{c}", "t", "Tell whether {x} ends with {c}.", 'return {x}.endswith("{c}")'),
    ("split_{c}", "t", "Split {x} at every {c}.", 'return {x}.split("{c}")'),
    ("drop_{c}", "t", "Return {x} without {c}.", 'return {x}.replace("{c}", "")'),
    ("get_{k}_{n}", "d", "Return the {k} of {x}, or {n}.", 'return {x}.get("{k}", {n})'),
    ("set_{k}_{n}", "d", "Set the {k} of {x} to {n} and return {x}.", '{x}["{k}"] = {n}\nreturn {x}'),
)


def make(r: Random, split: str) -> Task:
    """The head of a function of the family, and its body without indentation."""

    def draw() -> tuple[int, str, int, str, str]:
        i = r.randrange(len(FAMILY))
        argument = r.choice(ARGUMENTS.get(FAMILY[i][1], ("record", "person", "entry", "row")))
        return i, argument, r.randint(2, 99), r.choice(LETTERS), r.choice(KEYS)

    def content() -> tuple[str, str, str]:
        i, x, n, c, k = draw()
        name, _, says, body = (part.format(x=x, n=n, c=c, k=k) for part in FAMILY[i])
        return f"def {name}({x}):", says, body

    head, says, body = found = pick(split, content)
    turn = ask(r, r.choice(ASK), f'{head}\n    """{says}"""')
    return Task(KIND, (turn,), (body,), "exact", {"lines": body.count("\n") + 1}, repr(found))
