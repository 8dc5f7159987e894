"""Training of heads for a model of the engine: what it learns, and that a stopped training becomes the unbroken one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toys
from cyclic import NEXT, V, cyclic, sharp
from safetensors.torch import load_file
from sizes import thinned

from decodescope.engine.core.refusal import Refusal
from decodescope.engine.model.heads.files import HEADS
from decodescope.engine.session.load import Model, load
from decodescope.engine.training import run as training
from decodescope.engine.training.acceptance import measure_acceptance
from decodescope.engine.training.answers import AnswerSettings, TrainingText, read_answers, write_answers
from decodescope.engine.training.batches import batch_states, plan_epoch, plan_steps, split_held_out
from decodescope.engine.training.guesses import head_guesses, head_logits
from decodescope.engine.training.loss import loss_of
from decodescope.engine.training.records import read_metrics
from decodescope.engine.training.run import TrainingSettings, train_head
from decodescope.engine.training.shapes import new_head, usual_shape
from decodescope.engine.training.target import DecoderTarget, likeliest_tokens, read_states

SMALL = dict(n_heads=2, n_kv_heads=1, head_dim=16, d_ff=32)
PROMPTS = [[i % V, NEXT[i % V], (5 * i) % V][: 1 + i % 3] for i in range(40)]
ASKED = TrainingSettings(
    "eagle3",
    tokens=6000,
    shape={**SMALL, "kept": V, "rank": 16},
    answer_tokens=20,
    window=32,
    temperature=0.0,
    batch_tokens=160,
    lr=1e-2,
    muon=2e-2,
    every=10,
    save=4,
)


class Killed(Exception):
    """The process ended here."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("cyclic")
    cyclic().to_folder(folder)
    return replace(load(folder, "float32", "cpu"), stop_tokens=[])  # no token ends a text


def texts(count: int, seed: int = 0) -> list[TrainingText]:
    """Random texts of different lengths, each with a prompt of one to three tokens."""
    draw = np.random.default_rng(seed)
    return [
        TrainingText(i, draw.integers(V, size=int(draw.integers(8, 20))).tolist(), 1 + i % 3)
        for i in range(count)
    ]


def numbers(folder: Path) -> list[dict[str, Any]]:
    """The measurements of a training, but for its seconds."""
    return [
        {k: x for k, x in row.items() if k != "seconds"} for row in read_metrics(folder / training.METRICS)
    ]


def test_a_decoder_has_the_values_of_the_net_it_was_saved_from(tmp_path: Path) -> None:
    net = sharp()
    net.to_folder(tmp_path)
    net = type(net).from_folder(tmp_path)  # rounded to the type of the file
    target = DecoderTarget(load(tmp_path, "float32", "cpu").decoder)
    ids = torch.randint(13, (3, 9), generator=torch.Generator().manual_seed(0))
    for mine, theirs in zip(
        vars(read_states(target, ids, 1)).values(), vars(read_states(net, ids, 1)).values(), strict=True
    ):
        assert mine is theirs is None or torch.allclose(mine, theirs, atol=1e-4)
    feature = read_states(target, ids).feature.requires_grad_(True)
    logits, some = target.unembed(feature), torch.tensor([7, 2])
    assert torch.allclose(logits, net(ids), atol=1e-3)
    assert torch.allclose(target.unembed_ids(feature, some), logits[..., some], atol=1e-5)
    logits.sum().backward()
    assert feature.grad is not None and feature.grad.abs().sum() > 0
    assert torch.equal(likeliest_tokens(target, feature.detach()), logits.argmax(-1))


