"""The house rules: which room may know which, what a file holds, what never stands in a page. Read from the source."""

from __future__ import annotations

import ast
import fnmatch
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from .javascript import code
from .javascript import functions as script_functions

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("engine", "lab", "app")
# The rooms from the ground up: a module imports from its own room and from those before it, whenever the import runs, also
# for types alone. What lies in no folder is a room by itself. Below `engine`: a user's words.
FLOORS = (
    *("engine.core", "engine.trace", "engine.cost", "engine.model", "engine.saved"),
    *("engine.checkpoint", "engine.heads"),
    *("engine.decoding", "engine.timing"),
    *(f"engine.methods.{x}" for x in ("samplers", "contexts", "policies", "codecs", "depth", "acceptance")),
    *(f"engine.methods.{x}" for x in ("schedules", "selectors", "drafters", "strategies")),
    *("engine.load", "engine.method", "engine.pairing", "engine.heading", "engine.session", "engine.saving", "engine.run"),
    *("engine.runner", "engine.start"),
    *("engine.replay", "engine.bench", "engine.batch"),
    *("engine.methods", "engine"),
    *("lab.words", "lab.cost", "lab.cache", "lab.decision", "lab.wire", "lab.figures", "lab.views", "lab.reports"),
    *("lab.course", "lab.charts", "lab.lessons", "lab.notebook", "lab"),
    *("app.limits", "app.places", "app.refusal", "app.parser", "app.http", "app.runs", "app.routes", "app.page"),
    *("app.server", "app.commands", "app.cli", "app"),
)
# The same for the scripts of the page: `debugger` is debugger.js and what lies in its folder. `scope` is joined into one.
WEB_FLOORS = (
    *("scope", "address", "phase", "runs", "landing", "walk", "tour", "going", "picture", "save", "file", "prompts"),
    *("nextrun", "halted", "openings", "distribution", "given", "when", "focus", "notice"),
    *("catalogue", "compare", "debugger", "report", "cache", "hardware", "library"),
    *("tabs", "page", "arrive"),
    "gallery",
)
LAB_MAY_SEE = ("engine.core", "engine.trace", "engine.cost", "engine.bench.prompts")
PAGES = {"gradio", "plotly", "fastapi", "starlette", "uvicorn", "anywidget", "ipywidgets", "IPython"}
# may import transformers inside a function
READS_HUB_FILES = ("engine.load", "engine.checkpoint.tokenizer", "engine.bench.speed")
# may import IPython inside a function, where a kernel runs it
SHOWS_IN_A_CELL = ("engine.core.progress",)


# ---- reading the source


class Import(NamedTuple):
    """One import. `when` is "import", "call" (inside a function) or "typing" (inside `if TYPE_CHECKING`)."""

    target: str  # engine.trace.events for ours, torch.nn for others'
    when: str
    absolute: bool
    line: int


@cache
def modules() -> dict[str, Path]:
    """Dotted name inside the package -> file, for the three rooms."""
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
    """Whether a dotted name is one of `packages` or lies inside one."""
    return any(name == p or name.startswith(p + ".") for p in packages)


def broken(rule: dict[str, str] | list[str]) -> str:
    """The message of a broken rule: one line for each place."""
    return "\n" + "\n".join(f"{k}: {v}" for k, v in rule.items()) if isinstance(rule, dict) else "\n" + "\n".join(rule)


def imported(room: str, *whens: str) -> Iterator[tuple[str, Import]]:
    """(module, import) for every import of a room at these times."""
    for module in modules():
        if within(module, room):
            yield from ((module, i) for i in imports(module) if i.when in whens)


@cache
def families() -> dict[str, str]:
    """kind -> folder of its method files, as engine/core/component.py says."""
    for node in parsed(ROOT / "engine" / "core" / "component.py").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FOLDERS":
            return ast.literal_eval(node.value)
    raise AssertionError("engine/core/component.py no longer defines FOLDERS")


