#!/usr/bin/env python3
"""The environment that DecodeScope runs in: made on first use, then found again. Needs Python 3.11 and nothing else.

    python scripts/environment.py app [arguments of `decodescope app`]
    python scripts/environment.py test [arguments of pytest]
    python scripts/environment.py check
    python scripts/environment.py lint
    python scripts/environment.py types
    python scripts/environment.py python [arguments of python]
    python scripts/environment.py install
    python scripts/environment.py browser

`browser` prints the browser that the tests would use, and exits with 1 if there is none. Each other command first sees to it
that `.venv` holds the package and the versions in `constraints.txt`. That takes minutes once and no time afterwards: a stamp in
`.venv` tells whether anything has changed. If the Python that runs this script has torch 2.9 or newer, that torch is used
instead of a second one. `make` calls this script; so can you, on any system. It installs nothing outside of `.venv`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from changed import BY_NAME, changed_files, test_files, tests_for

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".venv"
PYTHON = HOME / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = HOME / "decodescope.stamp"
OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 9)
ROOMS = ["engine", "lab", "app", "testing"]
# the model of the tests on a real one, where it is kept, and how long the tests wait for it
REAL_MODEL = "smollm2-135m-instruct"
REAL_FOLDER = HOME / "models"
REAL_SECONDS = 600
FETCH = """
import sys
from pathlib import Path
from decodescope.engine.model.fetched.catalogue import find_fetchable, is_fetched, model_path
from decodescope.engine.model.fetched.fetch import fetch_model
model = find_fetchable(sys.argv[1])
print(model_path(model) if is_fetched(model) else fetch_model(model, folder=Path(sys.argv[2])))
"""
PACKAGE = "decodescope"


class Refusal(Exception):
    """The reason why a command cannot go on, with the way out."""


def main(arguments: list[str]) -> int:
    """Run one of the commands of this file's docstring; returns the exit status."""
    commands = {
        "app": app,
        "test": test,
        "check": check,
        "lint": lint,
        "types": types,
        "python": python,
        "install": install,
        "browser": browser,
    }
    if not arguments or arguments[0] not in commands:
        print(__doc__)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    if sys.version_info < OLDEST_PYTHON:
        return with_newer_python(arguments)
    try:
        if arguments[0] != "browser":  # CI asks for it before there is an environment
            install([])
        return commands[arguments[0]](arguments[1:])
    except Refusal as reason:
        print(f"\n{reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


# ---- commands


def app(arguments: list[str]) -> int:
    """Open the lab in the browser."""
    return become([str(PYTHON), "-m", "decodescope", "app", *arguments])


def python(arguments: list[str]) -> int:
    """Run the environment's Python."""
    return become([str(PYTHON), *arguments])


def lint(arguments: list[str]) -> int:
    """Read the code for mistakes: ruff, then mypy."""
    failed = [name for name, check in (("ruff", ruff), ("mypy", mypy)) if check()]
    if failed:
        print(f"{' and '.join(failed)} found mistakes; they are listed above.", file=sys.stderr)
    return 1 if failed else 0


def types(arguments: list[str]) -> int:
    """Check types with pyright, as an editor does; the first call installs it. `arguments` are pyright's."""
    if subprocess.run([str(PYTHON), "-c", "import basedpyright"], capture_output=True).returncode:
        pip_install("types")
    project = ROOT if ROOT.name == PACKAGE else package_parent() / PACKAGE
    return call([str(PYTHON), "-m", "basedpyright", "--project", str(project), *arguments])


def test(arguments: list[str]) -> int:
    """Run ruff, mypy and pytest, browser tests included; all three run even if one of them fails."""
    program, not_run = browser_for_tests()
    fetching = start_fetching()
    # one more than cores: tests of the page wait a third of their time, and each worker collects all tests
    workers = min(4, (os.cpu_count() or 1) + 1)
    env = {
        "HF_HUB_OFFLINE": "1",  # everything the tests read is in the repository
        "GRADIO_ANALYTICS_ENABLED": "False",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),  # one core for each pytest worker
        "DECODESCOPE_BROWSER": program,
        "PYTHONDONTWRITEBYTECODE": "",  # else each worker compiles every test again in each run, which takes it 20 s
    }
    command = [str(PYTHON), "-m", "pytest", "-n", str(workers), "--dist", "loadgroup"]
    if not program:
        command += ["-m", f"{default_markers()} and not browser"]
    compiling = None if (ROOT / "tests" / "__pycache__").exists() else compile_tests(env)
    with tempfile.TemporaryFile() as output:
        # ruff and mypy use one core; the tests need not wait for them
        linting = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "lint"], cwd=ROOT, stdout=output, stderr=output
        )
        if compiling is not None:
            compiling.wait()
        env |= real_model(fetching)
        status = call([*command, *arguments], env=env)
        unread = linting.wait()
        output.seek(0)
        print(output.read().decode(errors="replace"), end="", flush=True)
    if unread:
        print("Not passed: the code check failed; its messages stand above.", file=sys.stderr)
    if not_run:
        print(not_run)
    return status or unread


