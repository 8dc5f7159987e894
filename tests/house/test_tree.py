"""What a page must never contain, and the tree: packages, requirements, file sizes, notebooks, the tests themselves."""

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
from functools import cache
from pathlib import Path

import pytest
from source import ROOMS, ROOT, broken, files, imported, modules, parsed, within

from decodescope.engine.core.extras import EXTRAS

pytestmark = pytest.mark.xdist_group("house")  # one process parses the files


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
    """A page inserts the output of a model or a file as text; these calls would read it as markup or code."""
    bad = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files()
        if path.relative_to(ROOT).parts[0] in ("lab", "app")
        and path.suffix in (".py", ".js", ".mjs", ".html")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert not bad, broken(bad)


def test_html_written_in_python_is_constant() -> None:
    """No f-string, sum, `%`, `.format` or `.join` is passed to an HTML component, widget or template."""
    makers = {"HTML", "HTMLMath", "Markdown", "Markup", "HTMLResponse"}
    words = {"html_template", "css_template", "js_on_load", "head", "js"}
    bad = []
    for module in (m for m in modules() if within(m, "lab", "app")):
        for call in (n for n in ast.walk(parsed(modules()[module])) if isinstance(n, ast.Call)):
            name = ast.unparse(call.func).split(".")[-1]
            handed = [
                k.value
                for k in call.keywords
                if k.arg in words or (name in makers and k.arg in ("value", "data"))
            ]
            if name in makers:
                handed += call.args[:1]
            bad += [f"{module}:{value.lineno}" for value in handed if composed(value)]
    assert not bad, broken(bad)


def composed(value: ast.expr) -> bool:
    """Whether an expression joins pieces of text."""
    if isinstance(value, ast.JoinedStr):
        return True
    if isinstance(value, ast.BinOp):
        return not all(isinstance(x, ast.Constant) for x in (value.left, value.right))
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("format", "join")
    )


@cache
def pyproject() -> dict:
    """The content of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_package_list_equals_the_folders() -> None:
    folders = {path.parent for path in modules().values()}
    assert not (bad := [str(f) for f in folders if not (f / "__init__.py").exists()]), broken(bad)
    names = {"decodescope", *(".".join(("decodescope", *f.relative_to(ROOT).parts)) for f in folders)}
    code = "import setuptools; setuptools.setup = lambda **given: print(*given['packages']); import setup"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert names == set(done.stdout.split())


def test_every_data_file_of_a_room_is_packaged() -> None:
    patterns = pyproject()["tool"]["setuptools"]["package-data"]["decodescope"]
    names = [p.relative_to(ROOT).as_posix() for p in files()]
    inside = [n for n in names if n.split("/")[0] in ROOMS and not n.endswith(".py")]
    assert not (bad := [n for n in inside if not any(fnmatch.fnmatch(n, p) for p in patterns)]), broken(bad)


def test_root_holds_no_other_python_file() -> None:
    """It would be shipped inside the package; setuptools leaves setup.py out, see tests/test_package.py."""
    assert {p.name for p in ROOT.glob("*.py")} == {"__init__.py", "__main__.py", "setup.py"}


def requirements() -> list[str]:
    """The names of our direct requirements, including those for development."""
    project = pyproject()["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {re.split(r"[\[<>=!~; ]", line)[0] for lines in lists for line in lines}
    return sorted(names - {"decodescope"})  # the extra `all` consists of the others


def test_every_requirement_is_pinned_and_explained() -> None:
    pins = re.findall(r"(?m)^([\w.-]+)==[\w.]+$", (ROOT / "constraints.txt").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert not (bad := [r for r in requirements() if r not in pins or f"`{r}`" not in page]), broken(bad)


def test_the_extras_are_those_that_a_refusal_names() -> None:
    wanted = pyproject()["project"]["optional-dependencies"]
    parts = {name: {re.split(r"[<>=]", x)[0] for x in wanted[name]} for name in EXTRAS}
    with_gradio = {"fastapi", "uvicorn"}  # gradio installs them
    assert parts == {name: set(packages) - with_gradio for name, packages in EXTRAS.items()}
    assert set(wanted) == {*EXTRAS, "all", "dev", "types"} and wanted["all"] == [
        f"decodescope[{','.join(EXTRAS)}]"
    ]


def test_what_is_imported_is_required() -> None:
    """No import relies on a package that only another package brings; fastapi and the like come with gradio."""
    owners = importlib.metadata.packages_distributions()
    known = {
        *requirements(),
        "fastapi",
        "starlette",
        "uvicorn",
        "h11",
        "IPython",
        "ipython",
        "pygments",
        "decodescope",
        "triton",  # torch for CUDA brings it on Linux; where it is missing, the kernels of that name are refused
    }
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
        if (
            name.startswith(data)
            or path == Path(__file__).resolve()
            or b"\0" in (content := path.read_bytes())
        ):
            continue
        lines = content.decode("utf-8", "replace").splitlines()
        bad += [f"{name}:{number}" for number, line in enumerate(lines, 1) if pattern.search(line)]
    assert not bad, broken(bad)


def test_files_keep_to_their_sizes() -> None:
    sizes = {p.relative_to(ROOT).as_posix(): p.stat().st_size for p in files()}
    big = {
        n: f"{s / 2**20:.1f} MiB" for n, s in sizes.items() if s > 4 * 2**20 and not n.startswith("assets/")
    }
    assert not big, broken(big)
    assert sum(s for n, s in sizes.items() if n.startswith("assets/")) <= 52 * 2**20


def test_notebooks_are_saved_without_outputs() -> None:
    bad = []
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        bad += [path.name for c in cells if c.get("outputs") or c.get("execution_count")]
    assert not bad, broken(bad)


def test_browser_tests_have_a_group() -> None:
    """Tests run in several processes, and two must not drive the page and its server at once on a small machine.

    Tests of views that are drawn without the page have a group of their own.
    """
    texts = {
        p: p.read_text(encoding="utf-8")
        for p in (ROOT / "tests").rglob("test_*.py")
        if p != Path(__file__).resolve()
    }
    bad = [p.name for p, text in texts.items() if "mark.browser" in text and "xdist_group" not in text]
    assert not bad, broken(bad)


@pytest.mark.xdist_group("house")
def test_processes_know_the_groups(request: pytest.FixtureRequest) -> None:
    """The scheduler reads the group from a test's name; some versions of pytest do not let the group be written there."""
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith("@house")


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps no executable bit")
def test_scripts_can_be_run() -> None:
    for name in ("scripts/environment.py", ".ci/run"):
        assert os.access(ROOT / name, os.X_OK), name


def test_no_test_sleeps() -> None:
    """Tests wait for conditions, with tests/waiting.py and with what the browser offers."""
    pattern = re.compile(r"\bsleep\(|\bimport sleep\b|wait_for_timeout\(")
    bad = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in (ROOT / "tests").rglob("*.py")
        if path.name != "waiting.py" and path != Path(__file__).resolve()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not bad, broken(bad)
