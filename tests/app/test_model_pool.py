"""Models are offered, chosen and refused; examples come with the package; traces do not fill the disk."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from toylab import finished, toy_play

from decodescope.app.basis.limits import LabLimits
from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.basis.storage import remove_old_traces
from decodescope.app.page import layout
from decodescope.app.runs import memory
from decodescope.app.runs.catalogue import examples as shown
from decodescope.app.runs.catalogue.examples import examples, shipped_examples
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.engine.core import files
from decodescope.engine.session.load import SHIPPED
from decodescope.engine.session.method import Method
from decodescope.engine.trace import check, open_trace


def test_shipped_models_and_those_of_the_folder_are_offered(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED / "lab-draft", tmp_path / "mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    (tmp_path / "broken" / "model.safetensors").write_text("")
    (tmp_path / "broken" / "tokenizer.json").write_text("{}")
    offers = {x.name: x for x in RunService("lab", None, tmp_path, more=tmp_path).models.offers()}
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
    play = RunService("lab", None, tmp_path, more=root)
    assert {x.name for x in play.models.offers() if x.source == "folder"} == {"mine", "in"}
    with pytest.raises(RequestRefusal, match="not offered here"):
        play.start(RunChoice("Once", models={"target": str(other)}))


def named(play: RunService) -> list[str]:
    """The names of the loaded models, the most recently requested one last."""
    return [model.name for model in play.models.present.values()]


def test_a_run_reads_the_models_that_it_names_whatever_another_named(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED / "lab-draft", tmp_path / "mine")
    mine = str((tmp_path / "mine").resolve())
    play = RunService("lab-draft", None, tmp_path / "traces", more=tmp_path)
    usual = play.start(RunChoice("Once", max_new=4))
    other = play.start(
        RunChoice("Once", PRESETS["chain"].names, models={"target": "lab", "draft": mine}, max_new=4)
    )
    again = play.start(RunChoice("Once", max_new=4))
    headers = []
    for channel in (usual, other, again):
        assert play._jobs[channel.run].wait(300) and channel.status == "done" and channel.wire is not None
        headers.append(channel.wire.header)
        assert headers[-1].run == channel.run, "it keeps the number that it had while it waited"
    assert [x.model["name"] for x in headers] == ["lab-draft", "lab", "lab-draft"]
    assert headers[1].lanes["draft"]["name"] == "mine"
    assert sorted(named(play)) == ["lab", "lab-draft", "mine"], (
        "they stay while there is room, and are read once"
    )
    assert play.models.state()["ready"] and [
        x["name"] for x in play.models.state({"target": "lab"})["models"]
    ] == ["lab"]
    play.close()


def test_models_that_no_run_needs_go_where_others_have_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = RunService("lab-draft", None, tmp_path)
    first = play.start(RunChoice("Once", max_new=2))
    assert play._jobs[first.run].wait(300)
    size = {x.key: x.size for x in play.models.offers()}
    gone = weakref.ref(play.models.present["lab-draft"])
    room = size["lab"] * 1.15  # memory for one of them
    monkeypatch.setattr(
        "decodescope.app.runs.model_pool.free_memory",
        lambda device: int(room - sum(size[key] for key in play.models.present)),
    )
    second = play.start(RunChoice("Once", max_new=2, models={"target": "lab"}))
    assert play._jobs[second.run].wait(300) and second.status == "done", second.state()
    assert named(play) == ["lab"] and first.status == "done" and gone() is None, "nothing holds its weights"
    play.close()


def test_further_draft_models_are_loaded_for_a_method_that_reads_several(tmp_path: Path) -> None:
    play = RunService("lab-draft", None, tmp_path / "traces")
    several = RunChoice("Once", {"drafter": "specinfer"}, {"drafter": {"models": 2}}, max_new=6)
    assert (
        play.further_roles(several) == ("draft", "draft2")
        and play.further_roles(RunChoice("x", {"strategy": "jacobi"})) == ()
    )
    assert re.search(
        r"needs 2 draft models and the page has 0: choose more under Draft model", play.check(several)
    )
    names = dict.fromkeys(("target", "draft", "draft2"), "lab-draft")
    several = replace(several, models=names)
    assert play.check(several) == ""
    channel = play.start(several)
    assert play._jobs[channel.run].wait(300) and channel.status == "done"
    assert set(channel.wire.header.lanes) == {"draft", "draft2"}  # type: ignore[union-attr] # the run has started
    assert named(play) == ["lab-draft"], "a model that plays several parts is read once"
    one, three = play.models.estimate({"target": "lab-draft"}, 100), play.models.estimate(names, 100)
    assert three.held == one.held and three.cache == 3 * one.cache, (
        "its weights count once, its caches as often as it plays"
    )
    play.close()


def test_a_model_that_is_not_offered_or_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = RunService("lab", None, tmp_path)
    for wrong in ("/etc", "../lab", "nobody/nothing"):
        with pytest.raises(RequestRefusal, match="not offered here"):
            play.start(RunChoice("Once", models={"target": wrong}))
    monkeypatch.setattr(sys.modules["decodescope.engine.session.load"], "free_bytes", lambda device: 1000)
    both = RunChoice(
        "Once", PRESETS["chain"].names, models={"target": "lab", "draft": "lab-draft"}, max_new=99
    )
    with pytest.raises(
        RequestRefusal,
        match=r"^lab and lab-draft would take .*weights .*, and 1\.0 kB are free: choose a smaller",
    ) as no:
        play.start(both)
    assert "cache of 100 tokens" in str(no.value) and str(no.value).endswith(", or fewer new tokens.")
    assert play.models.loaded_models() == {} and not play.models.trouble and not play.channels()


def test_a_transform_that_names_a_file_is_refused_unless_the_owner_named_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a page, a link or a trace's header says opens no file and does not tell whether there is one."""

    def opened(path: Path, most: int) -> NoReturn:
        raise AssertionError(f"{path} was looked at")

    table = tmp_path / "times.json"
    table.write_text("{}")
    owned = f"lab-draft@latency_fit timing_table={table}"
    play = RunService("lab-draft", owned, tmp_path / "traces")
    monkeypatch.setattr(files, "_inspect_file", opened)
    said = set()
    for path in (tmp_path / "times.json.old", "/etc/passwd", "/dev/zero"):
        with pytest.raises(RequestRefusal) as refusal:
            play.start(RunChoice("Hi", models={"target": f"lab-draft@latency_fit timing_table={path}"}))
        said.add(str(refusal.value))
    assert said == {
        "latency_fit.timing_table names a file of this machine, and the page opens none: leave it empty, or name the model "
        "with it when the lab is started."
    }
    assert play.models.offer(owned) is not None
    play.close()