def test_a_trained_head_drafts_the_cycle_and_its_folder_is_read_by_load(model: Model, tmp_path: Path) -> None:
    trained = train_head(model, PROMPTS, ASKED, tmp_path / "out")
    first, last = trained.metrics[0], trained.metrics[-1]
    assert last["loss"] < first["loss"] and min(last["accepted"]) > 0.97 and last["tokens_per_pass"] > 3.9
    assert (
        last["tokens"] >= ASKED.tokens
        and read_metrics(tmp_path / "out" / training.METRICS) == trained.metrics
    )
    config = json.loads((trained.folder / "config.json").read_text())
    assert config["target"] == model.fingerprint and config["rates"][0][0] > 0.97
    again = load(model.path, "float32", "cpu", heads={"eagle3": trained.folder})
    assert again.spec.heads == ("eagle3",) and not again.remarks
    method = toys.method(drafter=("eagle3", dict(nodes=3, width=1, depth=3)))
    session = toys.decode(method, [3, 1, 0], 41, pair=(again, again), stop_tokens=())
    assert session.end.tokens == toys.greedy_text(again.decoder, [3, 1, 0], 41)
    assert [step.accepted for step in session.sink.steps][1:-1] == [3] * 9
    card = (tmp_path / "out" / training.CARD).read_text(encoding="utf-8")
    assert model.fingerprint in card and f"{last['tokens']:,}" in card and " prompts" in card


