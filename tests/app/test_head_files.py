"""Published heads on the command line: read from their own folder; a pickle file is read only with explicit consent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from decodescope.app.cli import main
from decodescope.engine.session.load import SHIPPED, describe

RUN = [
    "run",
    "--model",
    "lab-draft",
    "--prompt",
    "def add(a, b):",
    "--max-new-tokens",
    "12",
    "--device",
    "cpu",
    "--json",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Medusa heads for lab-draft in their authors' layout, with a pickle file and without."""
    spec = describe(SHIPPED / "lab-draft", "lab-draft")
    d, g = spec.d_model, torch.Generator().manual_seed(0)
    shapes = {"0.linear.weight": (d, d), "0.linear.bias": (d,), "1.weight": (spec.vocab, d)}
    tensors = {
        f"{k}.{name}": torch.randn(shape, generator=g) * 0.1
        for k in range(2)
        for name, shape in shapes.items()
    }
    made = tmp_path_factory.mktemp("heads")
    for name in ("tensors", "pickle"):
        (made / name).mkdir()
        (made / name / "config.json").write_text(json.dumps({"medusa_num_heads": 2, "medusa_num_layers": 1}))
    save_file(tensors, made / "tensors" / "medusa_lm_head.safetensors")
    torch.save(tensors, made / "pickle" / "medusa_lm_head.pt")
    return made


def test_published_heads_draft_and_the_text_stays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {}
    for name, words in {"plain": [], "tensors": [], "pickle": ["--allow-pickle"]}.items():
        heads = [] if name == "plain" else ["--drafter", "medusa", "--head", f"medusa={folder / name}"]
        assert main([*RUN, *heads, *words]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["drafted"] > 0) == (name != "plain")
        texts[name] = told["text"]
    assert len(set(texts.values())) == 1


def test_a_pickle_file_is_refused_with_the_word_that_allows_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RUN, "--drafter", "medusa", "--head", f"medusa={folder / 'pickle'}"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "--allow-pickle" in err


def test_published_heads_of_another_kind_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--drafter", "hydra", "--head", f"hydra={folder / 'tensors'}"]) == 2
    assert (
        f"holds Medusa heads, not heads of the kind hydra; give it as medusa={folder / 'tensors'}."
        in capsys.readouterr().err
    )


def test_a_head_that_is_read_is_not_called_ignored(said: Callable[..., tuple[int, str, str]]) -> None:
    """The drafter eagle2 reads the heads of eagle; a strategy without a drafter reads none."""
    given = ("--head", f"eagle={SHIPPED / 'lab' / 'heads' / 'eagle'}")
    base = ["run", "--model", "lab", "--prompt", "Once", "--max-new-tokens", "2", *given]
    for words, ignored in ((["eagle2"], False), (["medusa"], True), (["none", "--strategy", "beam"], True)):
        code, _, err = said(*base, "--drafter", *words)
        assert (
            code == 0 and ("does not read eagle heads, so --head eagle=... is ignored" in err) == ignored
        ), words
    code, out, err = said(*base, "--drafter", "eagle", *given)
    assert code == 2 and out == "" and "The heads eagle are given twice" in err and err.count("\n") == 1


def test_what_of_a_head_is_not_read_is_told_in_text_and_json(
    folder: Path, said: Callable[..., tuple[int, str, str]]
) -> None:
    config = folder / "tensors" / "config.json"
    before = config.read_text()
    config.write_text(json.dumps({**json.loads(before), "medusa_num_heads": 5, "medusa_fc_bias": True}))
    code, out, err = said(*RUN, "--drafter", "medusa", "--head", f"medusa={folder / 'tensors'}")
    config.write_text(before)
    counted, named = json.loads(out)["notes"]
    assert code == 0 and err == f"{counted}\n{named}\n"
    assert counted.startswith("Note: The config.json of ") and counted.endswith(
        "its file of weights has 2: the file counts."
    )
    assert "gives medusa_fc_bias = True, which is not read: if they change the net, it drafts worse" in named


def test_a_folder_of_heads_is_shown_with_every_key_of_its_config(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "show", str(SHIPPED / "lab" / "heads" / "eagle3"), "--json"]) == 0
    ours = json.loads(capsys.readouterr().out)
    assert ours["kind"] == "eagle3" and ours["layout"] == "decodescope" and ours["made_for"]
    assert main(["models", "show", str(folder / "tensors"), "--json"]) == 0
    theirs = json.loads(capsys.readouterr().out)
    assert theirs["kind"] == "medusa" and theirs["layout"] == "the authors" and len(theirs["keys"]) == 2
    assert main(["models", "show", str(SHIPPED / "lab" / "heads" / "eagle3")]) == 0
    text = capsys.readouterr().out
    assert "shape.n_heads" in text and "used" in text and "changes no number" in text


def test_heads_are_named_by_hub_id_too(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id is fetched as a model's is; what the hub refuses is one sentence."""
    import huggingface_hub

    asked: list[str] = []
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda name, **_: asked.append(name) or str(folder / "tensors")
    )
    assert main([*RUN, "--drafter", "medusa", "--head", "medusa=someone/medusa-lab-draft"]) == 0
    assert asked == ["someone/medusa-lab-draft"] and json.loads(capsys.readouterr().out)["drafted"] > 0

    def gone(name: str, **_: object) -> str:
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", gone)
    assert main([*RUN, "--drafter", "medusa", "--head", "medusa=someone/medusa-lab-draft"]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert (
        "someone/medusa-lab-draft could not be fetched from the hub (OSError); give a folder of heads" in said
    )