def test_the_estimate_counts_weights_and_whole_pages_of_cache(tmp_path: Path) -> None:
    play = RunService("lab", "lab-draft", tmp_path)
    specs = {x.name: x.spec for x in play.models.offers() if x.name in play.models.names.values()}
    before = play.models.estimate(play.models.names, 100)
    assert (
        before.weights == {name: specs[name].params * 4 for name in ("lab", "lab-draft")} and before.held == 0
    )
    assert (
        before.cache == sum(x.kv_bytes(112, 4) for x in specs.values()) and before.needed_bytes > before.cache
    )
    assert play.models.estimate(play.models.names, 10**9).cache == sum(
        x.kv_bytes(x.max_positions, 4) for x in specs.values()
    )
    play.models.ensure_loaded(play.models.names)
    after = play.models.estimate(play.models.names, 100)
    assert after.weights == {} and after.held == sum(before.weights.values()) and after.cache == before.cache
    # the estimate equals what the engine then holds, except for the spare room of growth by half
    channel = finished(play, prompt="Once", max_new=90)
    held = [x.cache for x in channel.steps(0, channel.count)][-1]
    assert (
        {x.lane: x.held_bytes for x in held}["target"]
        == specs["lab"].kv_bytes(128, 4)
        < 1.5 * specs["lab"].kv_bytes(112, 4)
    )
    play.close()


