"""Methods are known by what they declare: no other file names one, and no code asks for a method's class."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest
from source import ROOT, WEB, broken, families, method_modules, modules, parsed, within

pytestmark = pytest.mark.xdist_group("house")  # one process parses the files

# places outside a method's own file that may name it, each with the reason
NAMES_METHODS = {
    "engine/bench/": "what is measured",
    "app/runs/catalogue/presets.py": "what the page offers",
    "app/runs/preset_prompts.py": "the prompts of what the page offers",
    "engine/session/method.py": "what a method has where nothing is chosen",
    "engine/session/length.py": "a policy is recommended for a prompt beyond the context",
    "engine/session/session.py": "the caches of further models keep all",
    "engine/session/replay/whatif.py": "a temperature is asked for",
    "engine/model/checkpoint/keys.py": "words of other people's config.json, which some samplers share",
    "engine/model/heads/": "a head's net is called like the drafter that it was made for",
    "engine/training/": "a head is trained as the drafter that reads it expects",
    "engine/methods/drafters/heads/eagle2.py": "reads the heads of another drafter",
    "testing/": "sizes of toy heads, and usual parts beside the one that is looked at",
    "lab/web/debugger/whatif/whatif.js": "a temperature is asked for",
}
# names that are ordinary words too: found only where they are compared with a part's name, or chosen as a part
WORDS = {
    "none": "there is nothing",
    "chain": "a draft without branches",
    "fixed": "a choice of a knob",
    "free": "texts that need not be the same",
    "rest": "what is left",
    "window": "a zone of entries",
    "confidence": "how sure a choice was: what a figure shows",
    "lookahead": "text that a draft model writes ahead: a note",
    "threshold": "a number that decides",
    "random": "a choice of a knob",
    "entropy": "how spread out a distribution is",
    "own": "what is of this one",
    "space": "white space of a text",
    "speed": "how fast something is: what a figure shows",
    "grammar": "what a canvas obeys",
    "switch": "a control of the page",
    "cascade": "a measurement of bench",
    "temperature": "a knob and a setting",
    "greedy": "a word that samplers say",
    "lossless": "a flag of headers and parts",
    "int8": "a type of numbers",
    "int4": "a type of numbers",
}


def names_of_methods(source: str | ast.Module, own: str = "") -> list[str]:
    """The names of methods in a script or a module: as a whole string, or as what is imported from a method's file."""
    modules_of_methods = set(method_modules())
    names = {m.rpartition(".")[2] for m in modules_of_methods} - {own}
    clear = names - {*WORDS}
    if isinstance(source, str):
        words = re.findall(rf"""\bname\s*[=!]==?\s*["']({"|".join(WORDS)})["']""", source)
        return [x for x in re.findall(r"""["'`]([a-z0-9_]+)["'`]""", source) if x in clear] + words
    found = []
    for node in ast.walk(source):
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").removeprefix("decodescope.") in modules_of_methods
        ):
            found.append(str(node.module))
        elif isinstance(node, ast.Constant) and node.value in clear:
            found.append(str(node.value))
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            words = [x for side in sides for x in constants(side) if x in WORDS]
            if words and any(re.search(r"""(\b|_)(name|rule|stages?)\b""", ast.unparse(x)) for x in sides):
                found += words
        elif isinstance(node, ast.Dict):
            chosen = [
                x for key, x in zip(node.keys, node.values, strict=True) if {*constants(key)} & {*families()}
            ]
            found += [name for x in chosen for name in constants(x) if name in {*WORDS} & names]
    return found


def constants(node: ast.expr | None) -> list[object]:
    """The constants in an expression, alone or in a list or tuple."""
    return [x.value for x in getattr(node, "elts", [node]) if isinstance(x, ast.Constant)]


def test_no_method_is_named_outside_its_own_file() -> None:
    """Code that checks, reports, draws or chooses parts reads what the parts declare."""
    bad, used = [], set()
    for path in [*modules().values(), *WEB.rglob("*.js")]:
        name = path.relative_to(ROOT).as_posix()
        own = path.stem if name.startswith("engine/methods/") else ""
        named = names_of_methods(
            parsed(path) if path.suffix == ".py" else path.read_text(encoding="utf-8"), own
        )
        home = next((x for x in NAMES_METHODS if name.startswith(x)), None)
        if named and home:
            used.add(home)
        bad += [f"{name} names {x}" for x in named if home is None]
    assert not bad, broken(bad)
    assert used == set(NAMES_METHODS), f"no method is named any more in {set(NAMES_METHODS) - used}"


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ('if rule == "typical":\n    pass', True),
        ('WHOLE = ("typical", "block")', True),
        ('exact = rule.name == "lossless"', True),
        ('idle = method.drafter.name == "none"', True),
        ('warm = stage in ("greedy", "temperature")', True),
        ('first = {"drafter": "none", "sampler": ["greedy"]}', True),
        ('if "pearl" in notes:\n    pass', True),
        ("from decodescope.engine.methods.acceptance.judge import Judge", True),
        ('if (rule === "spectr") go();', False),
        ('const plain = rule.name !== "lossless";', False),
    ],
)
def test_a_planted_name_of_a_method_is_found(text: str, python: bool) -> None:
    assert names_of_methods(ast.parse(text) if python else text)


@cache
def parts_of_methods() -> set[str]:
    """The names of all classes that derive from Component."""
    bases: dict[str, set[str]] = {}
    for path in modules().values():
        for node in (n for n in ast.walk(parsed(path)) if isinstance(n, ast.ClassDef)):
            bases[node.name] = {ast.unparse(b).split("[")[0].rpartition(".")[2] for b in node.bases}
    parts = {"Component"}
    while more := {name for name, above in bases.items() if above & parts} - parts:
        parts |= more
    return parts


def is_type_call(node: ast.AST) -> bool:
    """Whether this is type(...)."""
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "type"


def asked_for_its_class(tree: ast.Module) -> list[int]:
    """The lines that test the class of a part: isinstance, issubclass, type(x) is, match."""
    parts, lines = parts_of_methods(), []
    for node in ast.walk(tree):
        asked: list[ast.expr] = []
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            asked = node.args[1:]
        elif isinstance(node, ast.Compare) and any(map(is_type_call, ast.walk(node))):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchClass):
            asked = [node.cls]
        names = {getattr(x, "id", getattr(x, "attr", "")) for one in asked for x in ast.walk(one)}
        if names & parts:
            lines.append(getattr(node, "lineno", 0))
    return lines


def test_no_part_is_asked_for_its_class() -> None:
    """A family's base class has the attribute that a caller needs."""
    assert len(parts_of_methods()) > 60
    bad = [
        f"{module}:{line}"
        for module, path in modules().items()
        if not within(module, "engine.core")
        for line in asked_for_its_class(parsed(path))
    ]
    assert not bad, broken(bad)


@pytest.mark.parametrize(
    "planted",
    [
        "isinstance(part, Drafter)",
        "isinstance(part, (int, policy.H2O))",
        "type(part) is Greedy",
        "issubclass(cls, Lossless)",
    ],
)
def test_a_planted_question_for_a_class_is_found(planted: str) -> None:
    assert asked_for_its_class(ast.parse(planted))
