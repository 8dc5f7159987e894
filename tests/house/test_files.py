"""The content of a file: sizes, names, docstrings, caught errors."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest
from javascript import code
from javascript import functions as script_functions
from source import ROOMS, ROOT, broken, files, method_modules, modules, parsed, scripts

pytestmark = pytest.mark.xdist_group("house")  # one process parses the files

# Errors that only a programming mistake raises. Two places may catch them: for a stream that is not of Python's own kind, and
# for a part that breaks a contract.
OURS = {"AssertionError", "AttributeError", "TypeError"}
MAY_MEET = {"app.cli": {"AttributeError"}, "app.commands.check": {"AssertionError"}}


def called_name(call: ast.Call) -> str:
    """The last word of what is called: suppress of contextlib.suppress."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def test_a_mistake_of_ours_looks_like_one() -> None:
    """It must not be caught as if a record, a body or a file made no sense: those are checked where they come in."""
    bad = []
    for module, path in modules().items():
        for node in ast.walk(parsed(path)):
            caught = node.type if isinstance(node, ast.ExceptHandler) else None
            if isinstance(node, ast.Call) and called_name(node) == "suppress":
                caught = ast.Tuple(node.args)
            if caught is None:
                continue
            names = {x.id for x in ast.walk(caught) if isinstance(x, ast.Name)} & OURS
            bad += [
                f"{module}:{node.lineno} catches {name}"
                for name in sorted(names - MAY_MEET.get(module, set()))
            ]
    assert not bad, broken(bad)


# Words that say nothing about what a variable holds. They may stay for the tensors in files of heads, and for the result of
# recover().
EMPTY_NAMES = {"made", "found", "told"}
KEEP_THEM = {
    "engine.model.heads.drafting.mlp_speculator",
    "engine.model.heads.drafting.redrafter",
    "engine.trace.file.recover",
}


def empty_names(tree: ast.Module) -> list[tuple[int, str]]:
    """(line, name) of the variables, arguments and attributes with such a name; functions may have it."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            names.append((node.lineno, node.id if isinstance(node, ast.Name) else node.attr))
        elif isinstance(node, ast.arg):
            names.append((node.lineno, node.arg))
    return [(line, name) for line, name in names if name.strip("_") in EMPTY_NAMES]


def test_variables_are_named_after_what_they_hold() -> None:
    bad = [
        f"{module}:{line} {name}"
        for module, path in modules().items()
        if module not in KEEP_THEM
        for line, name in empty_names(parsed(path))
    ]
    assert not bad, broken(bad)


@pytest.mark.parametrize(
    "planted",
    [
        "made = []",
        "def f(found): ...",
        "self.told = 1",
        "[x for made in y]",
        "def f(*, told=1): ...",
        "f(found := 3)",
    ],
)
def test_a_planted_empty_name_is_found(planted: str) -> None:
    assert empty_names(ast.parse(planted))


def crowded_assignments(tree: ast.Module) -> list[int]:
    """Lines of the assignments that give names to three listed values or more, or to values on several lines."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and any(isinstance(x, (ast.Tuple, ast.List)) for x in node.targets)
        and (len(node.value.elts) > 2 or node.end_lineno != node.lineno)
    ]


def test_values_are_assigned_one_by_one() -> None:
    """Two short values may share a line, such as a swap; what a call returns may be unpacked into any number of names."""
    bad = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in files()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in (*ROOMS, "training")
        for line in crowded_assignments(parsed(path))
    ]
    assert not bad, broken(bad)


@pytest.mark.parametrize(
    "planted", ["a, b, c = 1, f(2), 3", "self.a, (b, c), d = 1, x, 3", "a, b = (\n    1,\n    2,\n)"]
)
def test_a_planted_crowded_assignment_is_found(planted: str) -> None:
    assert crowded_assignments(ast.parse(planted))


@pytest.mark.parametrize("planted", ["a, b = b, a", "a, b, c = f()", "x = 1, 2, 3", "a, b = f(\n    1,\n)"])
def test_a_swap_and_what_is_returned_are_no_crowd(planted: str) -> None:
    assert not crowded_assignments(ast.parse(planted))