def test_a_draft_with_other_tokens_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(SHIPPED / "lab-draft", other)
    table = json.loads((other / "tokenizer.json").read_text())
    words = {place: word for word, place in table["model"]["vocab"].items()}
    table["model"]["vocab"] |= {words[300]: 301, words[301]: 300}
    (other / "tokenizer.json").write_text(json.dumps(table))
    play = RunService("lab", None, tmp_path, more=tmp_path)
    names = {"target": "lab", "draft": str(other.resolve())}
    why = play.check(RunChoice("Once", PRESETS["chain"].names, models=names))
    assert why.startswith("other cannot be the draft model of lab: their tokenizers differ at id 300 ")
    assert not play.models.present


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            lambda x: x.write_bytes(x.read_bytes()[: x.stat().st_size // 2]),
            r"tokenizer.json cannot be read .*; download it",
        ),
        (lambda x: x.write_text("no JSON"), r"tokenizer.json cannot be read .*; download it"),
        (lambda x: x.write_bytes(bytes(range(256))), "tokenizer.json"),
        (lambda x: x.unlink(), "has no tokenizer.json; save the tokenizer"),
    ],
    ids=["cut in half", "no JSON", "no text", "missing"],
)
def test_a_model_says_of_itself_that_its_tokenizer_is_damaged(
    spoil: Callable[[Path], Any], says: str, tmp_path: Path
) -> None:
    bad = tmp_path / "bad"
    shutil.copytree(SHIPPED / "lab-draft", bad)
    spoil(bad / "tokenizer.json")
    key = str(bad.resolve())
    play = RunService(key, None, tmp_path, more=tmp_path)
    assert key in [x.key for x in play.models.offers()]
    assert play.estimate_memory(RunChoice("Once")).sentence, "a page that opens asks for it"
    (row,) = play.models.state()["models"]
    for sentence in (row["trouble"], play.check(RunChoice("Once", chat=True))):
        assert re.search(says, sentence) and sentence.endswith(".") and "\n" not in sentence, sentence
    with pytest.raises(RequestRefusal, match=says):
        play.start(RunChoice("Once"))
    assert play.check(RunChoice("Once", models={"target": "lab"})) == "" and not play.models.trouble_of("lab")


def test_the_page_is_told_what_of_a_models_files_is_not_read(tmp_path: Path) -> None:
    play = toy_play(tmp_path)
    play.models.loaded_models()["target"].remarks.append(
        "The config.json of toy gives logit_scale = 0.5, which is not read."
    )
    assert [x["remarks"] for x in play.models.state()["models"]] == [
        play.models.loaded_models()["target"].remarks,
        [],
    ]


def test_the_page_opens_where_its_model_has_a_damaged_tokenizer(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED / "lab-draft", tmp_path / "bad")
    (tmp_path / "bad" / "tokenizer.json").write_text("{")
    play = RunService(str((tmp_path / "bad").resolve()), None, tmp_path, more=tmp_path)
    with layout.build_page(play) as page:
        event = next(x for x in page.fns.values() if getattr(x.fn, "__name__", "") == "checked")
    answer, *_ = event.fn(*(getattr(x, "value", None) for x in event.inputs))
    assert "tokenizer.json cannot be read" in answer["refused"] and answer["memory"]


