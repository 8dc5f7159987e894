"""What `make test` does where no browser is: it installs nothing, says so, and CI refuses to begin. And where the system makes
no links, where types are read."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from source import ROOT


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/environment.py, on a machine without a browser, where nothing may be run."""
    monkeypatch.syspath_prepend(ROOT / "scripts")  # as it is where the script is run
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