def method_modules() -> list[str]:
    """Every module that holds one method: those in a family's folder and its rooms; packages and `shared` aside."""
    folders = tuple(f"engine.methods.{f}." for f in families().values())
    found = (m for m in modules() if m.startswith(folders) and modules()[m].name != "__init__.py")
    return sorted(m for m in found if ".shared." not in m)


@cache
def files() -> list[Path]:
    """The files of the project: what git tracks or would track; without git, all outside the usual caches."""
    try:
        command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
        found = [ROOT / name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        away = re.compile(
            r"(^|/)(\.venv|\.git|\.hypothesis|build|dist|runs|__pycache__|\.\w+_cache|[^/]*\.egg-info)(/|$)"
        )
        found = [p for p in ROOT.rglob("*") if not away.search(p.relative_to(ROOT).as_posix())]
    return [p for p in found if p.is_file() and not p.is_symlink()]


# ---- who knows whom


def test_engine_knows_neither_lab_nor_app() -> None:
    seen = imported("engine", "import", "call", "typing")
    bad = [f"{m}:{i.line} imports {i.target}" for m, i in seen if within(i.target, "lab", "app")]
    assert not bad, broken(bad)


def test_lab_sees_data_of_the_engine_and_no_torch() -> None:
    bad = [
        f"{m}:{i.line} imports {i.target}"
        for m, i in imported("lab", "import", "call", "typing")
        if within(i.target, "app", "torch", "transformers", "gradio")
        or (within(i.target, "engine") and not within(i.target, *LAB_MAY_SEE))
    ]
    assert not bad, broken(bad)


def test_what_the_lab_sees_imports_no_torch() -> None:
    """Followed through every module that such an import loads."""
    open_, seen = [m for m in modules() if within(m, *LAB_MAY_SEE)], set()
    bad = []
    while open_:
        module = open_.pop()
        if module in seen:
            continue
        seen.add(module)
        for i in imports(module):
            if within(i.target, "torch") and (
                i.when == "import" or (i.when == "call" and within(module, "engine.trace"))
            ):
                bad.append(f"{module}:{i.line}")
            elif i.when == "import" and i.target in modules():
                open_.append(i.target)
    assert not bad, broken(bad)


def test_engine_imports_no_page_library_and_transformers_only_on_demand() -> None:
    bad = [
        f"{m}:{i.line} imports {i.target}"
        for m, i in imported("engine", "import", "call")
        if (i.target.split(".")[0] in PAGES and not (within(i.target, "IPython") and i.when == "call" and m in SHOWS_IN_A_CELL))
        or (within(i.target, "transformers") and (i.when == "import" or m not in READS_HUB_FILES))
    ]
    assert not bad, broken(bad)


def room(module: str) -> str:
    """The room of a module: a folder of engine, lab or app, or of a family of methods; what lies in none is its package's."""
    parts = module.split(".")
    deep = 3 if parts[:2] == ["engine", "methods"] else 2
    return ".".join(parts[:deep]) if len(parts) > 2 or modules()[module].name == "__init__.py" else parts[0]


def test_imports_are_relative_inside_a_room_and_absolute_between_rooms() -> None:
    bad = [
        f"{m}:{i.line} {i.target}"
        for top in ROOMS
        for m, i in imported(top, "import", "call", "typing")
        if i.target in modules() and i.absolute == (room(m) == room(i.target))
    ]
    assert not bad, broken(bad)


Graph = dict[str, set[str]]


def python_graph() -> Graph:
    """module -> our modules that it imports, whenever: on import, inside functions, for types."""
    return {m: {i.target for i in imports(m) if i.target in modules()} - {m} for m in modules()}


WEB = ROOT / "lab" / "web"
# what follows `from`, or stands in `import "./x.js"` and `import("./x.js")`
ASKED = re.compile(r"""(?:\bfrom\s*|\bimport\s*\(?\s*)["'`]([^"'`]+\.js)["'`]""")


def scripts() -> dict[str, Path]:
    """Dotted name below lab/web -> file: debugger.breaks is debugger/breaks.js."""
    return {".".join(p.relative_to(WEB).with_suffix("").parts): p for p in sorted(WEB.rglob("*.js"))}


def script_graph(scripts: dict[str, Path]) -> Graph:
    """script -> the scripts that it imports, when it is loaded or later. The page knows scope/scope.js as scope.js."""
    graph: Graph = {}
    for name, path in scripts.items():
        graph[name] = set()
        served = Path("/ds/web", *name.split(".")[:-1])
        for asked in ASKED.findall(path.read_text(encoding="utf-8")):
            address = Path(os.path.normpath(served / asked)).relative_to("/ds/web").with_suffix("")
            target = "scope.scope" if address == Path("scope") else ".".join(address.parts)
            assert target in scripts, f"{name} imports {asked}, which is no file"
            graph[name].add(target)
    return graph


def floor(module: str, floors: tuple[str, ...] = FLOORS) -> int:
    """How high up a module lies: the place in `floors` of the longest name that holds it."""
    homes = [name for name in floors if within(module, name)]
    assert homes, f"{module} lies in no room of {floors} in this file; give it one"
    return floors.index(max(homes, key=len))


def web_floor(script: str) -> int:
    """How high up a script lies: its place in WEB_FLOORS."""
    return floor(script, WEB_FLOORS)


def upwards(graph: Graph, height: Callable[[str], int]) -> list[str]:
    """The imports of a higher room."""
    return [f"{m} imports {n}" for m in sorted(graph) for n in sorted(graph[m]) if height(n) > height(m)]


def circles(graph: Graph) -> list[str]:
    """The modules that import each other, directly or by others: Tarjan's strongly connected components."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[str] = []

    def visit(m: str) -> None:
        order[m] = low[m] = len(order)
        stack.append(m)
        for n in sorted(graph[m]):
            if n not in order:
                visit(n)
            if n in stack:
                low[m] = min(low[m], low[n])
        if low[m] == order[m]:
            part = stack[stack.index(m) :]
            del stack[stack.index(m) :]
            if len(part) > 1:
                found.append(" <-> ".join(part))

    for m in sorted(graph):
        if m not in order:
            visit(m)
    return found


def test_no_import_goes_up() -> None:
    assert not (bad := upwards(python_graph(), floor) + upwards(script_graph(scripts()), web_floor)), broken(bad)


def test_imports_form_no_circle() -> None:
    assert not (bad := circles(python_graph()) + circles(script_graph(scripts()))), broken(bad)


def test_every_import_of_a_script_is_read() -> None:
    """An import in a form that ASKED does not know would be missed by the graph."""
    text = {name: path.read_text(encoding="utf-8") for name, path in scripts().items()}
    anyway = re.compile(r"""^import\b|^export [{*]|\bimport\(""", re.MULTILINE)
    counts = {name: (len(ASKED.findall(t)), len(anyway.findall(t))) for name, t in text.items()}
    assert sum(read for read, _ in counts.values()) > 100
    bad = {name: f"{read} of {written} imports" for name, (read, written) in counts.items() if read != written}
    assert not bad, broken(bad)


@pytest.mark.parametrize(
    "planted",
    ['import { tabs } from "./tabs.js";', 'export { tabs } from "./tabs.js";', 'const later = () => import("./tabs.js");'],
    ids=["import", "export", "inside a function"],
)
def test_a_planted_circle_of_scripts_is_found(planted: str, tmp_path: Path) -> None:
    """runs.js, which the tabs' pages import, is made to import the tabs."""
    copy = tmp_path / "runs.js"
    copy.write_text(f"{scripts()['runs'].read_text(encoding='utf-8')}\n{planted}\n", encoding="utf-8")
    graph = script_graph({**scripts(), "runs": copy})
    assert "runs imports tabs" in upwards(graph, web_floor)
    assert any({"runs", "tabs"} <= set(circle.split(" <-> ")) for circle in circles(graph))


@pytest.mark.parametrize(
    "planted",
    [
        "from decodescope.engine.session import Session",
        "if TYPE_CHECKING:\n    from decodescope.engine.session import Session",
        "def f():\n    from decodescope.engine.session import Session",
    ],
    ids=["on import", "for types", "inside a function"],
)
def test_a_planted_circle_is_found(planted: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """engine.decoding.state, which session.py imports, is made to import it back."""
    home = "engine.decoding.state"
    copy = tmp_path / "state.py"
    copy.write_text(f"{modules()[home].read_text(encoding='utf-8')}\n\n{planted}\n", encoding="utf-8")
    monkeypatch.setitem(modules(), home, copy)
    imports.cache_clear()
    try:
        graph = python_graph()
    finally:
        monkeypatch.undo()
        imports.cache_clear()
    assert f"{home} imports engine.session" in upwards(graph, floor)
    assert any(home in circle and "engine.session" in circle for circle in circles(graph))


def test_method_files_do_not_know_each_other() -> None:
    methods = set(method_modules())
    bad = [
        f"{m}:{i.line} imports {i.target}"
        for m in methods
        for i in imports(m)
        if i.target in methods - {m}
    ]
    assert not bad, broken(bad)


# where the name of a method may stand beside its own file, each with the reason
NAMES_METHODS = {
    "engine/bench/": "what is measured",
    "app/runs/presets.py": "what the page offers",
    "engine/trace/older.py": "records of 1.0, whose rules said nothing of themselves",
    "engine/trace/parts.py": "records from before the parts did",
    "engine/method.py": "what a method has where nothing is chosen",
    "engine/session.py": "the caches of further models keep all",
    "engine/replay/whatif.py": "a temperature is asked for",
    "engine/heads/": "a head's net is called like the drafter that it was made for",
    "engine/methods/drafters/heads/eagle2.py": "reads the heads of another drafter",
    "lab/web/debugger/whatif.js": "a temperature is asked for",
}
# names that are words too: found where they are compared with a part's name, or chosen as a part
WORDS = {
    "none": "there is nothing",
    "chain": "a draft without branches",
    "fixed": "a choice of a knob",
    "rest": "what is left",
    "window": "a zone of entries",
    "lookahead": "text that a draft model writes ahead: a note",
    "threshold": "a number that decides",
    "random": "a choice of a knob",
    "temperature": "a knob and a setting",
    "greedy": "a word that samplers say",
    "lossless": "a flag of headers and parts",
}


def names_of_methods(text: str, python: bool, own: str = "") -> list[str]:
    """The names of methods in a source: as a whole string, or as what is imported from a method's file."""
    modules_of_methods = set(method_modules())
    names = {m.rpartition(".")[2] for m in modules_of_methods} - {own}
    if not python:
        words = re.findall(rf"""\bname\s*[=!]==?\s*["']({"|".join(WORDS)})["']""", text)
        return [x for x in re.findall(r"""["'`]([a-z0-9_]+)["'`]""", text) if x in names - {*WORDS}] + words
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").removeprefix("decodescope.") in modules_of_methods:
            found.append(str(node.module))
        elif isinstance(node, ast.Constant) and node.value in names - {*WORDS}:
            found.append(str(node.value))
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(re.search(r"""(\b|_)(name|rule|stages?)\b""", ast.unparse(x)) for x in sides):
                found += [x for side in sides for x in constants(side) if x in WORDS]
        elif isinstance(node, ast.Dict):
            chosen = [x for key, x in zip(node.keys, node.values, strict=True) if {*constants(key)} & {*families()}]
            found += [name for x in chosen for name in constants(x) if name in {*WORDS} & names]
    return found


def constants(node: ast.expr | None) -> list[object]:
    """What stands in an expression as it is, by itself or in a list or tuple."""
    return [x.value for x in getattr(node, "elts", [node]) if isinstance(x, ast.Constant)]


def test_no_method_is_named_outside_its_own_file() -> None:
    """Whoever checks, tells, draws or chooses parts reads what they say of themselves."""
    bad, used = [], set()
    for path in [*modules().values(), *WEB.rglob("*.js")]:
        name = path.relative_to(ROOT).as_posix()
        own = path.stem if name.startswith("engine/methods/") else ""
        named = names_of_methods(path.read_text(encoding="utf-8"), path.suffix == ".py", own)
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
    assert names_of_methods(text, python)


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


def asked_for_its_class(tree: ast.Module) -> list[int]:
    """The lines that ask of which class a part is: isinstance, issubclass, type(x) is, match."""
    parts, lines = parts_of_methods(), []
    for node in ast.walk(tree):
        asked: list[ast.expr] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            asked = node.args[1:]
        elif isinstance(node, ast.Compare) and "type(" in ast.unparse(node):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchClass):
            asked = [node.cls]
        names = {getattr(x, "id", getattr(x, "attr", "")) for one in asked for x in ast.walk(one)}
        if names & parts:
            lines.append(getattr(node, "lineno", 0))
    return lines


def test_no_part_is_asked_for_its_class() -> None:
    """A family's base has the word that a caller needs."""
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
    ["isinstance(part, Drafter)", "isinstance(part, (int, policy.H2O))", "type(part) is Greedy", "issubclass(cls, Lossless)"],
)
def test_a_planted_question_for_a_class_is_found(planted: str) -> None:
    assert asked_for_its_class(ast.parse(planted))


def test_each_family_has_its_base_below_its_methods() -> None:
    bad = [f"engine/decoding/{kind}.py is missing" for kind in families() if f"engine.decoding.{kind}" not in modules()]
    assert not bad, broken(bad)


BLOCK = """
import importlib, pkgutil, sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ImportError(name + " is blocked in this test")
sys.meta_path.insert(0, Block())
for start in {starts!r}:
    package = importlib.import_module("decodescope." + start)
    for m in pkgutil.walk_packages(getattr(package, "__path__", []), package.__name__ + "."):
        importlib.import_module(m.name)
assert not set({blocked!r}) & set(sys.modules)
"""


@pytest.mark.parametrize(
    ("starts", "blocked"),
    [
        (["lab", *LAB_MAY_SEE], ["torch", "transformers", "gradio"]),
        (["engine"], ["gradio", "transformers", "plotly"]),
    ],
    ids=["lab and traces without torch", "engine without gradio and transformers"],
)
def test_room_loads_without(starts: list[str], blocked: list[str], tmp_path: Path) -> None:
    code = BLOCK.format(blocked=blocked, starts=starts)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_engine_refuses_to_be_imported_under_its_plain_name() -> None:
    done = subprocess.run([sys.executable, "-c", "import engine"], capture_output=True, text=True, cwd=ROOT)
    assert "import decodescope.engine, not engine" in done.stderr


# ---- what a file holds


# Errors that only a mistake in a program raises. Where they may be met: a stream that is not of Python's own kind.
OURS = {"AssertionError", "AttributeError", "TypeError"}
MAY_MEET = {"app.cli": {"AttributeError"}}


def test_a_mistake_of_ours_looks_like_one() -> None:
    """It is not caught and taken for a record, a body or a file that makes no sense: those are checked where they come in."""
    bad = []
    for module, path in modules().items():
        for node in ast.walk(parsed(path)):
            caught = node.type if isinstance(node, ast.ExceptHandler) else None
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
                caught = ast.Tuple(node.args)
            if caught is None:
                continue
            names = {x.id for x in ast.walk(caught) if isinstance(x, ast.Name)} & OURS
            bad += [f"{module}:{node.lineno} catches {name}" for name in sorted(names - MAY_MEET.get(module, set()))]
    assert not bad, broken(bad)


# Words that say nothing of what a variable holds. Where one stays: tensors in files of heads, and what recover() gives.
EMPTY_NAMES = {"made", "found", "told"}
KEEP_THEM = {"engine.heads.mlp_speculator", "engine.heads.redrafter", "engine.trace.recover"}


def empty_names(tree: ast.Module) -> list[tuple[int, str]]:
    """(line, name) of the variables, arguments and attributes with such a name. Functions may have it: they tell."""
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
    ["made = []", "def f(found): ...", "self.told = 1", "[x for made in y]", "def f(*, told=1): ...", "f(found := 3)"],
)
def test_a_planted_empty_name_is_found(planted: str) -> None:
    assert empty_names(ast.parse(planted))


@pytest.mark.parametrize("module", method_modules())
def test_method_file_holds_one_component_with_title_source_and_docstring(module: str) -> None:
    tree = parsed(modules()[module])
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef)]
    components = [c for c in classes if any(ast.unparse(d) == "component" for d in c.decorator_list)]
    assert [c.name for c in classes if not c.name.startswith("_")] == [c.name for c in components], "one public class"
    assert len(components) == 1
    said = {}
    for node in components[0].body:
        target = (
            node.targets[0]
            if isinstance(node, ast.Assign)
            else node.target
            if isinstance(node, ast.AnnAssign)
            else None
        )
        if target is not None and node.value is not None:
            said[ast.unparse(target)] = node.value
    for name in ("title", "source"):
        assert name in said, f"{components[0].name} has no {name}"
        assert str(ast.literal_eval(said[name])).strip(), f"{components[0].name}.{name} is empty"
    assert ast.get_docstring(components[0])