def chained_conditions(tree: ast.Module) -> list[int]:
    """Lines of conditional expressions whose other case is a conditional expression again."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.IfExp) and isinstance(node.orelse, ast.IfExp)
    ]


def test_no_conditional_expressions_are_chained() -> None:
    bad = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in files()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in (*ROOMS, "training", "benchmarks")
        for line in chained_conditions(parsed(path))
    ]
    assert not bad, broken(bad)
    assert chained_conditions(ast.parse("x = 1 if a else 2 if b else 3")) == [1]


@pytest.mark.parametrize("module", method_modules())
def test_method_file_holds_one_component_with_title_source_and_docstring(module: str) -> None:
    tree = parsed(modules()[module])
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef)]
    components = [c for c in classes if any(ast.unparse(d) == "component" for d in c.decorator_list)]
    assert [c.name for c in classes if not c.name.startswith("_")] == [c.name for c in components], (
        "one public class"
    )
    assert len(components) == 1
    said = {}
    for node in components[0].body:
        target = getattr(node, "target", None) if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        if target is not None and node.value is not None:
            said[ast.unparse(target)] = node.value
    for name in ("title", "source"):
        assert name in said, f"{components[0].name} has no {name}"
        assert str(ast.literal_eval(said[name])).strip(), f"{components[0].name}.{name} is empty"
    assert ast.get_docstring(components[0])


def test_every_public_name_has_a_docstring() -> None:  # noqa: C901
    """An override may leave the docstring to the method that it overrides, in any of our rooms."""
    classes: dict[str, ast.ClassDef] = {}
    for path in modules().values():
        classes.update({n.name: n for n in ast.walk(parsed(path)) if isinstance(n, ast.ClassDef)})

    def said_above(cls: ast.ClassDef, method: str) -> bool:
        for base in cls.bases:
            name = ast.unparse(base).split("[")[0].split(".")[-1]
            if name not in classes:
                if name in {"Module", "NodeVisitor", "Thread", "HTMLParser"} and "." in ast.unparse(base):
                    return True
                continue
            for n in functions(classes[name]):
                if n.name == method and ast.get_docstring(n):
                    return True
            if classes[name] is not cls and said_above(classes[name], method):
                return True
        return False

    bad = []
    for module, path in sorted(modules().items()):
        tree = parsed(path)
        if not ast.get_docstring(tree):
            bad.append(f"{module}: the file")
        bad += [f"{module}.{f.name}" for f in functions(tree) if not ast.get_docstring(f)]
        for cls in (n for n in tree.body if isinstance(n, ast.ClassDef) and not n.name.startswith("_")):
            if not ast.get_docstring(cls):
                bad.append(f"{module}.{cls.name}")
            bad += [
                f"{module}.{cls.name}.{f.name}"
                for f in functions(cls)
                if not ast.get_docstring(f) and not said_above(cls, f.name)
            ]
    assert not bad, broken(bad)


def functions(node: ast.Module | ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The public functions directly in a file or class, without overloads and setters."""
    spoken_for = re.compile(r"(^|\.)(overload|setter|deleter)$")
    return [
        n
        for n in node.body
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
        and not n.name.startswith("_")
        and not any(spoken_for.search(ast.unparse(d)) for d in n.decorator_list)
    ]


# Functions above a limit of complexity in pyproject.toml: (rule, how many there are). The numbers may only fall.
MOST_COMPLEX = {"C901": 13, "PLR0913": 22, "PLR0915": 12}
WAIVED = re.compile(r"# noqa: ([A-Z0-9, ]+)")


def test_no_more_functions_are_complex_than_were() -> None:
    waived = Counter(
        rule
        for path in files()
        if path.suffix == ".py"
        for codes in WAIVED.findall(path.read_text(encoding="utf-8"))
        for rule in re.split(r"[, ]+", codes)
    )
    counted = {rule: waived[rule] for rule in MOST_COMPLEX}
    bad = {
        rule: f"{n}, and {MOST_COMPLEX[rule]} are allowed"
        for rule, n in counted.items()
        if n > MOST_COMPLEX[rule]
    }
    assert not bad, broken(bad)
    assert counted == MOST_COMPLEX, f"fewer than allowed: write these numbers into MOST_COMPLEX: {counted}"


def test_no_line_of_a_script_is_too_long() -> None:
    bad = [
        f"{path.relative_to(ROOT)}:{number} has {len(line)} characters"
        for path in scripts().values()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120
    ]
    assert not bad, broken(bad)


# Functions of scripts that are longer than LONGEST, each with its number of lines. They may get shorter, and no function may be
# added.
LONGEST = 130
LONGER: dict[str, int] = {}


def long_functions(texts: dict[str, str]) -> dict[str, int]:
    """script -> the lines of its longest function, where that is longer than LONGEST."""
    most = {name: max((f.lines for f in script_functions(text)), default=0) for name, text in texts.items()}
    return {name: lines for name, lines in most.items() if lines > LONGEST}


def test_functions_of_scripts_stay_small() -> None:
    found = long_functions({name: path.read_text(encoding="utf-8") for name, path in scripts().items()})
    bad = {n: f"{lines} lines; the guard stands at {LONGER.get(n, LONGEST)}" for n, lines in found.items()}
    bad = {n: words for n, words in bad.items() if found[n] > LONGER.get(n, LONGEST)}
    assert not bad, broken(bad)
    assert not (done := sorted(set(LONGER) - set(found))), f"no longer long, take them from the list: {done}"


def test_a_long_function_of_a_script_is_found() -> None:
    """A function is found however it is written. Strings, patterns and comments are no code, and an `if` is no function."""
    body, around = (
        "x();\n" * LONGEST,
        'const a = "{"; // }\nconst b = `{ ${[1, { c: `}` }]} {`, c = /[/{]/;\n',
    )
    for begin in (
        "function f() {",
        "const f = (a, { b }) => {",
        "const o = { f(a = g()) {",
        "g(async () => {",
    ):
        end = (
            "}"
            + "}" * (begin.count("{") - begin.count("}") - 1)
            + ")" * (begin.count("(") - begin.count(")"))
        )
        assert long_functions({"f": f"{around}{begin}\n{body}{end}\n{around}"}) == {"f": LONGEST + 2}, begin
    assert not long_functions({"f": f"{around}if (a) {{\n{body}}}\n"})


def test_names_of_scripts_say_what_they_hold() -> None:
    bad = [
        f"{path.relative_to(ROOT)}:{number} names something {name}"
        for path in scripts().values()
        for number, line in enumerate(code(path.read_text(encoding="utf-8")).splitlines(), 1)
        for name in re.findall(r"(?<![\w.$])(made|found|told)\b(?!\s*:)", line)
    ]
    assert not bad, broken(bad)
