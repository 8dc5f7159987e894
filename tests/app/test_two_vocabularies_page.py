"""A draft model with another tokenizer: the page says how many tokens both have, and refuses drafters that do not translate."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import toys
from toylab import ToyPlay
from two_vocabularies import DRAFT, TARGET, unequal_pair

from decodescope.app.commands import batch_method, calibrate, report, workload
from decodescope.app.commands.shared import run
from decodescope.app.page.layout import _settings_summary
from decodescope.app.runs.run_service import RunChoice
from decodescope.engine.core.component import build
from decodescope.engine.session.method import Method


def unequal_play(folder: Path) -> ToyPlay:
    """A lab over a target and a draft model with different vocabularies."""
    target, draft = unequal_pair()
    draft.fingerprint = "1" * 16
    play = ToyPlay("toy", "toy-draft", folder)
    play.models.put(target=target, draft=draft)
    return play


def test_the_page_takes_such_a_pair_with_a_remark_and_refuses_it_elsewhere(tmp_path: Path) -> None:
    play = unequal_play(tmp_path)
    shared = len({*TARGET} & {*DRAFT})
    for drafter in ("tli", "universal_assisted"):
        said = _settings_summary(play, play.compose(RunChoice("ab cd", {"drafter": drafter})))
        assert "refused" not in said
        due = f"{shared} of its {len(DRAFT)} tokens ({shared / len(DRAFT):.0%}) are tokens of both."
        assert [x for x in said["notes"] if x.endswith(due)], said["notes"]
    said = _settings_summary(play, play.compose(RunChoice("ab cd", {"drafter": "draft_model"})))
    assert "the drafter tli or universal_assisted, which translates" in said["refused"]
    assert not [x for x in said["notes"] if "tokens of both" in x]


def test_a_run_of_such_a_pair_is_recorded(tmp_path: Path) -> None:
    play = unequal_play(tmp_path)
    channel = play.start(RunChoice("ab cd", {"drafter": "tli"}, max_new=12))
    assert play._jobs[channel.run].wait(300)
    assert channel.status == "done" and toys.SPEC.vocab == len(TARGET)


@pytest.mark.parametrize(
    "command", [report, batch_method, calibrate, workload, run], ids=lambda x: x.__name__
)
def test_every_command_that_decodes_says_how_many_tokens_both_have(command: ModuleType) -> None:
    target, draft = unequal_pair()
    draft.remarks = ["toy-draft was read in a special way."]
    notes = command.model_notes(Method(drafter=build("drafter", "tli")), target, {"draft": draft})
    assert notes[0] == "Note: toy-draft was read in a special way."
    assert notes[1].endswith(
        f"{len({*TARGET} & {*DRAFT})} of its {len(DRAFT)} tokens (83%) are tokens of both."
    )
