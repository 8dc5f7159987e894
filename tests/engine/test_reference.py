"""transformers against our engine: only the settings that both sides have act on a text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from decodescope.app.commands.bench.decode import as_text
from decodescope.app.commands.shared.bench import unused_settings
from decodescope.engine.bench.clock import speed
from decodescope.engine.bench.clock.contest import Contestant, DecodeResult
from decodescope.engine.bench.clock.speed import Reference, non_default_settings
from decodescope.engine.session.load import SHIPPED, load

# each changes the text of `generate`, or breaks it, where it is used
ACTING: dict[str, Any] = {
    "repetition_penalty": 1.8, "no_repeat_ngram_size": 1, "suppress_tokens": [321], "bad_words_ids": [[279]],
    "forced_eos_token_id": 0, "min_new_tokens": 9, "encoder_repetition_penalty": 1.5, "do_sample": True, "temperature": 0.6,
    "top_k": 3, "max_time": 1e-9, "stop_strings": ["a"], "cache_implementation": "no such cache", "max_new_tokens": 2,
}  # fmt: skip
ROLES = {"eos_token_id": 0, "pad_token_id": 1, "transformers_version": "5.0"}


def folder_with(tmp_path: Path, **settings: Any) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copy(SHIPPED / "lab-draft" / name, folder)
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return folder


def test_settings_of_the_folder_act_on_no_contestant_and_are_named(tmp_path: Path) -> None:
    plain = load("lab-draft", "float32")
    model = load(folder_with(tmp_path, **ROLES, **ACTING), "float32")
    reference, prompt = Reference(model, model), [5, 6, 7]
    due = Reference(plain, None).contestants(8)[0].write(prompt).tokens
    texts = {one.name: one.write(prompt).tokens for one in reference.contestants(8)}
    assert len(due) == 8 and len(texts) == 4 and all(text == due for text in texts.values()), texts
    acting = reference.contestant("x", 8, suppress_tokens=ACTING["suppress_tokens"]).write(prompt).tokens
    assert acting != due, "the test needs a setting that changes the text"
    assert reference.set_aside == {model.name: dict(sorted(ACTING.items()))}
    said = unused_settings(reference.set_aside)
    assert len(said) == 1 and all(f"{name} " in said[0] for name in ACTING)


def test_settings_of_an_old_config_are_named_and_defaults_are_not(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, **ROLES, temperature=1.0, top_p=None)
    assert non_default_settings(folder, {"temperature": 1.0, "top_p": 1.0}) == {}
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "repetition_penalty": 1.2}))
    assert non_default_settings(folder, {"temperature": 1.0, "repetition_penalty": 1.0}) == {
        "repetition_penalty": 1.2
    }


def test_a_ratio_says_on_how_many_prompts_both_wrote_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrote(name: str, side: str, *texts: list[int]) -> Contestant:
        one = Contestant(name, side, {}, lambda prompt: DecodeResult(prompt))
        for at, text in enumerate(texts):
            one.seconds[str(at)], one.calls[str(at)] = [1.0], [DecodeResult(text)]
        return one

    monkeypatch.setattr(speed, "RECORDING", ())
    mine = [
        wrote(x, "decodescope", [1, 2], [3, 4])
        for x in ("autoregressive", "autoregressive, nothing recorded")
    ]
    for theirs, same in (([3, 4], 2), ([3, 5], 1)):
        found = speed.compare_contestants([*mine, wrote("generate", "transformers", [1, 2], theirs)])
        assert [x["same_texts"] for x in found["ratios"]] == [same]
        about = dict(
            machine="", device="", threads=1, torch="", transformers="", model="m", draft=None, dtype="", theirs="m",
            prompts={"0": 1, "1": 1}, new_tokens=2, repeats=1, settings={}, set_aside={},
        )  # fmt: skip
        said = as_text({**found, **about})
        assert f"{same} of 2" in said and ("times of different texts" in said) == (same < 2)