def check(arguments: list[str]) -> int:
    """Lint, then the tests that the changed files ask for, without a browser: a minute or so. `arguments` are pytest's."""
    unread = lint([])
    files, methods = tests_for(changed_files(), test_files())
    env = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    env |= real_model(start_fetching())
    pytest = [
        str(PYTHON),
        "-m",
        "pytest",
        "-n",
        str(os.cpu_count() or 1),
        "-m",
        f"{default_markers()} and not browser",
    ]
    status = call([*pytest, *files, *arguments], env=env)
    if methods:
        status = call([*pytest, *BY_NAME, "-k", " or ".join(methods)], env=env) or status
    return status or unread


def browser(arguments: list[str]) -> int:
    """Print the browser that the tests would use."""
    found = find_browser()
    print(found or "There is no Chromium or Chrome here.")
    return 0 if found else 1


def start_fetching() -> subprocess.Popen[str] | None:
    """Fetch the model of the tests on a real one, in the background: 93 MB, once; None if the caller names a file."""
    if os.environ.get("DECODESCOPE_REAL_MODEL"):
        return None
    command = [str(PYTHON), "-c", FETCH, REAL_MODEL, str(REAL_FOLDER)]
    return subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def real_model(fetching: subprocess.Popen[str] | None) -> dict[str, str]:
    """What tells the tests where the real model is: nothing if it could not be fetched, and then they skip what needs it."""
    if fetching is None:
        return {}
    try:
        path, trouble = fetching.communicate(timeout=REAL_SECONDS)
    except subprocess.TimeoutExpired:
        fetching.kill()  # what it has fetched stays, and the next call goes on from there
        path, trouble = "", f"it took more than {REAL_SECONDS} s"
    lines = path.split("\n")
    if fetching.returncode == 0 and Path(lines[0]).is_file():
        return {"DECODESCOPE_REAL_MODEL": lines[0]}
    why = (trouble.strip().splitlines() or ["no reason was given"])[-1]
    print(f"Tests on a real model are skipped: {REAL_MODEL} could not be fetched: {why}", flush=True)
    return {}


