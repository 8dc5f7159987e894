"""A lab with a target that was made from another model; that model also runs as a reference when requested."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.runs.compare.settings_diff import choice_of_run, differences
from decodescope.app.runs.recipe import as_json, from_json, recipe
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.engine.core.roles import WHOLE
from decodescope.engine.trace import open_trace

CHOICE = RunChoice("The old man", {"drafter": "none"}, max_new=4, reference="model")


def test_the_page_loads_what_its_target_was_made_of_and_lets_it_read_along(tmp_path: Path) -> None:
    play = RunService("lab-draft@int8", None, tmp_path)
    try:
        alone = replace(CHOICE, reference=False)
        names = play.lanes(CHOICE, play.method(CHOICE))
        assert names == {"target": play.models.names["target"], WHOLE: play.models.key("lab-draft")}
        more, less = play.estimate_memory(CHOICE, names), play.estimate_memory(alone)
        assert sum(more.weights.values()) > 1.5 * sum(less.weights.values()) and more.cache == 2 * less.cache
        channel = play.start(CHOICE)
        assert play._jobs[channel.run].wait(300)
        header = channel.wire.header
        assert (
            header.reference_kind == "model"
            and "@" in header.model["name"]
            and "@" not in header.lanes[WHOLE]["name"]
        )
        references = [x.cache[0].reference for x in channel.steps(0, channel.count)]
        assert len(references) == 4 and all(0 < x.drift[0] < 0.01 and x.weight_bytes > 0 for x in references)
        own = choice_of_run(play, channel)
        assert own.reference == "model" and WHOLE not in own.models and play.check(own) == ""
        assert differences(play, header, own, own) == []
        assert differences(play, header, own, replace(own, reference=False)) == [
            "without the original weights as reference"
        ]
        assert "--reference model" in recipe(
            own, play.models.names, "command"
        ) and "reference='model'" in recipe(own, play.models.names, "python")
        assert from_json(as_json(own)).reference == "model"
        assert set(play.find_recorded_models(header)) == {"target", WHOLE}
        with pytest.raises(RequestRefusal, match="summary records nothing of the model that reads along"):
            play.start(replace(CHOICE, level="summary"))
    finally:
        play.close()


def test_a_link_that_names_nobody_who_could_read_along_is_refused() -> None:
    with pytest.raises(RequestRefusal, match="settings of this link cannot be read"):
        from_json(json.dumps({**json.loads(as_json(CHOICE)), "reference": "everybody"}))


def test_the_command_line_records_it(said, tmp_path: Path) -> None:
    words = ["run", "--model", "lab-draft", "--weights", "int8", "--prompt", "Once", "--max-new-tokens", "3"]
    code, _, err = said(*words, "--reference", "model", "--trace", str(tmp_path / "a.dstrace"))
    assert code == 0, err
    trace = open_trace(tmp_path / "a.dstrace")
    assert trace.header.reference_kind == "model" and all(x.cache[0].reference.ids for x in trace.steps)
    code, _, err = said(
        *words, "--reference", "model", "--trace-level", "summary", "--trace", str(tmp_path / "b.dstrace")
    )
    assert code == 2 and err.startswith("--trace-level summary records nothing of the model that reads along")