def test_every_public_name_has_a_docstring() -> None:
    """An override may leave the words to the method that it overrides, wherever in our rooms that stands."""
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
    """The public functions that stand directly in a file or class; not overloads, not setters."""
    spoken_for = re.compile(r"(^|\.)(overload|setter|deleter)$")
    return [
        n
        for n in node.body
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
        and not n.name.startswith("_")
        and not any(spoken_for.search(ast.unparse(d)) for d in n.decorator_list)
    ]


def test_files_stay_small() -> None:
    """A guard, not an aim: a method takes 30 to 80 lines, a rule with what it says of itself more, another file under 250."""
    limits = {m: 160 if m in method_modules() else 450 for m in modules()}
    lengths = {m: len(p.read_text(encoding="utf-8").splitlines()) for m, p in modules().items()}
    bad = {m: f"{lengths[m]} lines; the guard stands at {limits[m]}" for m in modules() if lengths[m] > limits[m]}
    assert not bad, broken(bad)


LINES = 60  # a function of Python has at most


def function_lines(module: str, tree: ast.Module) -> dict[str, int]:
    """function or method -> its lines, what stands inside of it included."""
    within = [(module, n) for n in tree.body]
    within += [(f"{module}.{c.name}", n) for c in tree.body if isinstance(c, ast.ClassDef) for n in c.body]
    return {
        f"{place}.{n.name}": n.end_lineno - n.lineno + 1
        for place, n in within
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.end_lineno is not None
    }


