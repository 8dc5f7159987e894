"""Parts of one's own: components in files outside of the package, and in installed packages that offer some.

A file is named by its owner: on the command line, in Python, or when the page is started. Nothing that a trace, a link or a
page names is ever loaded.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
import warnings
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from pathlib import Path
from types import CodeType

from decodescope.engine.core.component import Component, add_part, parts_in
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.paths import expand_path, shorten_path
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.trace.details.consistency import validate_forms
from decodescope.engine.trace.values.limits import TraceError

PACKAGE = "decodescope_parts"  # what modules of such files are called inside Python
GROUP = "decodescope.parts"  # entry points of installed packages
MOST_BYTES = 1 << 20  # of a file
_FILES: dict[tuple[str, str], str] = {}  # kind and name -> the file, as its owner named it


class PartsError(Refusal):
    """A file of parts cannot be used. One sentence: what, where, and what to do."""


class _SourceLoader(SourceFileLoader):
    """Compiles a file whenever it is asked for.

    A cached compilation cannot be distinguished from a change in the same second that keeps the length.
    """

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def load_parts(*paths: str | Path) -> list[type[Component]]:
    """Load components from Python files, or from all files of folders, and put them into the registry.

    A file holds exactly one component; its name is the file's. A file that was loaded before is loaded again. Returns the
    classes. Raises PartsError for a file that is missing, cannot be run, holds no component or several, or has a taken name;
    the parts of other files stay.
    """
    return [_load(path, named) for named in paths for path in _files(str(named))]


def load_installed() -> list[str]:
    """Load the components of installed packages that offer some.

    They offer them by entry points of the group `decodescope.parts`, each the name of a module with one component. Returns what
    went wrong, a sentence for each package that could not be used.
    """
    wrong = []
    for entry in entry_points(group=GROUP):
        try:
            _register_part(importlib.import_module(entry.module), f"the entry point {entry.name}")
        except Exception as error:
            wrong.append(
                f"The part {entry.name!r} of an installed package was left out: {_error_summary(error)}. "
                "Update or remove the package."
            )
    return wrong


def warn_of_installed() -> None:
    """As `load_installed`, with a warning for each package that could not be used."""
    for words in load_installed():
        warnings.warn(words, stacklevel=2)


def file_of(kind: str, name: str) -> str | None:
    """The file that a part was loaded from, as its owner named it; None for a part of the package or of an installed one."""
    return _FILES.get((kind, name))


def _files(named: str) -> list[Path]:
    """The files that a path names."""
    path = expand_path(named)
    if path.is_dir():
        files = sorted(x for x in path.glob("*.py") if not x.name.startswith("_"))
        if not files:
            raise PartsError(
                f"The folder {shorten_path(named)} has no Python file: name a folder with one part in each file."
            )
        return files
    if not path.is_file():
        raise PartsError(
            f"There is no file {shorten_path(named)}: give the path of a Python file with a part."
        )
    return [path]


def _load(path: Path, named: str | Path) -> type[Component]:
    where = shorten_path(str(path))
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise PartsError(
            f"{where} cannot name a part: call the file NAME.py, NAME of letters, digits and underscores."
        )
    if path.stat().st_size > MOST_BYTES:
        raise PartsError(
            f"{where} has {path.stat().st_size:,} bytes, above the limit of {MOST_BYTES:,}: split the file."
        )
    module_name = f"{PACKAGE}.{path.stem}"
    spec = importlib.util.spec_from_file_location(
        module_name, path, loader=_SourceLoader(module_name, str(path))
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(module_name)
    sys.modules[module_name] = module  # dataclasses look their module up while it is being run
    try:
        spec.loader.exec_module(module)
        part = _register_part(module, where)
    except Exception as error:
        if before is None:
            del sys.modules[module_name]
        else:
            sys.modules[module_name] = before
        if isinstance(error, PartsError):
            raise
        raise PartsError(
            f"{where} could not be loaded: {_error_summary(error, path)}. Correct the file and load it again."
        ) from error
    _FILES[(part.kind, path.stem)] = str(path) if Path(named).is_dir() else str(named)
    return part


def _register_part(module: object, where: str) -> type[Component]:
    """Put the one component of a module into the registry."""
    parts = parts_in(module)
    if len(parts) != 1:
        raise PartsError(
            f"{where} defines {len(parts)} parts: put exactly one class with @component and a title into a file."
        )
    try:
        validate_forms(getattr(parts[0], "details", {}))
        add_part(parts[0])
    except (ParamError, TraceError) as error:
        raise PartsError(f"{where}: {str(error).rstrip('.')}.") from None
    return parts[0]


def _error_summary(error: Exception, path: Path | None = None) -> str:
    """An error in a few words, with the line of the file where it came about."""
    lines = [
        x.lineno
        for x in traceback.extract_tb(error.__traceback__)
        if path is not None and x.filename == str(path)
    ]
    line = lines[-1] if lines else None
    if isinstance(error, SyntaxError):
        line = error.lineno
    words = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(".")
    return words + (f" (line {line})" if line and "line" not in words else "")
