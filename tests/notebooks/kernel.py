"""A separate Jupyter: this interpreter's kernel, and no folder, setting or network access of the user who runs the tests."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from sizes import commit, draw_number, nightly

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def drawn(count: int, commit: str) -> list[Path]:
    """`count` notebooks, chosen by the commit's hash, so that over time every notebook is chosen."""
    return random.Random(draw_number(commit)).sample(NOTEBOOKS, count)


def in_turns(count: int) -> list[Any]:
    """The notebooks as parameters of a test: `count` of them with every commit, all of them every night."""
    here = [pytest.param(path, id=path.stem) for path in drawn(count, commit())]
    every = [pytest.param(path, id=f"{path.stem}, nightly", marks=pytest.mark.nightly) for path in NOTEBOOKS]
    return [*here, *nightly(every)]


def at_home(folder: Path, patch: pytest.MonkeyPatch) -> dict[str, str]:
    """Point every Jupyter path into `folder`, provide one kernel there, and block the network."""
    spec = folder / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(
        json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"})
    )
    patch.delenv("DECODESCOPE_REAL_MODEL", raising=False)  # chapters run with what comes with the package
    made = {
        "JUPYTER_PATH": str(folder / "jupyter"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "IPYTHONDIR": str(folder / "ipython"),
        "XDG_DATA_HOME": str(folder / "share"),
        "HF_HUB_OFFLINE": "1",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
        "no_proxy": "127.0.0.1,localhost",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    for name, value in made.items():
        patch.setenv(name, value)
    return made