def compile_tests(env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Collect the tests in a process of its own: pytest keeps what it has compiled, and the workers find it there."""
    command = [str(PYTHON), "-m", "pytest", "--collect-only"]
    return subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def ruff() -> int:
    """Style, common mistakes and format, over the whole tree."""
    checked = call([str(PYTHON), "-m", "ruff", "check", "--quiet", "--output-format", "concise", "."])
    return call([str(PYTHON), "-m", "ruff", "format", "--check", "."]) or checked


def mypy() -> int:
    """Types, in the rooms of the package."""
    command = [str(PYTHON), "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    command += ["--cache-dir", str(ROOT / ".mypy_cache")]
    rooms = [word for room in ROOMS for word in ("-p", f"{PACKAGE}.{room}")]
    return call([*command, *rooms], folder=package_parent())


def package_parent() -> Path:
    """A folder that holds the package under its name, wherever it is: a folder with a link to it.

    Where the system makes no links, as Windows does not for most users, it is the parent of a folder of that name.
    """
    link = ROOT / "build" / "types" / PACKAGE
    if not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        try:
            link.symlink_to(ROOT, target_is_directory=True)
        except OSError:
            if ROOT.name != PACKAGE:
                raise Refusal(
                    f"Types cannot be read in a folder called {ROOT.name}; call it {PACKAGE}."
                ) from None
            return ROOT.parent
    return link.parent


def default_markers() -> str:
    """The marker expression that pytest uses when none is given."""
    import tomllib

    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"][
        "ini_options"
    ]
    words = shlex.split(options["addopts"])
    return words[words.index("-m") + 1]


# ---- the environment


def install(arguments: list[str]) -> int:
    """Make `.venv` what pyproject.toml and constraints.txt ask for; nothing happens if it is that already."""
    if STAMP.exists() and PYTHON.exists() and STAMP.read_text(encoding="utf-8") == wanted():
        return 0
    print(f"Setting up {HOME}. This takes some minutes, once.", flush=True)
    if not usable(PYTHON):
        make_venv()
    (HOME / "constraints.txt").write_text(constraints_for(torch_version(PYTHON)), encoding="utf-8")
    pip_install("all,dev")
    STAMP.write_text(wanted(), encoding="utf-8")
    return 0


def pip_install(extras: str) -> None:
    """Install the package in `.venv`, editable, with these extras and the versions of its constraints."""
    # a log gets errors only, a terminal the progress of the download
    quiet = [] if sys.stdout.isatty() else ["-qq"]
    pip = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *quiet]
    status = call([*pip, "--constraint", str(HOME / "constraints.txt"), "--editable", f"{ROOT}[{extras}]"])
    if status:
        raise Refusal(f"pip could not install the packages (exit status {status}); its message stands above.")


def wanted() -> str:
    """What the environment depends on, as one hash: requirements, pins, and the folder it points to."""
    parts = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt")]
    return hashlib.sha256(b"\0".join([*parts, str(ROOT).encode()])).hexdigest()


def make_venv() -> None:
    """Create `.venv` from scratch, with the packages of this Python in sight if a good torch is among them."""
    command = [sys.executable, "-m", "venv", "--clear", str(HOME)]
    if sys.prefix == sys.base_prefix and torch_version(Path(sys.executable)):
        command.insert(3, "--system-site-packages")
    if subprocess.run([sys.executable, "-c", "import ensurepip"], capture_output=True).returncode:
        package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        raise Refusal(
            f"{sys.executable} cannot make virtual environments: on Debian or Ubuntu, run `apt-get install {package}`."
        )
    if call(command):
        raise Refusal(f"{sys.executable} could not create {HOME}; its message stands above.")
    if "--system-site-packages" in command:  # pyright reads .pth files, and not what pyvenv.cfg says
        folder = sysconfig.get_path("purelib", "venv", {"base": str(HOME)})
        Path(folder, "system.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")


def usable(executable: Path) -> bool:
    """Whether this Python runs, is new enough and has pip."""
    code = f"import sys, pip; sys.exit(sys.version_info < {OLDEST_PYTHON})"
    try:
        return subprocess.run([str(executable), "-c", code], capture_output=True).returncode == 0
    except OSError:
        return False


def torch_version(executable: Path) -> str:
    """The version of torch that this Python has, or the empty string if there is none or it is too old."""
    code = "from importlib.metadata import version; print(version('torch'))"
    found = subprocess.run([str(executable), "-c", code], capture_output=True, text=True).stdout.strip()
    numbers = re.match(r"(\d+)\.(\d+)", found)
    return found if numbers and tuple(map(int, numbers.groups())) >= OLDEST_TORCH else ""


def constraints_for(torch: str) -> str:
    """The pins, with torch at the version that is there already, if any."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return re.sub(r"(?m)^torch==.*$", f"torch=={torch}", pins) if torch else pins


def with_newer_python(arguments: list[str]) -> int:
    """Start this script again with a Python that is new enough: the newest one on the PATH."""
    for minor in range(13, OLDEST_PYTHON[1] - 1, -1):
        other = shutil.which(f"python3.{minor}")
        if other and usable(Path(other)):
            return call([other, str(Path(__file__).resolve()), *arguments])
    have, need = (".".join(map(str, v[:2])) for v in (sys.version_info, OLDEST_PYTHON))
    print(f"This is Python {have}, and DecodeScope needs {need} or newer: https://www.python.org/downloads/")
    return 1


# ---- the browser


def browser_for_tests() -> tuple[str, str]:
    """The browser to test with ("" for none), and what is then to be said about tests that were not run."""
    ci = bool(os.environ.get("CI"))
    if os.environ.get("BROWSER") == "none" and not ci:
        return "", "Not run, because BROWSER=none: the browser tests."
    if found := find_browser():
        return found, ""
    install = f"Install one with: {shlex.quote(str(PYTHON))} -m playwright install chromium"
    if ci:
        raise Refusal(f"The browser tests need Chromium or Chrome, and none was found. {install}")
    return "", f"Not run, because no Chromium or Chrome was found: the browser tests. {install}"


def find_browser() -> str:
    """Chromium or a relative of it: on the PATH, where installers put it, or in Playwright's folder; else ""."""
    names = [
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
        "chrome",
        "microsoft-edge",
    ]
    candidates = [
        os.environ.get("DECODESCOPE_BROWSER"),
        *map(shutil.which, names),
        *installed(),
        *playwrights_own(),
    ]
    return next((str(c) for c in candidates if c and starts(str(c))), "")


def installed() -> list[Path]:
    """Where macOS and Windows keep browsers, which is not on the PATH."""
    mac = [
        Path("/Applications") / f"{name}.app/Contents/MacOS/{name}" for name in ("Google Chrome", "Chromium")
    ]
    folders = [os.environ.get(v, "") for v in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA")]
    inside = ["Google/Chrome/Application/chrome.exe", "Microsoft/Edge/Application/msedge.exe"]
    return mac + [Path(folder) / path for folder in folders if folder for path in inside]


def playwrights_own() -> list[Path]:
    """Browsers that Playwright has downloaded, the newest first."""
    folders = {"darwin": "~/Library/Caches/ms-playwright", "win32": "~/AppData/Local/ms-playwright"}
    usual = folders.get(sys.platform, "~/.cache/ms-playwright")
    shelf = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or usual).expanduser()
    names = {
        "chrome",
        "chrome.exe",
        "Chromium",
        "Google Chrome for Testing",
        "headless_shell",
        "chrome-headless-shell",
    }
    found = [path for path in shelf.glob("chromium*/**/*") if path.name in names and path.is_file()]
    return sorted(found, key=lambda path: [int(n) for n in re.findall(r"-(\d+)", str(path))], reverse=True)


def starts(browser: str) -> bool:
    """Whether the browser answers; the `chromium-browser` of some systems only says that it is not installed."""
    if not Path(browser).is_file():
        return False
    if os.name == "nt":  # `--version` would open a window there
        return True
    try:
        return subprocess.run([browser, "--version"], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


# ---- processes


def call(command: list[str], env: dict[str, str] | None = None, folder: Path = ROOT) -> int:
    """Run a command to its end; on an interrupt it is the command that decides when that is."""
    sys.stdout.flush()
    child = subprocess.Popen(command, cwd=folder, env={**os.environ, **(env or {})})
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            continue  # the child has got the signal too


def become(command: list[str]) -> int:
    """Run a command instead of this script, so that signals reach it; on Windows, as its child."""
    if os.name == "nt":
        return call(command, folder=Path.cwd())
    sys.stdout.flush()
    os.execv(command[0], command)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
