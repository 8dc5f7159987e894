"""The scripts of the repository as modules, for tests of what is in them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"


def script(name: str) -> ModuleType:
    """Load a file of benchmarks/ as a module.

    During the load it may import from another such file, as when it is run. Afterwards it may not, because scripts elsewhere
    have the same names.
    """
    spec = importlib.util.spec_from_file_location(f"{name}_script", BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec.loader.exec_module(made)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return made
