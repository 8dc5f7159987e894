"""What `make test` does if something is missing: it installs nothing into the system and says so; CI refuses to begin.

It also covers a system that makes no links, and where types are read.
"""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from source import ROOT


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/environment.py on a machine without a browser, where running a program is not allowed."""
    monkeypatch.syspath_prepend(ROOT / "scripts")  # as when the script is run
    spec = importlib.util.spec_from_file_location("environment_script", ROOT / "scripts" / "environment.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "find_browser", lambda: "")
    monkeypatch.setattr(script.subprocess, "run", lambda *args, **more: pytest.fail(f"{args} was run"))
    monkeypatch.delenv("BROWSER", raising=False)
    return script


def test_without_a_browser_its_tests_are_left_out_and_the_command_is_named(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    browser, not_run = environment.browser_for_tests()
    assert browser == "" and not_run.startswith(
        "Not run, because no Chromium or Chrome was found: the browser tests."
    )
    assert not_run.endswith("-m playwright install chromium")


def test_ci_refuses_to_begin_without_a_browser(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(environment.Refusal, match=r"none was found\. Install one with: .* install chromium$"):
        environment.browser_for_tests()


def test_the_browser_is_printed_and_without_one_the_command_fails(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert environment.main(["browser"]) == 1
    assert capsys.readouterr().out == "There is no Chromium or Chrome here.\n"
    monkeypatch.setattr(environment, "find_browser", lambda: "/usr/bin/chromium")
    assert environment.main(["browser"]) == 0 and capsys.readouterr().out == "/usr/bin/chromium\n"


def test_a_python_without_venv_is_refused_with_the_command_that_installs_it(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = []

    def run(command: list[str], **more: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "")

    monkeypatch.setattr(environment.subprocess, "run", run)
    with pytest.raises(environment.Refusal, match=r"run `apt-get install python3\.\d+-venv`\.$"):
        environment.make_venv()
    assert commands and all("apt-get" not in command for command in commands)


@pytest.mark.parametrize("name", ["decodescope", "main"])
def test_without_links_the_types_are_read_in_a_folder_of_the_package_name(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    def refuse(*args: object, **more: object) -> None:
        raise OSError("no links")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    monkeypatch.setattr(environment, "ROOT", tmp_path / name)
    if name == "decodescope":
        assert environment.package_parent() == tmp_path
    else:
        with pytest.raises(environment.Refusal, match=r"a folder called main; call it decodescope\.$"):
            environment.package_parent()