def test_a_model_that_cannot_be_read_leaves_the_present_ones(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    shutil.copytree(SHIPPED / "lab-draft", bad)
    (bad / "model.safetensors").write_bytes(b"\0" * 64)
    play = RunService("lab-draft", None, tmp_path, more=tmp_path)
    play.models.load()
    channel = play.start(RunChoice("Once", max_new=2, models={"target": str(bad.resolve())}))
    assert play._jobs[channel.run].wait(300) and channel.over and channel.end is not None
    assert (
        channel.end.reason == "bad_input"
        and "model.safetensors" in channel.end.message
        and "\n" not in channel.end.message
    )
    assert named(play) == ["lab-draft"] and not play.models.trouble
    assert play.start(RunChoice("Once", max_new=2)).is_active
    play.close()


def test_a_hub_snapshot_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(SHIPPED / "lab-draft", tmp_path / "models--some--tiny" / "snapshots" / "0123abc")
    (tmp_path / "models--no--thing").mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    play = RunService("lab", None, tmp_path)
    (offer,) = [x for x in play.models.offers() if x.source == "hub"]
    assert offer.name == "some/tiny"
    play.models.ensure_loaded({"target": offer.key})
    assert named(play) == ["some/tiny"]


# ---- examples


def test_examples_open_agree_with_themselves_and_are_small() -> None:
    assert len(examples()) >= 2 and shipped_examples()[0].name == "first-rejection"
    assert len({x.run for x in examples()}) == len(examples())
    for example in examples():
        assert example.path.stat().st_size <= 300_000 and example.about.endswith(".")
        trace = open_trace(example.path, verify=True)
        assert trace.header.run == example.run
        at_once = example.name in ("wall", "planned", "edits", "extract")
        assert len(trace.steps) > (0 if at_once else 3), "all at once, or more than a few steps"
        assert not trace.damage
        assert check(trace).ok
        trace.close()


def test_an_example_is_found_like_a_run_and_needs_no_model(tmp_path: Path) -> None:
    play = RunService("lab", "lab-draft", tmp_path)
    channel = play.find(shipped_examples()[0].run)
    assert channel is not None and channel.over and channel.count > 3 and not play.models.loaded_models()
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
    assert [x.name for x in remove_old_traces(tmp_path, 400)] == ["1.dstrace", "2.dstrace"]
    assert remove_old_traces(tmp_path, 400) == []
    assert [x.name for x in remove_old_traces(tmp_path, 0)] == ["3.dstrace", "4.dstrace"], (
        "the newest and the starred stay"
    )
    assert sorted(x.name for x in tmp_path.iterdir()) == [
        *("0.dstrace", "0.dstrace.star", "5.dstrace", "7.dstrace.partial", "notes.txt"),
    ]


def test_room_is_made_when_a_run_ends(tmp_path: Path) -> None:
    play = toy_play(tmp_path)
    first = finished(play)
    play.limits = LabLimits(keep=0)
    second = finished(play)
    assert not first.path.exists() and second.path.exists()
    play.close()


def test_sizes_are_short() -> None:
    assert [memory.format_count(x) for x in (999, 1500, 11_800_000, 3.2e9)] == [
        "999 ",
        "1.5 k",
        "11.8 M",
        "3.2 G",
    ]


def test_the_estimate_of_a_run_knows_what_is_packed_and_who_looks_at_the_prompt(tmp_path: Path) -> None:
    spec = next(x.spec for x in RunService("lab", None, tmp_path).models.offers() if x.name == "lab")

    def held(role: str, **names: Any) -> int:
        return memory.tokens_held(Method.from_names(names), 1000, 600, 0, role, spec, 4)

    assert held("target") == 1600 and held("target", kv_compression="kivi") < 1300, (
        "the prompt, whole, beside what it is packed into"
    )
    ahead = 1000 + Method.from_names({"policy": "speckv"}).policy.knobs()["lookahead"]
    assert held("draft", policy="speckv") == ahead and held("draft", drafter="draft_model") == 1600
    assert held("draft", policy="speckv", drafter="draft_model") == 1600 + ahead, (
        "each has a cache of its own"
    )
    assert held("draft", prompt_compression="specpc", drafter="draft_model") == 1600, (
        "the one that looked is gone before the other reads"
    )
    spec = replace(spec, max_positions=1200)
    both = held("draft", policy="speckv", drafter="draft_model")
    assert held("draft", drafter="draft_model") == 1200 and both == 1200 + min(ahead, 1200), (
        "no cache is beyond the context"
    )
    play = toy_play(tmp_path)
    alone, beside = (
        play.estimate_memory(RunChoice("abcabc", max_new=200, reference=reference))
        for reference in (False, True)
    )
    assert beside.cache > alone.cache and beside.tokens == 2 * alone.tokens, (
        "a full reference cache counts, where it is asked for"
    )
    told = []
    for codec in ("unpacked", "kivi"):
        choice = RunChoice(
            "abcabc",
            {"kv_compression": codec},
            {"kv_compression": {"group": 4}} if codec == "kivi" else {},
            max_new=200,
        )
        ahead = play.estimate_memory(choice)
        channel = play.start(choice)
        assert play._jobs[channel.run].wait(300)
        assert ahead.parts.partition(", ")[2] in channel.estimate, (
            "before it begins it is told the same of its cache"
        )
        tokens, number, unit = re.findall(r"cache of (\d+) tokens ([\d.]+) ([kMGT]?)B", channel.estimate)[0]
        told.append((int(tokens), float(number) * 1000 ** " kMGT".index(unit or " ")))
    assert told[0][0] == told[1][0] and told[1][1] < 0.8 * told[0][1], told
    play.close()
