"""Type and device of the models behind the page: the pool's keys, runs, forks, copies, refusals, and the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import KEPT, Lab, option
from starlette.testclient import TestClient
from toylab import HERE, finished, guarded, toy_play

from decodescope.app import server
from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.runs import model_pool
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.compare.repeats import FEWEST, RepeatMeasurement
from decodescope.app.runs.compare.settings_diff import choice_of_run, differences
from decodescope.app.runs.forks import fork
from decodescope.app.runs.model_pool import placement_of
from decodescope.app.runs.placed_key import Placement, check_placement, join_key, split_key
from decodescope.app.runs.recipe import as_json, from_json, recipe
from decodescope.app.runs.record_stream import RecordStream
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.engine.session.load import SHIPPED
from decodescope.engine.trace import check, open_trace


@pytest.fixture
def small(tmp_path: Path) -> Iterator[RunService]:
    """A lab that begins with the small shipped model, and offers a copy of it, which is stored in bfloat16."""
    shutil.copytree(SHIPPED / "lab-draft", tmp_path / "models" / "mine")
    made = RunService("lab-draft", None, tmp_path / "traces", more=tmp_path / "models")
    yield made
    made.close()


def done(play: RunService, choice: RunChoice) -> RecordStream:
    """The run of a choice, after its end."""
    channel = play.start(choice)
    assert play._jobs[channel.run].wait(300) and channel.status == "done", channel.state()
    return channel


def place(channel: RecordStream) -> tuple[str, str]:
    """Type and device of a run, by its header."""
    assert channel.wire is not None
    return channel.wire.header.dtype, channel.wire.header.device


def test_a_key_holds_type_and_device_and_gives_them_back() -> None:
    where = Placement("bfloat16", "cpu")
    for name in ("lab", "lab@int4 group=64", "/a folder as it is/m.gguf", "x as float32 on paper"):
        assert split_key(join_key(name, where)) == (name, where) and split_key(name) == (name, Placement())
        assert join_key(name, Placement()) == join_key(name, Placement("float32")) == name
    assert check_placement(Placement("float16", "cpu")) == ("float16", "cpu")
    for wrong, words in (
        (Placement("int3"), "float32, bfloat16"),
        (Placement(device="cuda:77"), "choose one of cpu"),
    ):
        with pytest.raises(RequestRefusal, match=words):
            check_placement(wrong)


def test_a_model_is_loaded_once_in_each_type_and_the_usual_one_is_its_own(small: RunService) -> None:
    mine = small.models.key("mine")
    assert mine is not None
    for dtype, due in (("", "float32"), ("bfloat16", "bfloat16"), ("float32", "float32")):
        assert place(done(small, RunChoice("Once", max_new=3, dtype=dtype))) == (due, "cpu")
    assert [*small.models.present] == ["lab-draft as bfloat16 on cpu", "lab-draft"], (
        "float32 is the usual type"
    )
    assert place(done(small, RunChoice("Once", models={"target": mine}, max_new=3))) == ("bfloat16", "cpu")
    assert place(done(small, RunChoice("Once", models={"target": mine}, max_new=3, device="cpu")))[1] == "cpu"
    assert len(small.models.present) == 3 and mine in small.models.present
    sizes = {key: small.models.offer(key).size for key in small.models.present}  # type: ignore[union-attr] # all are offered
    assert sizes["lab-draft as bfloat16 on cpu"] == sizes[mine] < sizes["lab-draft"]


def test_the_type_of_the_command_line_is_the_usual_one(tmp_path: Path) -> None:
    play = RunService("lab-draft", None, tmp_path)
    play.models.choose_placement(Placement("bfloat16"))
    assert place(done(play, RunChoice("Once", max_new=3))) == ("bfloat16", "cpu")
    assert place(done(play, RunChoice("Once", max_new=3, dtype="float32"))) == ("float32", "cpu")
    assert [*play.models.present] == ["lab-draft", "lab-draft as float32 on cpu"]
    play.close()


def test_a_model_named_by_its_path_is_described_before_it_is_loaded(tmp_path: Path) -> None:
    path = str(shutil.copytree(SHIPPED / "lab-draft", tmp_path / "elsewhere"))
    play = RunService(path, None, tmp_path / "traces")
    (row,) = play.models.state()["models"]
    assert (row["name"], row["dtype"], row["device"], row["loaded"]) == (
        "elsewhere",
        "bfloat16",
        "cpu",
        False,
    )
    assert row["bytes"] >= 2 * row["params"]


def test_a_fork_loads_the_recorded_type_by_itself(small: RunService) -> None:
    first = done(small, RunChoice("Once upon a time", max_new=6, dtype="bfloat16"))
    small.models.present.clear()  # as after the server was started again
    branch = fork(small, first, {"step": 2, "change": {"seed": 3}})
    assert small._jobs[branch.run].wait(300) and branch.status == "done", branch.state()
    assert place(branch) == ("bfloat16", "cpu") and [*small.models.present] == [
        "lab-draft as bfloat16 on cpu"
    ]


def test_a_draft_model_in_another_type_is_recorded_and_loaded_so_again(small: RunService) -> None:
    mine = small.models.key("mine")
    assert mine is not None
    choice = RunChoice("Once upon a time", PRESETS["chain"].names, PRESETS["chain"].settings, max_new=12)
    first = done(small, RunChoice(**{**vars(choice), "models": {"target": "lab-draft", "draft": mine}}))
    assert first.wire is not None
    header = first.wire.header
    assert (header.dtype, header.lanes["draft"]["dtype"], header.dtype_of("draft")) == (
        "float32",
        "bfloat16",
        "bfloat16",
    )
    trace = open_trace(first.path)
    assert check(trace).problems == []
    trace.close()
    small.models.present.clear()
    branch = fork(small, first, {"step": 0, "change": {"seed": 3}})
    assert small._jobs[branch.run].wait(300) and branch.status == "done", branch.state()
    assert {str(x.decoder.dtype) for x in small.models.present.values()} == {
        "torch.float32",
        "torch.bfloat16",
    }


def test_repeats_load_the_recorded_types_by_themselves(small: RunService) -> None:
    runs = [done(small, RunChoice("Once", max_new=3, dtype=x)) for x in ("", "bfloat16")]
    small.models.present.clear()
    rounds = RepeatMeasurement(small, runs, FEWEST)
    assert small.queue_work(rounds).wait(300) and rounds.rounds == FEWEST
    assert {key: placement_of(x).dtype for key, x in small.models.present.items()} == {
        "lab-draft": "float32",
        "lab-draft as bfloat16 on cpu": "bfloat16",
    }


def test_settings_copies_and_differences_name_type_and_device(small: RunService) -> None:
    first = done(small, RunChoice("Once", max_new=3, dtype="bfloat16"))
    own = choice_of_run(small, first)
    assert (own.dtype, own.device, dict(own.models)) == ("bfloat16", "", {"target": "lab-draft"})
    assert from_json(as_json(own)).place == own.place
    assert "--dtype bfloat16 " in recipe(own, {}, "command")
    assert "load('lab-draft', dtype='bfloat16')" in recipe(own, {}, "python")
    assert from_json(recipe(own, {}, "link").removeprefix("#set=")).dtype == "bfloat16"
    assert first.wire is not None
    now = RunChoice(**{**vars(own), "dtype": ""})
    assert differences(small, first.wire.header, own, now) == ["type float32, not bfloat16"]
    assert differences(small, first.wire.header, own, own) == []
    usual = choice_of_run(small, done(small, RunChoice("Once", max_new=3)))
    assert usual.place == Placement() and "dtype" not in as_json(usual)


def test_a_model_that_does_not_fit_is_refused_with_what_would(
    small: RunService, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, half = (
        small.models.offer(key).size  # type: ignore[union-attr] # both are offered
        for key in ("lab-draft as float64 on cpu", "lab-draft")
    )
    monkeypatch.setattr(model_pool, "free_memory", lambda device: int((whole + half) / 2 / 0.9))
    said = small.check(RunChoice("Once", max_new=3, dtype="float64"))
    assert said.startswith("lab-draft would take ") and "choose the type float32 (" in said, said
    assert (
        said.endswith(", or a smaller model, or fewer new tokens.") and small.check(RunChoice("Once")) == ""
    )
    assert (
        small.check(RunChoice("Once", device="cuda:99"))
        == "There is no device 'cuda:99' here: choose one of cpu."
    )


def test_what_has_to_go_is_said_before_another_model_is_loaded(
    small: RunService, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(small, RunChoice("Once", max_new=3))
    size = small.models.offer("lab").size  # type: ignore[union-attr] # it is offered
    monkeypatch.setattr(model_pool, "free_memory", lambda device: int(1.05 * size))
    assert small.models.state({"target": "lab"})["unloads"] == ["lab-draft in float32"]
    monkeypatch.setattr(model_pool, "free_memory", lambda device: 2 * size)
    assert small.models.state({"target": "lab"})["unloads"] == []


def test_loading_says_which_model_in_which_type_and_how_far_it_is(small: RunService) -> None:
    seen = list[dict[str, Any]]()
    note = small.models._note_progress

    def looked(progress: Any) -> None:
        note(progress)
        seen.append(small.models.state())

    small.models._note_progress = looked  # type: ignore[method-assign] # to look at the state meanwhile
    small.models.ensure_loaded({"target": "lab-draft"})
    loading = [x for x in seen if x["phase"].startswith("loading the model lab-draft as float32 on cpu: ")]
    assert [x["phase"].rsplit(": ", 1)[1] for x in loading] == [f"{k} of 2 layers" for k in range(3)]
    assert [x["share"] for x in loading] == [0, 0.5, 1] and "phase" not in small.models.state()


def test_a_page_asks_for_its_own_type(tmp_path: Path) -> None:
    with TestClient(guarded(toy_play(tmp_path)), base_url=HERE, headers={"origin": HERE}) as client:
        for dtype in ("", "bfloat16"):
            (row,) = client.get(f"/ds/state?target=lab-draft&dtype={dtype}").json()["models"]
            assert row["dtype"] == (dtype or "float32")
        said = client.get("/ds/state?target=lab-draft&device=cuda:99")
        assert said.status_code == 422 and "There is no device 'cuda:99'" in said.json()["error"]


def test_a_type_given_to_the_command_reaches_the_server(
    said: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    places = list[Placement]()
    monkeypatch.setattr(server, "serve", lambda **given: places.append(given["place"]))
    assert said("app", "--dtype", "bfloat16", "--device", "cpu")[0] == said("app")[0] == 0
    assert places == [Placement("bfloat16", "cpu"), Placement()]
    code, _, err = said("app", "--dtype", "int3")
    assert code == 2 and "int3" in err


def test_a_toy_keeps_its_own_type_in_its_settings(tmp_path: Path) -> None:
    play = toy_play(tmp_path)
    channel = finished(play, prompt="hello", max_new=4)
    own = choice_of_run(play, channel)
    assert own.place == Placement() and json.loads(as_json(own))["models"]["target"] == "toy"
    play.close()


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_a_type_is_chosen_beside_the_model_kept_and_put_back_by_a_link(shipped: Lab) -> None:
    page = shipped.open()
    line = "document.querySelector('#ds-models .ds-models')?.textContent.includes('{}')"
    page.wait_for_function(line.format("47.2 MB in float32 on cpu"))
    option(page, "#ds-dtype", "bfloat16")
    page.wait_for_function(f"{KEPT}.dtype == 'bfloat16'")
    page.wait_for_function(line.format("23.6 MB in bfloat16 on cpu"))
    option(page, "#ds-device", "cpu")
    page.wait_for_function(f"{KEPT}.device == 'cpu'")
    page.reload()
    page.wait_for_function(line.format("in bfloat16 on cpu"))
    assert page.locator("#ds-dtype input").input_value() == "bfloat16"
    text = recipe(RunChoice("Once", seed=1, models={"target": "lab"}), {}, "link")
    page.goto("about:blank")  # else only the fragment changes
    page.goto(shipped.address + "/" + text)
    page.wait_for_function(line.format("in float32 on cpu"))
    assert page.locator("#ds-dtype input").input_value() == "automatic"
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), width