def too_long(lines: dict[str, int]) -> dict[str, str]:
    """The functions with more than LINES."""
    return {name: f"{n} lines; the guard stands at {LINES}" for name, n in lines.items() if n > LINES}


def test_no_function_takes_a_page() -> None:
    lines = {name: n for m, p in modules().items() for name, n in function_lines(m, parsed(p)).items()}
    assert len(lines) > 2000 and max(lines.values()) > 40, "functions were not read"
    assert not (bad := too_long(lines)), broken(bad)


def test_a_function_of_a_page_is_found() -> None:
    def found(text: str) -> list[str]:
        return [*too_long(function_lines("m", ast.parse(text)))]

    body = "    x()\n" * LINES
    assert found(f"def f():\n{body}") == ["m.f"]
    deeper = body.replace("    ", "        ")
    assert found(f"class C:\n    async def f():\n{deeper}") == ["m.C.f"]
    assert found(f"def f():\n    def g():\n{deeper}") == ["m.f"]
    assert not found("def f():\n" + "    x()\n" * (LINES - 1))


def test_no_line_of_a_script_is_too_long() -> None:
    bad = [
        f"{path.relative_to(ROOT)}:{number} has {len(line)} characters"
        for path in scripts().values()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120
    ]
    assert not bad, broken(bad)


