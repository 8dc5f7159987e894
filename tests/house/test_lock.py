"""The lock files: they hold the versions of constraints.txt, and a hash of every file that may be installed."""

from __future__ import annotations

import re
import runpy

import pytest
from source import ROOT

PIN = re.compile(r"(?m)^([\w.-]+)==([\w.]+)(?: ; (.+?))?(?: \\)?$")
LOCKS = ("requirements.lock", "requirements-torch.lock")


def pins(name: str) -> dict[str, tuple[str, str]]:
    """Package, as PyPI spells it -> its version in this file, and on which systems it is needed."""
    found = PIN.findall((ROOT / name).read_text(encoding="utf-8"))
    return {re.sub(r"[-_.]+", "-", package).lower(): (version, where) for package, version, where in found}


def test_the_lock_files_hold_the_versions_of_the_constraints() -> None:
    locked = pins(LOCKS[0]) | pins(LOCKS[1])
    versions = {package: locked.get(package, ("none", ""))[0] for package in pins("constraints.txt")}
    wanted = {package: version for package, (version, _) in pins("constraints.txt").items()}
    assert len(wanted) > 100 and versions == wanted, "run `make lock`"


def test_what_has_no_constraint_is_for_some_systems_alone() -> None:
    free = {x: where for x, (_, where) in pins(LOCKS[0]).items() if x not in pins("constraints.txt")}
    assert not (bad := [package for package, where in free.items() if not where]), bad


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_version_has_hashes(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert re.fullmatch(r"#.+\n(?:[\w.-]+==\S+(?: ; .+)?(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n)+", text)


def test_torch_and_its_libraries_lie_in_a_file_of_their_own() -> None:
    lock = runpy.run_path(str(ROOT / "scripts" / "lock.py"))
    rest, torch = ((ROOT / name).read_text(encoding="utf-8").split("\n", 1)[1] for name in LOCKS)
    assert lock["split_requirements"](rest) == (lock["split_requirements"](rest)[0], [])
    assert lock["split_requirements"](torch)[0] == [] and "\ntorch==" in torch
