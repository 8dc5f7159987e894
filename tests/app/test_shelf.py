"""Models are offered, chosen and refused; examples come with the package; traces do not fill the disk."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from toylab import finished, toy_play

from decodescope.app.limits import Limits
from decodescope.app.places import tidy
from decodescope.app.refusal import Refused
from decodescope.app.runs import examples as shown
from decodescope.app.runs import memory
from decodescope.app.runs.examples import examples
from decodescope.app.runs.play import Choice, Play
from decodescope.engine import MethodError
from decodescope.engine.load import SHIPPED
from decodescope.engine.trace import check, open_trace


def loaded(play: Play) -> dict[str, str]:
    """Wait for the models."""
    assert play._loading is not None
    play._loading.join(120)
    return {role: model.name for role, model in play.models.items()}


def test_shipped_models_and_those_of_the_folder_are_offered(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED / "lab-draft", tmp_path / "mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    (tmp_path / "broken" / "model.safetensors").write_text("")
    (tmp_path / "broken" / "tokenizer.json").write_text("{}")
    offers = {x.name: x for x in Play("lab", None, tmp_path, more=tmp_path).offers()}
    assert {"lab", "lab-draft", "mine"} <= offers.keys() and not {"empty", "broken"} & offers.keys()
    assert "M" in offers["lab"].label and "(folder)" in offers["mine"].label
    assert offers["mine"].size >= offers["mine"].spec.params * 2


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_link_that_leads_out_of_the_folder_is_not_offered(tmp_path: Path) -> None:
    root, other = tmp_path / "models", tmp_path / "other"
    shutil.copytree(SHIPPED / "lab-draft", root / "mine")
    shutil.copytree(SHIPPED / "lab-draft", other)
    (root / "out").symlink_to(other)
    (root / "in").symlink_to(root / "mine")
    play = Play("lab", None, tmp_path, more=root)
    assert {x.name for x in play.offers() if x.source == "folder"} == {"mine", "in"}
    with pytest.raises(Refused, match="not offered here"):
        play.choose({"target": str(other)})


def test_another_model_is_loaded_in_the_place_of_the_present_one(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED / "lab-draft", tmp_path / "mine")
    play = Play("lab-draft", None, tmp_path / "traces", more=tmp_path)
    play.choose({"target": "lab", "draft": str((tmp_path / "mine").resolve())})
    with pytest.raises(Refused, match="being loaded"):
        play.choose({"target": "lab-draft"})
    assert loaded(play) == {"target": "lab", "draft": "mine"} and play.state()["ready"]
    before = play.models["target"]
    play.choose({"target": "lab"})
    assert loaded(play) == {"target": "lab"} and play.models["target"] is before, "what is loaded is not read again"
    play.close()


def test_further_draft_models_are_loaded_for_a_method_that_reads_several(tmp_path: Path) -> None:
    play = Play("lab-draft", None, tmp_path / "traces")
    several = Choice("Once", {"drafter": "specinfer"}, {"drafter": {"models": 2}}, max_new=6)
    assert play.wants(several) == ("draft", "draft2") and play.wants(Choice("x", {"strategy": "jacobi"})) == ()
    assert re.search(r"needs 2 draft models and the page has 0: choose more under Draft model", play.check(several))
    play.choose(dict.fromkeys(("target", "draft", "draft2"), "lab-draft"), 100)
    assert loaded(play) == {"target": "lab-draft", "draft": "lab-draft", "draft2": "lab-draft"}
    assert len({id(x) for x in play.models.values()}) == 1, "a model that plays several parts is read once"
    one, three = play.estimate({"target": "lab-draft"}, 100), play.estimate(play.names, 100)
    assert three.held == one.held and three.cache == 3 * one.cache, "its weights count once, its caches as often as it plays"
    assert play.check(several) == ""
    channel = play.start(several)
    assert play._jobs[channel.run].wait(300) and channel.status == "done"
    assert set(channel.wire.header.lanes) == {"draft", "draft2"}  # type: ignore[union-attr] # it has begun
    play.close()


def test_a_model_that_is_not_offered_or_does_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play("lab", None, tmp_path)
    for wrong in ("/etc", "../lab", "nobody/nothing", ""):
        with pytest.raises(Refused, match="not offered here"):
            play.choose({"target": wrong})
    monkeypatch.setattr(sys.modules["decodescope.engine.load"], "free_bytes", lambda device: 1000)
    with pytest.raises(
        Refused, match=r"^lab and lab-draft would take .*weights .*, and 1\.0 kB are free: choose a smaller"
    ) as no:
        play.choose({"target": "lab", "draft": "lab-draft"}, tokens=100)
    assert "cache of 100 tokens" in str(no.value) and str(no.value).endswith(", or fewer new tokens.")
    assert play.models == {} and not play.trouble and play._loading is None


def test_the_estimate_counts_weights_and_whole_pages_of_cache(tmp_path: Path) -> None:
    play = Play("lab", "lab-draft", tmp_path)
    specs = {x.name: x.spec for x in play.offers() if x.name in play.names.values()}
    before = play.estimate(play.names, 100)
    assert before.weights == {name: specs[name].params * 4 for name in ("lab", "lab-draft")} and before.held == 0
    assert before.cache == sum(x.kv_bytes(128, 4) for x in specs.values()) and before.needed > before.cache
    assert play.estimate(play.names, 10**9).cache == sum(x.kv_bytes(x.max_positions, 4) for x in specs.values())
    play.choose({"target": "lab", "draft": "lab-draft"}, tokens=100)
    loaded(play)
    after = play.estimate(play.names, 100)
    assert after.weights == {} and after.held == sum(before.weights.values()) and after.cache == before.cache
    # what is told is what the engine then holds
    channel = finished(play, prompt="Once", max_new=90)
    held = [x.cache for x in channel.steps(0, channel.count)][-1]
    assert {x.lane: x.held_bytes for x in held}["target"] == specs["lab"].kv_bytes(128, 4)
    play.close()


def test_a_draft_with_other_tokens_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(SHIPPED / "lab-draft", other)
    table = json.loads((other / "tokenizer.json").read_text())
    words = {place: word for word, place in table["model"]["vocab"].items()}
    table["model"]["vocab"] |= {words[300]: 301, words[301]: 300}
    (other / "tokenizer.json").write_text(json.dumps(table))
    play = Play("lab", None, tmp_path, more=tmp_path)
    with pytest.raises(MethodError, match=r"^other cannot be the draft model of lab: their tokenizers differ at id 300 "):
        play.choose({"target": "lab", "draft": str(other.resolve())})
    assert play._loading is None


def test_a_model_that_cannot_be_read_leaves_the_present_ones(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    shutil.copytree(SHIPPED / "lab-draft", bad)
    (bad / "model.safetensors").write_bytes(b"\0" * 64)
    play = Play("lab-draft", None, tmp_path, more=tmp_path)
    play.choose({"target": "lab-draft"})
    assert loaded(play) == {"target": "lab-draft"}
    play.choose({"target": str(bad.resolve())})
    assert loaded(play) == {"target": "lab-draft"} and play.names == {"target": "lab-draft"}
    assert play.trouble and "\n" not in play.trouble and "Traceback" not in play.trouble


def test_a_hub_snapshot_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(SHIPPED / "lab-draft", tmp_path / "models--some--tiny" / "snapshots" / "0123abc")
    (tmp_path / "models--no--thing").mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    play = Play("lab", None, tmp_path)
    (offer,) = [x for x in play.offers() if x.source == "hub"]
    assert offer.name == "some/tiny"
    play.choose({"target": offer.key})
    assert loaded(play) == {"target": "some/tiny"}


# ---- examples


def test_examples_open_agree_with_themselves_and_are_small() -> None:
    assert len(examples()) >= 2 and examples()[0].name == "first-rejection"
    assert len({x.run for x in examples()}) == len(examples())
    for example in examples():
        assert example.path.stat().st_size <= 300_000 and example.about.endswith(".")
        trace = open_trace(example.path, verify=True)
        assert trace.header.run == example.run and len(trace.steps) > 3 and not trace.damage
        assert check(trace).ok
        trace.close()


def test_an_example_is_found_like_a_run_and_needs_no_model(tmp_path: Path) -> None:
    play = Play("lab", "lab-draft", tmp_path)
    channel = play.find(examples()[0].run)
    assert channel is not None and channel.over and channel.count > 3 and not play.models
    assert not play.act(channel, "stop")


def test_a_package_without_examples_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "FOLDER", tmp_path)
    assert shown.examples.__wrapped__() == ()


# ---- room on the disk


def test_the_oldest_unstarred_traces_go(tmp_path: Path) -> None:
    for i in range(6):
        path = tmp_path / f"{i}.dstrace"
        path.write_bytes(b"x" * 100)
        os.utime(path, (i, i))
    (tmp_path / "0.dstrace.star").touch()
    (tmp_path / "7.dstrace.partial").write_bytes(b"x" * 1000)
    (tmp_path / "notes.txt").write_bytes(b"x" * 1000)
    assert [x.name for x in tidy(tmp_path, 400)] == ["1.dstrace", "2.dstrace"]
    assert tidy(tmp_path, 400) == []
    assert [x.name for x in tidy(tmp_path, 0)] == ["3.dstrace", "4.dstrace"], "the newest and the starred stay"
    assert sorted(x.name for x in tmp_path.iterdir()) == [
        *("0.dstrace", "0.dstrace.star", "5.dstrace", "7.dstrace.partial", "notes.txt"),
    ]


def test_room_is_made_when_a_run_ends(tmp_path: Path) -> None:
    play = toy_play(tmp_path)
    first = finished(play)
    play.limits = Limits(keep=0)
    second = finished(play)
    assert not first.path.exists() and second.path.exists()
    play.close()


def test_sizes_are_short() -> None:
    assert [memory.short(x) for x in (999, 1500, 11_800_000, 3.2e9)] == ["999 ", "1.5 k", "11.8 M", "3.2 G"]
