"""get_model of a hub id: which files, how much, in which order, and how it stops. The hub's answers are made up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from decodescope.engine.model.fetched.refusals import FetchError, FetchStopped
from decodescope.engine.session import get_model as getting
from decodescope.engine.session.get_model import get_model, plan_download

FILES = {
    "config.json": 700,
    "tokenizer.json": 2_000_000,
    "model.safetensors": 5_000_000,
    "pytorch_model.bin": 9_000_000,
    "README.md": 10,
    "onnx/model.safetensors": 8_000_000,
}


class Hub:
    """A hub with one repository. files: its files, by name;  fetched: those that were asked for, in their order"""

    def __init__(self, files: dict[str, int]):
        self.files = files
        self.fetched: list[str] = []

    def model_info(self, name: str, **how: Any) -> Any:
        """Return sizes, licence and commit."""
        siblings = [SimpleNamespace(rfilename=x, size=size) for x, size in self.files.items()]
        return SimpleNamespace(siblings=siblings, sha="c0ffee", card_data=SimpleNamespace(license="mit"))

    def download(self, name: str, file: str, tqdm_class: Any = None, **how: Any) -> str:
        """Fetch a file in four pieces, as the hub's library tells a bar."""
        if tqdm_class is not None:
            self.fetched.append(file)
            with tqdm_class(total=self.files[file], initial=0, desc=file, unit="B") as bar:
                for _ in range(4):
                    bar.update(self.files[file] / 4)
        return f"/hub/{file}"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The hub in the place of the real one; every config is one that can be loaded."""
    one = Hub(dict(FILES))
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: one)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", one.download)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *rest, **how: None)
    monkeypatch.setattr(getting, "describe", lambda folder, name: None)
    return one


def test_the_plan_counts_only_the_files_that_are_read(hub: Hub) -> None:
    plan = plan_download("someone/some-model")
    assert plan.stored_bytes == plan.download_bytes == 700 + 2_000_000 + 5_000_000
    assert plan.licence == "mit" and not plan.there and hub.fetched == []


def test_small_files_come_first_and_progress_adds_up(hub: Hub) -> None:
    seen: list[int] = []
    get_model("someone/some-model", lambda phase, done, total: seen.append(done))
    assert hub.fetched == ["config.json", "tokenizer.json", "model.safetensors"]
    assert seen == sorted(seen) and seen[-1] == 7_000_700


def test_a_config_that_cannot_be_loaded_stops_before_the_weights(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path, name: str) -> None:
        raise FetchError(f"{name} is of another family.")

    monkeypatch.setattr(getting, "describe", refuse)
    with pytest.raises(FetchError, match="another family"):
        get_model("someone/some-model")
    assert "model.safetensors" not in hub.fetched


def test_a_download_from_the_hub_stops_between_two_pieces(hub: Hub) -> None:
    seen: list[int] = []
    with pytest.raises(FetchStopped):
        get_model(
            "someone/some-model",
            lambda phase, done, total: seen.append(done),
            lambda: seen[-1] > 3_000_000,
        )
    assert seen[-1] < 7_000_700 and hub.fetched[-1] == "model.safetensors"


def test_gguf_files_are_fetched_by_name(hub: Hub) -> None:
    hub.files = {"a.Q4_0.gguf": 100, "a.Q8_0.gguf": 200, "config.json": 5}
    with pytest.raises(
        FetchError, match=r"holds 2 GGUF models; name one of them, such as someone/m:a\.Q4_0\.gguf"
    ):
        plan_download("someone/m")
    assert plan_download("someone/m:a.Q8_0.gguf").download_bytes == 200
    with pytest.raises(FetchError, match=r"is not there; the GGUF files of this repository are a\.Q4_0"):
        plan_download("someone/m:b.gguf")
    hub.files = {"pytorch_model.bin": 7}
    with pytest.raises(FetchError, match="holds no safetensors and no GGUF file"):
        plan_download("someone/m")


def test_no_room_and_no_answer_are_said(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getting, "free_bytes_at", lambda path: 1_000_000)
    with pytest.raises(FetchError, match=r"needs 24 MB on the disk of .*set HF_HOME"):
        get_model("someone/some-model")

    def silent(*rest: Any, **how: Any) -> None:
        raise RuntimeError("no route")

    monkeypatch.setattr(hub, "model_info", silent)
    with pytest.raises(FetchError, match="the hub does not answer"):
        plan_download("someone/some-model")
    assert hub.fetched == []