# Functions of scripts that are longer than LONGEST, each with the lines that it takes: they may become shorter, and no other
# may join them.
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
    """Whichever way it is written; what stands in strings, patterns and comments is no code, and an `if` no function."""
    body, around = "x();\n" * LONGEST, 'const a = "{"; // }\nconst b = `{ ${[1, { c: `}` }]} {`, c = /[/{]/;\n'
    for begin in ("function f() {", "const f = (a, { b }) => {", "const o = { f(a = g()) {", "g(async () => {"):
        end = "}" + "}" * (begin.count("{") - begin.count("}") - 1) + ")" * (begin.count("(") - begin.count(")"))
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


# ---- what never stands in a page


@pytest.mark.parametrize(
    "pattern",
    [
        r"\.(inner|outer)HTML\b",
        r"\binsertAdjacentHTML\b",
        r"\bdocument\.write",
        r"\bnew Function\(",
        r"(?<![\w.])eval\(",
    ],
)
def test_no_text_becomes_markup(pattern: str) -> None:
    """What a model or a file says is put into a page as text; these calls would read it as markup or code."""
    bad = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files()
        if path.relative_to(ROOT).parts[0] in ("lab", "app") and path.suffix in (".py", ".js", ".mjs", ".html")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert not bad, broken(bad)


