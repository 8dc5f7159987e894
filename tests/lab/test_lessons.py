"""What the notebooks share: which model answers, and that a page's question has its answer in the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from decodescope.lab.lessons import PAGE, REAL_FILE, REAL_MODEL, real_model_path, real_or_lab


def test_a_chapter_takes_the_real_model_where_it_was_fetched_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DECODESCOPE_REAL_MODEL", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    name, said = real_or_lab()
    assert name == "lab" and said.endswith(f"decodescope models get {REAL_MODEL}")
    path = tmp_path / "decodescope" / "models" / REAL_MODEL / REAL_FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")
    name, said = real_or_lab()
    assert name == str(path) and REAL_MODEL in said and "models get" not in said and "\n" not in said
    monkeypatch.setenv("DECODESCOPE_REAL_MODEL", str(tmp_path / "elsewhere.gguf"))
    assert real_model_path() == tmp_path / "elsewhere.gguf" and real_or_lab()[0] == "lab"


def test_the_page_names_each_price_once() -> None:
    assert PAGE.count("12 euros") == PAGE.count("10 cents") == 1
