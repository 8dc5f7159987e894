"""The house rules: which room may import which, read from the source; `house` tests the contents of files and the tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from source import (
    ROOMS,
    ROOT,
    WEB,
    broken,
    families,
    imported,
    imports,
    method_modules,
    modules,
    scripts,
    within,
)

pytestmark = pytest.mark.xdist_group("house")  # one process parses the files

# The rooms from the ground up: a module imports from its own room and from those before it, whenever the import runs, also for
# types alone. A module outside all folders is a room by itself. Below `engine`: a user's words.
FLOORS = (
    *(
        "engine.core",
        "engine.sandbox",
        "engine.kernels",
        "engine.trace",
        "engine.model",
        "engine.checkpoint",
        "engine.cost",
        "engine.saved",
        "engine.timing",
    ),
    *(
        "engine.decoding",
        "engine.methods",
        "engine.session",
        "engine.training",
        "engine.draft_doctor",
        "engine",
        "engine.bench",
        "testing",
    ),
    *(
        "lab.formatting",
        "lab.cost",
        "lab.cache",
        "lab.decision",
        "lab.course",
        "lab.wire",
        "lab.views",
        "lab.figures",
        "lab.reports",
    ),
    *("lab", "app.basis", "app.http", "app.runs", "app.commands", "app.routes", "app.page", "app"),
)
# The same for the scripts of the page: `debugger` is debugger.js and the scripts in its folder. `scope` is joined into one.
WEB_FLOORS = (
    *(
        "scope",
        "parts",
        "shared.address",
        "events",
        "runs.phase",
        "runs.prefetch",
        "runs.runs",
        "runs.landing",
    ),
    *("tour.walk", "tour.tour", "runs.active_runs", "export", "export.save", "run_form.file_knob"),
    *("run_form.knobs", "run_form.prompts", "run_form.settings_diff", "run_view.breakpoint_banner"),
    *("run_form.example_prompts", "run_view.distribution_sums", "run_view.distribution"),
    *("run_view.grid", "run_form.prompt_notes"),
    "run_form.get_model",
    *("shared.timestamp", "shared.focus", "shared.notice", "shared.exactness", "run_form.calibration"),
    "shared.folder_reading",
    *("catalogue", "compare", "debugger", "report", "cache", "hardware", "library"),
    *("tabs", "page", "boot"),
    "gallery",
)
LAB_MAY_SEE = (
    "engine.core",
    "engine.trace",
    "engine.cost",
    "engine.bench.questions.prompts",
)
PAGES = {"gradio", "plotly", "fastapi", "starlette", "uvicorn", "anywidget", "ipywidgets", "IPython"}
# may import transformers inside a function
READS_HUB_FILES = ("engine.session.load", "engine.model.checkpoint.tokenizer", "engine.bench.clock.speed")
# may import IPython inside a function, where a kernel runs it
SHOWS_IN_A_CELL = ("engine.core.progress",)


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
    """The test follows every module that such an import loads."""
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
        if (
            i.target.split(".")[0] in PAGES
            and not (within(i.target, "IPython") and i.when == "call" and m in SHOWS_IN_A_CELL)
        )
        or (within(i.target, "transformers") and (i.when == "import" or m not in READS_HUB_FILES))
    ]
    assert not bad, broken(bad)


def room(module: str) -> str:
    """The room of a module: a folder of engine, lab or app, or of a family of methods; any other belongs to its package."""
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
    """Map each module to our modules that it imports at any time: on import, inside functions, for types."""
    return {m: {i.target for i in imports(m) if i.target in modules()} - {m} for m in modules()}


# the name after `from`, or in `import "./x.js"` and `import("./x.js")`
ASKED = re.compile(r"""(?:\bfrom\s*|\bimport\s*\(?\s*)["'`]([^"'`]+\.js)["'`]""")


def script_graph(scripts: dict[str, Path]) -> Graph:
    """Map each script to the scripts that it imports, when it is loaded or later."""
    graph: Graph = {}
    for name, path in scripts.items():
        graph[name] = set()
        # boot is inlined in the page, which is at the root
        served = Path("/") if name == "boot" else Path("/ds/web", *name.split(".")[:-1])
        for asked in ASKED.findall(path.read_text(encoding="utf-8")):
            address = Path(os.path.normpath(served / asked)).relative_to("/ds/web").with_suffix("")
            target = ".".join(address.parts)
            assert target in scripts, f"{name} imports {asked}, which is no file"
            graph[name].add(target)
    return graph


def floor(module: str, floors: tuple[str, ...] = FLOORS) -> int:
    """The height of a module: the index in `floors` of the longest name that holds it."""
    homes = [name for name in floors if within(module, name)]
    assert homes, f"{module} lies in no room of {floors} in this file; give it one"
    return floors.index(max(homes, key=len))


def web_floor(script: str) -> int:
    """The height of a script: its index in WEB_FLOORS."""
    return floor(script, WEB_FLOORS)


def upwards(graph: Graph, height: Callable[[str], int]) -> list[str]:
    """The imports from a higher room."""
    return [f"{m} imports {n}" for m in sorted(graph) for n in sorted(graph[m]) if height(n) > height(m)]


def circles(graph: Graph) -> list[str]:
    """The modules that import each other, directly or through others: Tarjan's strongly connected components."""
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
    assert not (bad := upwards(python_graph(), floor) + upwards(script_graph(scripts()), web_floor)), broken(
        bad
    )


MOST_LAYERS = 11  # rooms on top of each other


def rooms_of(graph: Graph, deep: int) -> Graph:
    """Map each room to the rooms that its modules import. deep: 2 for rooms, 3 for sub-rooms; loose modules count as one."""
    graph = {m: n for m, n in graph.items() if m.count(".") or modules()[m].name != "__init__.py"}

    def home(module: str) -> str:
        names = module.split(".") if modules()[module].name == "__init__.py" else module.split(".")[:-1]
        return ".".join(names[:deep])

    rooms: Graph = {home(m): set() for m in graph}
    for module, targets in graph.items():
        rooms[home(module)] |= {home(n) for n in targets if n in graph} - {home(module)}
    return rooms


def layers(rooms: Graph) -> int:
    """The number of rooms on the longest path of imports."""
    height: dict[str, int] = {}

    def measure(room: str) -> int:
        if room not in height:
            height[room] = 1 + max((measure(x) for x in sorted(rooms[room])), default=0)
        return height[room]

    return max(measure(room) for room in rooms)


@pytest.mark.parametrize("deep", [2, 3], ids=["rooms", "sub-rooms"])
def test_rooms_form_no_circle(deep: int) -> None:
    assert not (bad := circles(rooms_of(python_graph(), deep))), broken(bad)


def test_rooms_lie_in_few_layers() -> None:
    rooms = rooms_of(python_graph(), 2)
    assert len(rooms) > 20, "rooms were not read"
    assert layers(rooms) <= MOST_LAYERS


def test_a_planted_circle_of_rooms_is_found() -> None:
    """No two modules form a circle, but their rooms do: cost imports from trace, and a check would import cost."""
    graph = python_graph()
    graph["engine.trace.checks.record_consistency"] = graph["engine.trace.checks.record_consistency"] | {
        "engine.cost.roofline"
    }
    assert any("engine.cost" in circle and "engine.trace" in circle for circle in circles(rooms_of(graph, 2)))


MOST_FILES = 25  # in a folder, except a folder of a family of methods


def test_no_folder_holds_too_many_files() -> None:
    counted: dict[str, int] = {}
    for path in [*modules().values(), *(p for p in WEB.rglob("*") if p.is_file())]:
        place = path.parent.relative_to(ROOT).as_posix()
        if path.name != "__init__.py" and not place.startswith("engine/methods"):
            counted[place] = counted.get(place, 0) + 1
    bad = {place: f"{n} files" for place, n in counted.items() if n > MOST_FILES}
    assert not bad, broken(bad)
    assert counted["lab/web/scope/tree"] > 5 and counted["lab/web/styles"] > 5, (
        "scripts and sheets were not read"
    )


def test_imports_form_no_circle() -> None:
    assert not (bad := circles(python_graph()) + circles(script_graph(scripts()))), broken(bad)


def test_every_import_of_a_script_is_read() -> None:
    """The graph would miss an import in a form that ASKED does not know."""
    text = {name: path.read_text(encoding="utf-8") for name, path in scripts().items()}
    anyway = re.compile(r"""^import\b|^export [{*]|\bimport\(""", re.MULTILINE)
    counts = {name: (len(ASKED.findall(t)), len(anyway.findall(t))) for name, t in text.items()}
    assert sum(read for read, _ in counts.values()) > 100
    bad = {
        name: f"{read} of {written} imports" for name, (read, written) in counts.items() if read != written
    }
    assert not bad, broken(bad)


@pytest.mark.parametrize(
    "planted",
    [
        'import { tabs } from "../tabs.js";',
        'export { tabs } from "../tabs.js";',
        'const later = () => import("../tabs.js");',
    ],
    ids=["import", "export", "inside a function"],
)
def test_a_planted_circle_of_scripts_is_found(planted: str, tmp_path: Path) -> None:
    """The test makes runs.js, which the tabs' pages import, import the tabs."""
    copy = tmp_path / "runs.js"
    copy.write_text(f"{scripts()['runs.runs'].read_text(encoding='utf-8')}\n{planted}\n", encoding="utf-8")
    graph = script_graph({**scripts(), "runs.runs": copy})
    assert "runs.runs imports tabs" in upwards(graph, web_floor)
    assert any({"runs.runs", "tabs"} <= set(circle.split(" <-> ")) for circle in circles(graph))


@pytest.mark.parametrize(
    "planted",
    [
        "from decodescope.engine.session.session import Session",
        "if TYPE_CHECKING:\n    from decodescope.engine.session.session import Session",
        "def f():\n    from decodescope.engine.session.session import Session",
    ],
    ids=["on import", "for types", "inside a function"],
)
def test_a_planted_circle_is_found(planted: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The test makes engine.decoding.bases.state, which session.py imports, import it back."""
    home = "engine.decoding.bases.state"
    copy = tmp_path / "state.py"
    copy.write_text(f"{modules()[home].read_text(encoding='utf-8')}\n\n{planted}\n", encoding="utf-8")
    monkeypatch.setitem(modules(), home, copy)
    imports.cache_clear()
    try:
        graph = python_graph()
    finally:
        monkeypatch.undo()
        imports.cache_clear()
    assert f"{home} imports engine.session.session" in upwards(graph, floor)
    assert any(home in circle and "engine.session.session" in circle for circle in circles(graph))


def test_method_files_do_not_know_each_other() -> None:
    methods = set(method_modules())
    bad = [
        f"{m}:{i.line} imports {i.target}" for m in methods for i in imports(m) if i.target in methods - {m}
    ]
    assert not bad, broken(bad)


def test_each_family_has_its_base_below_its_methods() -> None:
    bad = [
        f"engine/decoding/bases/{kind}.py is missing"
        for kind in families()
        if f"engine.decoding.bases.{kind}" not in modules()
    ]
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
        if ".kernels.triton_" not in m.name:  # for CUDA: imported only if somebody chooses them
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
