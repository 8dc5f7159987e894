"""The files that a hosting service reads: they parse, and agree with pyproject.toml, constraints.txt and README."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from source import ROOT

import decodescope

FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
WORKFLOW = ROOT / ".github" / "workflows" / "tests.yml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read_yaml(path: Path) -> Any:
    """The content of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_workflow_tests_every_python_that_the_package_names() -> None:
    named = [x.rsplit(" ", 1)[1] for x in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", x)]
    matrix = read_yaml(WORKFLOW)["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == named and PROJECT["requires-python"] == f">={named[0]}"
    assert {x.split("-")[0] for x in matrix["os"]} == {"ubuntu", "macos", "windows"}


def test_the_workflow_runs_the_commands_of_the_readme_and_may_write_nothing() -> None:
    workflow = read_yaml(WORKFLOW)
    steps = workflow["jobs"]["test"]["steps"]
    tests = {step["if"]: step["run"] for step in steps if "test" in step.get("run", "")}
    assert tests == {
        "runner.os != 'Windows'": "make test",
        "runner.os == 'Windows'": "python scripts/environment.py test",
    }
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "\n    make test " in readme and "\n    python3 scripts/environment.py test\n" in readme
    assert workflow["permissions"] == {"contents": "read"} and "permissions" not in workflow["jobs"]["test"]
    assert any(step.get("with", {}).get("cache") == "pip" for step in steps)


@pytest.mark.parametrize("path", [WORKFLOW, ROOT / ".ci" / "run"], ids=lambda path: path.name)
def test_ci_asks_the_script_for_a_browser(path: Path) -> None:
    """Only the script knows the names of browsers."""
    text = path.read_text(encoding="utf-8")
    assert "scripts/environment.py browser" in text and "google-chrome" not in text


def test_the_workflow_checks_the_page_s_scripts_with_pinned_tools() -> None:
    assert "make lint-js" in [step.get("run") for step in read_yaml(WORKFLOW)["jobs"]["scripts"]["steps"]]
    tools = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    locked = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert tools == {name: locked[f"node_modules/{name}"]["version"] for name in tools}
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in tools)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_has_fields_with_labels_and_ids_of_their_own(path: Path) -> None:
    form = read_yaml(path)
    ids = [field["id"] for field in form["body"]]
    assert form["name"] and form["description"] and len(ids) == len(set(ids)) > 3
    assert all(field["attributes"]["label"] for field in form["body"])


def test_there_is_a_form_for_a_bug_and_one_for_a_method() -> None:
    assert [path.stem for path in FORMS] == ["bug", "method"]


def test_the_citation_has_version_and_license_of_the_package() -> None:
    cited = read_yaml(ROOT / "CITATION.cff")
    assert (cited["cff-version"], cited["version"]) == ("1.2.0", decodescope.__version__)
    assert cited["license"] == PROJECT["license"] and cited["title"] and cited["authors"]


def test_the_hooks_run_the_ruff_of_the_constraints() -> None:
    repos = read_yaml(ROOT / ".pre-commit-config.yaml")["repos"]
    (ruff,) = [repo for repo in repos if repo["repo"].endswith("/ruff-pre-commit")]
    (pin,) = re.findall(r"(?m)^ruff==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"))
    assert ruff["rev"] == f"v{pin}" and [hook["id"] for hook in ruff["hooks"]] == [
        "ruff-check",
        "ruff-format",
    ]


def test_the_changes_begin_with_this_version() -> None:
    first = re.search(r"(?m)^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert first and first.group(1) == decodescope.__version__