def test_html_written_in_python_is_constant() -> None:
    """No f-string, sum, `%`, `.format` or `.join` is handed to an HTML component, widget or template."""
    makers = {"HTML", "HTMLMath", "Markdown", "Markup", "HTMLResponse"}
    words = {"html_template", "css_template", "js_on_load", "head", "js"}
    bad = []
    for module in (m for m in modules() if within(m, "lab", "app")):
        for call in (n for n in ast.walk(parsed(modules()[module])) if isinstance(n, ast.Call)):
            name = ast.unparse(call.func).split(".")[-1]
            handed = [
                k.value for k in call.keywords if k.arg in words or (name in makers and k.arg in ("value", "data"))
            ]
            if name in makers:
                handed += call.args[:1]
            bad += [f"{module}:{value.lineno}" for value in handed if composed(value)]
    assert not bad, broken(bad)


def composed(value: ast.expr) -> bool:
    """Whether an expression puts pieces of text together."""
    if isinstance(value, ast.JoinedStr):
        return True
    if isinstance(value, ast.BinOp):
        return not all(isinstance(x, ast.Constant) for x in (value.left, value.right))
    return (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("format", "join")
    )


# ---- the tree


@cache
def pyproject() -> dict:
    """pyproject.toml as it stands."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_package_list_equals_the_folders() -> None:
    folders = {path.parent for path in modules().values()}
    assert not (bad := [str(f) for f in folders if not (f / "__init__.py").exists()]), broken(bad)
    names = {"decodescope", *(".".join(("decodescope", *f.relative_to(ROOT).parts)) for f in folders)}
    assert names == set(pyproject()["tool"]["setuptools"]["packages"])


def test_every_data_file_of_a_room_is_packaged() -> None:
    patterns = pyproject()["tool"]["setuptools"]["package-data"]["decodescope"]
    names = [p.relative_to(ROOT).as_posix() for p in files()]
    inside = [n for n in names if n.split("/")[0] in ROOMS and not n.endswith(".py")]
    assert not (bad := [n for n in inside if not any(fnmatch.fnmatch(n, p) for p in patterns)]), broken(bad)


def test_root_holds_no_other_python_file() -> None:
    """It would be shipped inside the package."""
    assert {p.name for p in ROOT.glob("*.py")} == {"__init__.py", "__main__.py"}


def requirements() -> list[str]:
    """The names of our direct requirements, those for development included."""
    project = pyproject()["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    return [re.split(r"[\[<>=!~; ]", line)[0] for lines in lists for line in lines]


def test_every_requirement_is_pinned_and_explained() -> None:
    pins = re.findall(r"(?m)^([\w.-]+)==[\w.]+$", (ROOT / "constraints.txt").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert not (bad := [r for r in requirements() if r not in pins or f"`{r}`" not in page]), broken(bad)


def test_what_is_imported_is_required() -> None:
    """No import leans on a package that only comes along with another; fastapi and the like come with gradio."""
    owners = importlib.metadata.packages_distributions()
    known = {*requirements(), "fastapi", "starlette", "uvicorn", "h11", "IPython", "ipython", "pygments", "decodescope"}
    bad = []
    for room in ROOMS:
        for module, i in imported(room, "import", "call"):
            top = i.target.split(".")[0]
            if top in sys.stdlib_module_names or top in ROOMS or top == "__future__":
                continue
            if not known & {top, *owners.get(top, [])}:
                bad.append(f"{module}:{i.line} imports {top}")
    assert not bad, broken(bad)


def test_no_path_of_somebody_s_machine() -> None:
    pattern = re.compile(r"(?<![\w.:/])/(work|home|root|Users)/\w|[A-Z]:\\Users\\")
    data = ("assets/models/", "assets/traces/")
    bad = []
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(data) or path == Path(__file__).resolve() or b"\0" in (content := path.read_bytes()):
            continue
        lines = content.decode("utf-8", "replace").splitlines()
        bad += [f"{name}:{number}" for number, line in enumerate(lines, 1) if pattern.search(line)]
    assert not bad, broken(bad)


def test_files_keep_to_their_sizes() -> None:
    sizes = {p.relative_to(ROOT).as_posix(): p.stat().st_size for p in files()}
    big = {n: f"{s / 2**20:.1f} MiB" for n, s in sizes.items() if s > 4 * 2**20 and not n.startswith("assets/")}
    assert not big, broken(big)
    assert sum(s for n, s in sizes.items() if n.startswith("assets/")) <= 48 * 2**20


def test_notebooks_are_saved_without_outputs() -> None:
    bad = []
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        bad += [path.name for c in cells if c.get("outputs") or c.get("execution_count")]
    assert not bad, broken(bad)


def test_browser_tests_have_a_group() -> None:
    """Tests run in several processes; two of them must not drive the page and its server at the same time on a small machine.
    Views that are drawn without it are a group of their own."""
    texts = {
        p: p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py") if p != Path(__file__).resolve()
    }
    bad = [p.name for p, text in texts.items() if "mark.browser" in text and "xdist_group" not in text]
    assert not bad, broken(bad)


@pytest.mark.xdist_group("house")
def test_processes_know_the_groups(request: pytest.FixtureRequest) -> None:
    """The scheduler reads the group off a test's name; some versions of pytest do not let it be written there."""
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith("@house")


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps no executable bit")
def test_scripts_can_be_run() -> None:
    for name in ("scripts/environment.py", ".ci/run"):
        assert os.access(ROOT / name, os.X_OK), name


def test_no_test_sleeps() -> None:
    """Tests wait for conditions, in tests/waiting.py and by what the browser offers."""
    pattern = re.compile(r"\bsleep\(|\bimport sleep\b|wait_for_timeout\(")
    bad = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in (ROOT / "tests").rglob("*.py")
        if path.name != "waiting.py" and path != Path(__file__).resolve()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not bad, broken(bad)
