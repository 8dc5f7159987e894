"""Training of the judge: labels as described, the state of the token itself, and a shipped judge that belongs to its model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import toys
from cyclic import V, cyclic

from decodescope.engine.model.checkpoint.folder import read_json
from decodescope.engine.model.heads.files import write_head
from decodescope.engine.session.load import fingerprint, load
from decodescope.training import judge as training

ASSETS = Path(__file__).resolve().parents[2] / "assets"

SHIPPED = ASSETS / "models" / "lab" / "heads" / "judge"


def text(rows: int, length: int, seed: int) -> torch.Tensor:
    """int64 [rows, length]: what the net writes; each row starts from one random token."""
    beginnings = torch.from_numpy(np.random.default_rng(seed).integers(V, size=(rows, 1)))
    return cyclic().write(beginnings, length - 1, 1.0, torch.Generator().manual_seed(seed))


def test_labels_say_right_up_to_a_replacement_and_wrong_from_it() -> None:
    """Each row has two answers, at places 3 to 8 and 12 to 15.

    No label follows a right replacement, and an answer that follows a wrong one has none.
    """
    ids = text(200, 18, 1)
    marks = torch.zeros(200, 18, dtype=torch.bool)
    marks[:, 3:9] = marks[:, 12:16] = True
    made, labels, put = training.alter_answers(cyclic(), ids, marks, torch.Generator().manual_seed(0))
    assert torch.equal(made != ids, put) and (put.sum(1) <= 1).all() and (labels[~marks] == -1).all()
    laws, seen = cyclic()(ids).softmax(-1), {0: 0, 1: 0, 2: 0}
    for row in range(200):
        if not put[row].any():
            assert (labels[row, marks[row]] == 1).all()
            seen[0] += 1
            continue
        at = int(put[row].nonzero())
        share = float(laws[row, at - 1, made[row, at]] / laws[row, at - 1].max())
        stop = 9 if at < 9 else 16
        assert (labels[row, :at][marks[row, :at]] == 1).all() and (labels[row, stop:] == -1).all()
        if labels[row, at] == 1:
            assert share >= 0.2 and (labels[row, at + 1 :] == -1).all()
            seen[1] += 1
        else:
            assert share < 0.05 and (labels[row, at:stop] == 0).all()
            seen[2] += 1
    assert seen[0] > 30 and seen[2] > 30


def test_likely_replacements_are_drawn_where_there_are_some() -> None:
    law, draw = torch.tensor([0.5, 0.3, 0.15, 0.04, 0.01]), torch.Generator().manual_seed(0)
    right = {training.replace_token(law, 0, True, draw) for _ in range(60)}
    wrong = {training.replace_token(law, 3, False, draw) for _ in range(60)}
    assert right == {1, 2} and wrong == {4}
    assert training.replace_token(torch.tensor([1.0, 0.0]), 0, True, draw) is None


def even(ids: torch.Tensor) -> training.JudgeExamples:
    """Examples of a judge that can be checked: tokens of even id are right."""
    states = training.token_features(cyclic(), ids).flatten(0, 1)
    right = (ids % 2 == 0).flatten()
    return training.JudgeExamples(states, right, torch.ones_like(right))


def test_what_is_learnt_of_a_token_is_asked_of_the_same_token(tmp_path: Path) -> None:
    """The judge learns that even ids are right, and spares exactly those in a run; one token off, it would spare others."""
    ids = torch.from_numpy(np.random.default_rng(4).integers(V, size=(60, 20)))
    head = training.fit_judge(even(ids))
    for _, right, _, wrong in training.spared_shares(head, even(text(20, 20, 5)))[:4]:
        assert right > 0.99 and wrong < 0.01
    cyclic().to_folder(tmp_path / "big")
    cyclic(3, 8, 11).to_folder(tmp_path / "small")
    write_head(head, tmp_path / "big" / "heads" / "judge")
    big, small = (load(tmp_path / x, "float32", "cpu") for x in ("big", "small"))
    method = toys.method(
        drafter=("draft_model", {"max_draft_tokens": 4}), acceptance=("judge", {"threshold": 0.5})
    )
    session = toys.decode(method, [3, 1, 0], 80, pair=(big, small), stop_tokens=())
    tried = 0
    for step in session.sink.steps:
        if step.trials is None:
            continue
        for node, p, ok in zip(step.trials.node, step.trials.p, step.trials.ok, strict=True):
            assert ok == (p > 0 or step.draft.tokens[node] % 2 == 0)
            tried += p == 0
    assert tried > 3, "the test needs tokens that the target would not write"


def test_fit_is_that_of_the_balanced_loss() -> None:
    """With nine right tokens to one wrong and no difference between them, the judge says one half, not nine tenths."""
    torch.manual_seed(0)
    right = torch.arange(4000) % 10 != 0
    head = training.fit_judge(training.JudgeExamples(torch.randn(4000, 5), right, right))
    assert float(head.right_probability(torch.zeros(5))) == pytest.approx(0.5, abs=0.06)


@pytest.mark.skipif(not SHIPPED.exists(), reason="no judge is shipped")
def test_the_shipped_judge_belongs_to_its_model_and_tells_right_from_wrong() -> None:
    config = read_json(SHIPPED, "config.json")
    assert config["target"] == fingerprint(SHIPPED.parents[1]), "the model was trained again after its judge"
    at_half = next(row for row in config["judged"] if row[0] == 0.5)
    assert at_half[1] > 0.6 and at_half[3] < 0.4 and at_half[2] > at_half[3]
