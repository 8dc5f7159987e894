"""A chapter that runs in JupyterLab is not run by a bare kernel as well."""

from __future__ import annotations

import pytest

ALONE, VISITED = "test_notebook_runs_from_top_to_bottom_offline", "test_a_chapter_lives_in_jupyterlab"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After the selection by marks: if both tests of a chapter are selected, keep the JupyterLab visit."""
    by = {name: [x for x in items if getattr(x, "originalname", "") == name] for name in (ALONE, VISITED)}
    seen = {item.callspec.params["path"] for item in by[VISITED]}  # type: ignore[attr-defined]
    twice = [item for item in by[ALONE] if item.callspec.params["path"] in seen]  # type: ignore[attr-defined]
    config.hook.pytest_deselected(items=twice)
    items[:] = [item for item in items if item not in twice]
