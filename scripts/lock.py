#!/usr/bin/env python3
"""Write the lock files again: the versions of `constraints.txt`, with the hashes of their files on PyPI.

    python scripts/lock.py

`requirements.lock` holds everything but torch. `requirements-torch.lock` holds the torch of PyPI and, on Linux, its CUDA
libraries. A CPU build of torch comes from another index, has other hashes, and needs no CUDA libraries. Both files serve every
system and every Python that the package supports. The script needs uv and the network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = "3.11"
TORCH = re.compile(r"(torch|triton|(nvidia|cuda)-[\w-]+)==")
HEAD = "# {what}: the versions of constraints.txt with the hashes of their files. `make lock` writes it.\n"


def main() -> int:
    """Write both files; returns the exit status."""
    uv = shutil.which("uv")
    if uv is None:
        print("The lock files are made by uv: install it with `pip install uv`.", file=sys.stderr)
        return 1
    command = [
        *(uv, "pip", "compile", "--no-config", "--quiet", "--universal", "--python-version", OLDEST_PYTHON),
        *("--default-index", "https://pypi.org/simple", "--generate-hashes", "--no-header", "--no-annotate"),
        *("--all-extras", "--constraint", "constraints.txt", "pyproject.toml"),
    ]
    env = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return done.returncode
    rest, torch = split_requirements(done.stdout)
    for name, what, lines in (
        ("requirements.lock", "What DecodeScope needs but for torch", rest),
        ("requirements-torch.lock", "The torch of PyPI and its libraries", torch),
    ):
        (ROOT / name).write_text(HEAD.format(what=what) + "".join(lines), encoding="utf-8")
    return 0


def split_requirements(text: str) -> tuple[list[str], list[str]]:
    """The requirements of `text` without torch and what it alone needs, and these; each with its hashes."""
    each = re.split(r"(?m)^(?=[A-Za-z0-9])", text)[1:]
    return [x for x in each if not TORCH.match(x)], [x for x in each if TORCH.match(x)]


if __name__ == "__main__":
    raise SystemExit(main())
