"""The wheel holds everything that the lab needs, and works where the repository is not visible."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import decodescope

ROOT = Path(__file__).resolve().parent.parent
NEVER = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
NOT_BESIDE_THE_ROOMS = {"build", "dist", "runs", "tests", "benchmarks", "docs"}

pytestmark = pytest.mark.xdist_group("package")  # one process builds the wheel for all of these tests


def away(folder: str, names: list[str]) -> set[str]:
    """The names in a folder that are not copied; a room may have the same name as a folder next to the rooms."""
    return NEVER(folder, names) | (NOT_BESIDE_THE_ROOMS & set(names) if Path(folder) == ROOT else set())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that no build folder is left in the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "source", ignore=away)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    command.append("--config-settings=--build-option=--compression=stored")  # the content is the same, sooner
    if importlib.util.find_spec("setuptools"):
        command.append("--no-build-isolation")
    done = subprocess.run([*command, str(folder / "source")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("decodescope-*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment that holds the wheel, and sees the dependencies that are installed here."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False, symlinks=os.name != "nt")
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-compile",
    ]
    done = subprocess.run([*command, str(wheel)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    # A folder named in a .pth file lends its packages. Its own .pth files, including editable installs, are not read.
    lent = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    own = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
    )
    Path(own.stdout.strip(), "lent.pth").write_text("\n".join(lent), encoding="utf-8")
    return python


def test_wheel_holds_every_data_file_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = [
        f"decodescope/{p.relative_to(ROOT).as_posix()}"
        for pattern in ("assets/**/*", "notebooks/*.ipynb", "lab/web/**/*")
        for p in ROOT.glob(pattern)
        if p.is_file() and not {"__pycache__", ".ipynb_checkpoints"} & set(p.parts)
    ]
    assert len(wanted) > 2, "the test needs data files"
    assert not [n for n in wanted if n not in names]
    assert not [
        n
        for n in names
        if n.startswith("decodescope/tests/") or n.endswith((".pyc", "/conftest.py", "/setup.py"))
    ]


def test_wheel_holds_every_module(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = [p for room in ("engine", "lab", "app", "testing") for p in (ROOT / room).rglob("*.py")]
    assert not [m for m in modules if f"decodescope/{m.relative_to(ROOT).as_posix()}" not in names]
    assert "decodescope/py.typed" in names


def test_wheel_has_the_version_of_the_package(wheel: Path) -> None:
    assert wheel.name.split("-")[1] == decodescope.__version__


def test_installed_wheel_decodes_far_from_the_repository(python: Path, tmp_path: Path) -> None:
    program = python.with_name("decodescope.exe" if os.name == "nt" else "decodescope")
    # User data go to a folder of the test's own; nothing is downloaded.
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "XDG_"))}
    env |= {"HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    where = subprocess.run(
        [python, "-c", "import decodescope; print(decodescope.__file__)"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=env,
    )
    assert Path(where.stdout.strip()).is_relative_to(python.parent.parent), (
        "the test needs the installed copy"
    )
    command = [
        program,
        "run",
        "--model",
        "lab",
        "--prompt",
        "Once upon a time",
        "--max-new-tokens",
        "4",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert isinstance(said["text"], str)
    assert said["tokens"]