def test_a_killed_training_goes_on_as_if_it_had_not_been(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed while answers are written, between two checkpoints, and between a measurement and its checkpoint."""
    asked = replace(ASKED, tokens=2000, temperature=1.0)
    unbroken = train_head(model, PROMPTS, asked, tmp_path / "whole")
    out, learn, save = tmp_path / "killed", training.HeadTraining._learn_from, training.HeadTraining._save
    kills = []

    def killed(place: str, **changed: Any) -> None:
        with monkeypatch.context() as patched:
            for name, function in changed.items():
                patched.setattr(training.HeadTraining, name, function)
            with pytest.raises(Killed):
                train_head(model, PROMPTS, asked, out)
        kills.append(place)

    def fails_at(step: int, function: Any) -> Any:
        def run(self: Any, *rest: Any) -> Any:
            if self.step == step:
                raise Killed
            return function(self, *rest)

        return run

    killed("before the first checkpoint", _learn_from=fails_at(3, learn))
    file = out / training.ANSWERS
    file.write_bytes(file.read_bytes()[:-60])  # within the last set
    killed("between two checkpoints", _learn_from=fails_at(7, learn))
    killed("after a measurement", _save=fails_at(10, save))
    assert len(read_metrics(out / training.METRICS)) == 1, "the line is there, and its checkpoint is not"
    again = train_head(model, PROMPTS, asked, out)
    assert len(kills) == 3 and len(unbroken.metrics) > 1
    assert numbers(out) == numbers(tmp_path / "whole")
    assert (out / training.ANSWERS).read_bytes() == (tmp_path / "whole" / training.ANSWERS).read_bytes()
    mine, theirs = (load_file(x.folder / "model.safetensors") for x in (again, unbroken))
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[k], theirs[k]) for k in mine)
    assert again.head.rates == unbroken.head.rates
    finished = train_head(model, PROMPTS, asked, out)
    assert numbers(out) == numbers(tmp_path / "whole") and finished.metrics == again.metrics


@pytest.mark.parametrize("kind", thinned(3, HEADS))
def test_every_kind_is_trained_and_read(kind: str, model: Model, tmp_path: Path) -> None:
    trained = train_head(
        model, PROMPTS[:12], replace(ASKED, kind=kind, tokens=300, shape={}, every=100), tmp_path / "out"
    )
    (row,) = trained.metrics
    assert row["loss"] > 0 and len(row["accepted"]) == len(trained.head.rates) > 0
    nets = load(model.path, "float32", "cpu", heads={kind: trained.folder}).decoder.heads
    assert nets[kind].rates == trained.head.rates and nets[kind].shape == trained.head.shape


def test_answers_are_what_plain_decoding_writes_and_are_kept_set_by_set(model: Model, tmp_path: Path) -> None:
    asked = AnswerSettings(most=12, window=32, temperature=0.0)
    answers = write_answers(model, PROMPTS, asked, tmp_path / "a")
    for text in answers:
        assert text.ids[: text.start] == PROMPTS[text.number]
        assert text.answer == toys.greedy_text(model.decoder, PROMPTS[text.number], 12)
    assert sorted(x.number for x in answers) == list(range(40))
    data = (tmp_path / "a").read_bytes()
    for cut in (len(data) - 1, len(data) // 2, 3):
        (tmp_path / "a").write_bytes(data[:cut])
        assert len(read_answers(tmp_path / "a")) in (0, 32), "whole sets"
        assert write_answers(model, PROMPTS, asked, tmp_path / "a") == answers
        assert (tmp_path / "a").read_bytes() == data
    assert len(write_answers(model, PROMPTS, replace(asked, enough=10), tmp_path / "b")) == 32
    assert write_answers(model, PROMPTS, replace(asked, window=3), tmp_path / "c")[0].answer, (
        "cut at the window"
    )
    assert {x.start for x in read_answers(tmp_path / "c")} == {1, 2}, (
        "a prompt that fills the window is left out"
    )


def test_each_text_comes_once_an_epoch_and_a_batch_keeps_its_size() -> None:
    lengths = [len(x.ids) for x in texts(150)]
    epochs = [plan_epoch(lengths, 60, 1, epoch) for epoch in range(2)]
    for epoch in epochs:
        assert sorted(i for batch in epoch for i in batch) == list(range(150))
        assert all(len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= 60 for batch in epoch)
    assert epochs[0] != epochs[1] and plan_epoch(lengths, 60, 1, 0) == epochs[0] != plan_epoch(
        lengths, 60, 2, 0
    )
    assert plan_epoch([90], 60, 1, 0) == [[0]], "a text longer than a batch comes alone"
    steps = plan_steps(texts(150), 4000, 60, 1)
    answers = [sum(len(texts(150)[i].answer) for i in batch) for batch in steps]
    assert sum(answers[:-1]) < 4000 <= sum(answers) and steps[: len(epochs[0])] == epochs[0]


def test_held_out_prompts_are_learnt_from_never() -> None:
    learnt, held_out = split_held_out(texts(45), 3)
    assert len(held_out) == 4 and sorted(x.number for x in learnt + held_out) == list(range(45))


def random_head(kind: str, target: Any, **shape: int) -> Any:
    torch.manual_seed(4)
    return new_head(kind, target, **shape).requires_grad_(False)


def test_acceptance_by_position_is_what_drafting_place_by_place_finds() -> None:
    """A head whose guesses are at times right, on texts of different lengths, against a loop over places."""
    net, head = sharp(), random_head("eagle3", sharp(), **SMALL, kept=9, rank=0)
    some = texts(12)
    measured = measure_acceptance(net, head, [batch_states(net, some[:5]), batch_states(net, some[5:])])
    right, reached, first, count = np.zeros(3), np.zeros(3), np.zeros(3), np.zeros(3)
    for text in some:
        r = read_states(net, torch.tensor([text.ids]))
        best = net(r.ids)[0].argmax(-1).tolist()
        guesses = [head_logits(net, head, x)[0].argmax(-1).tolist() for _, x in head_guesses(head, r)]
        for t in range(len(text.ids)):
            going = True
            for level in range(3):
                place = t + 2 + level  # of the token that is guessed
                if place >= len(text.ids):
                    break
                if place < text.start:
                    going = False
                    continue
                good = guesses[level][t] == best[place - 1]
                count[level] += 1
                first[level] += good
                reached[level] += going
                right[level] += going and good
                going = going and guesses[level][t] == text.ids[place]
    assert 0 < right[0] < reached[0] and reached[1] > 0, "the test needs guesses of both sorts"
    assert measured.reached == tuple(reached)
    assert np.allclose(measured.accepted, right / np.maximum(reached, 1))
    assert np.allclose([row[0] for row in measured.rates], first / count, atol=1e-5)
    a, b, c = measured.accepted
    assert measured.tokens_per_pass == pytest.approx(1 + a + a * b + a * b * c)


@pytest.mark.parametrize("kind", ["medusa", "eagle3", "kangaroo"])
def test_what_fills_up_short_texts_changes_no_loss(kind: str) -> None:
    """The loss of texts read together is that of each alone, weighed by how many of its tokens count."""
    net = sharp()
    sizes = {
        "eagle3": {**SMALL, "kept": V, "rank": 0},
        "kangaroo": {**SMALL, "layer": 1},
        "medusa": {"heads": 1},
    }
    sizes["kangaroo"].pop("d_ff")
    head = random_head(kind, net, **sizes[kind])
    shift = 1 if kind == "kangaroo" else 2
    some = texts(6)
    layer = head.shape.get("layer", 0)
    whole = head_guesses(head, batch_states(net, some, layer))[0][1]
    for i, text in enumerate(some):
        alone = head_guesses(head, batch_states(net, [text], layer))[0][1][0]
        assert torch.allclose(whole[i, : len(alone)], alone, atol=1e-4)
    if kind == "eagle3":
        return  # its loss has three levels, of which short texts have fewer places
    losses = [float(loss_of(net, head, batch_states(net, [x], layer))) for x in some]
    counts = [len(x.ids) - max(x.start, shift) for x in some]
    due = sum(a * b for a, b in zip(losses, counts, strict=True)) / sum(counts)
    assert float(loss_of(net, head, batch_states(net, some, layer))) == pytest.approx(due, rel=1e-4)


def test_the_usual_eagle3_of_a_small_real_model_has_the_sizes_of_its_layers(model: Model) -> None:
    spec = replace(model.spec, n_layers=30, n_heads=9, n_kv_heads=3, head_dim=64, d_model=576, vocab=49152)
    shape = usual_shape("eagle3", spec, {})
    assert shape == dict(vocab=4096, kept=8192, n_heads=9, n_kv_heads=3, head_dim=64, d_ff=768, rank=128)
    with torch.device("meta"):
        net = HEADS["eagle3"](d=576, **{**shape, "vocab": 49152})
    assert 2 * (sum(p.numel() for p in net.parameters()) + 49152) < 6.5e6


def test_what_cannot_be_trained_is_one_sentence(model: Model, tmp_path: Path) -> None:
    train_head(model, PROMPTS[:12], replace(ASKED, tokens=50), tmp_path / "there")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "file").touch()
    (tmp_path / "broken").mkdir()
    record = (tmp_path / "there" / training.RUN).read_text()
    (tmp_path / "broken" / training.RUN).write_text(record)
    (tmp_path / "broken" / training.CHECKPOINT).write_bytes(b"no checkpoint")
    few = replace(ASKED, tokens=50)
    for out, prompts, asked, why in (
        ("there", PROMPTS[:12], replace(few, seed=5), "whose seed was 0 and not 5"),
        ("there", PROMPTS[:11], few, "whose prompts was other ones and not these"),
        ("full", PROMPTS, few, "holds other files"),
        ("file", PROMPTS, few, "Nothing can be written"),
        ("broken", PROMPTS[:12], few, "remove it to train from the beginning"),
        ("new", PROMPTS[:1], few, "needs 2 prompts"),
        ("new", [[1] * 31, [2] * 30], few, "needs 2 prompts"),
        ("new", [[1], [99]], few, "token id 99"),
        ("new", PROMPTS, replace(few, kind="medusa", shape={"rank": 4}), "have no rank"),
        ("new", PROMPTS, replace(few, shape={"kept": 14}), "choose fewer"),
    ):
        with pytest.raises(Refusal, match=why) as raised:
            train_head(model, prompts, asked, tmp_path / out)
        assert "\n" not in str(raised.value) and str(raised.value).endswith((".", "one."))
