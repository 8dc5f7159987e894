"""The training scripts: training uses the decoded net, windows keep tasks whole, and training resumes where it stopped."""

from __future__ import annotations

import argparse
import io
import json
import lzma
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import load as load_model
from decodescope.training import acceptance, data, evaluate, losses, mixtures, pack, parts, train
from decodescope.training.losses import Objective
from decodescope.training.net import Net, NetShape, blockwise_attention

ASSETS = Path(__file__).resolve().parents[2] / "assets"
LAB = ASSETS / "models" / "lab"

TINY = NetShape(layers=4, width=16, heads=2, kv_heads=1, head_width=8, inner=24, vocabulary=64, context=64)
PLAN = train.TrainingPlan(96, {16: 0.5, 32: 0.5}, {32: 1.0}, warmup=2, check=1.0)
MIXTURE = {"code": 0.5, "tasks": 0.5}
PLAIN = Objective()


def text(sizes: list[int], chat: bool, seed: int) -> data.CorpusText:
    """Documents of the given sizes. A chat is user mark, marked-free ids, assistant mark, answer, end; others plain ids."""
    r, documents = np.random.default_rng(seed), []
    for size in sizes:
        ids = r.integers(14, 26, size)
        ids[-1] = data.END
        if chat:
            ids[0], ids[size // 2] = data.USER, data.ASSISTANT
        documents.append(ids.astype(np.uint16))
    return data.CorpusText(np.concatenate(documents), np.cumsum(sizes), 3 * sum(sizes), chat)


@pytest.fixture(scope="module")
def texts() -> dict[str, data.CorpusText]:
    r = np.random.default_rng(0)
    return {
        "code": text([int(n) for n in r.integers(5, 200, 80)], False, 1),
        "sums": text([int(n) for n in r.integers(4, 16, 300)], True, 2),
        "long": text([int(n) for n in r.integers(18, 33, 100)], True, 3),
    }


def training(
    texts: dict[str, data.CorpusText], objective: Objective = PLAIN, seed: int = 0, **more: object
) -> train.LanguageTrainer:
    torch.manual_seed(seed)
    return train.LanguageTrainer(
        Net(TINY), texts, PLAN, objective, (0.01, 0.01), seed, mixture=MIXTURE, **more
    )


# ---- the net


@torch.no_grad()
def test_the_net_is_transformers_llama_and_the_engines_decoder():
    net = Net.from_folder(LAB)
    ids = torch.randint(14, 4096, (2, 70), generator=torch.Generator().manual_seed(0))
    ours, close = net(ids), 3e-4  # for logits up to 16; float32 is 1e-4 off float64
    assert torch.allclose(
        ours, AutoModelForCausalLM.from_pretrained(LAB, dtype=torch.float32)(ids).logits, atol=close
    )
    engine = load_model(str(LAB), dtype="float32", device="cpu").decoder
    assert torch.allclose(ours[:1], engine.forward(Feed.causal_chain(ids[0].tolist(), 0), None), atol=close)
    states = net.states(ids)
    assert len(states) == net.shape.layers + 1
    assert torch.equal(states[0], net.model.embed_tokens.weight[ids])
    assert torch.equal(net.head(states[-1]), ours)


@pytest.mark.parametrize("length", [40, 128, 300])
def test_attention_in_blocks_is_attention_and_has_its_gradient(length):
    chance = torch.Generator().manual_seed(length)
    qkv = [
        torch.randn(2, heads, length, 8, generator=chance, dtype=torch.float64, requires_grad=True)
        for heads in (6, 2, 2)
    ]
    ours = blockwise_attention(*qkv)
    theirs = torch.nn.functional.scaled_dot_product_attention(*qkv, is_causal=True, enable_gqa=True)
    assert torch.allclose(ours, theirs, atol=1e-12)
    weight = torch.randn(ours.shape, generator=chance, dtype=torch.float64)
    both = (torch.autograd.grad(y, qkv, weight) for y in (ours, theirs))
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(*both, strict=True))


def test_a_folder_comes_back_as_it_was_written(tmp_path):
    Net.from_folder(LAB).to_folder(tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_size <= (
        LAB / "model.safetensors"
    ).stat().st_size + 1024
    again = Net.from_folder(tmp_path).state_dict()
    assert all(torch.equal(w, again[k]) for k, w in Net.from_folder(LAB).state_dict().items())
    assert {f.name for f in tmp_path.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
    }
    said, before = (json.loads((f / "config.json").read_text()) for f in (tmp_path, LAB))
    assert {k: v for k, v in said.items() if k != "transformers_version"} == {
        k: v for k, v in before.items() if k != "transformers_version"
    }


def test_an_untied_model_is_refused():
    config = json.loads((LAB / "config.json").read_text())
    with pytest.raises(ValueError, match="tied"):
        NetShape.from_config(config | {"tie_word_embeddings": False})


@torch.no_grad()
def test_text_written_with_a_cache_is_the_text_without():
    torch.manual_seed(0)
    net, ids = Net(TINY), torch.randint(14, 64, (3, 5))
    for weight in net.parameters():
        weight.mul_(8 if weight.ndim == 2 else 1)  # makes distributions that are not flat
    written = net.write(ids, 20, temperature=0.0)
    assert torch.equal(net(written)[:, 4:-1].argmax(2), written[:, 5:])
    drawn = [net.write(ids, 20, 1.0, torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    ended = int(written[0, 9])
    first = written[0, 5:].tolist().index(ended)
    assert torch.equal(net.write(ids[:1], 20, 0.0, stop=ended), written[:1, : 5 + first + 1])


# ---- data


def test_special_tokens_count_in_chats_alone():
    marks = "<|user|>\nHi<|end|>\n<|assistant|>\nYes.<|end|>\n"
    made = data.encode_documents(
        [
            {"split": "train", "kind": "talks", "text": marks, "chat": True},
            {"split": "train", "kind": "code", "text": marks},
        ]
    )
    assert [i for i in made["train", "talks"].ids if i < 14] == [2, 0, 3, 0, 0]
    assert [i for i in made["train", "code"].ids if i < 14] == [0], "only the end of the document"
    assert made["train", "code"].size == len(marks.encode())
    with pytest.raises(ValueError, match="two kinds"):
        data.encode_documents(
            [{"split": "train", "kind": "code", "text": "x", "chat": c} for c in (True, False)]
        )


def test_windows_keep_tasks_whole_and_have_no_gaps(texts):
    mixer = data.Mixer(texts, MIXTURE, [16, 32], 0)
    whole = {tuple(t.ids[a:b].tolist()) for k, t in texts.items() if t.chat for a, b in t.bounds}
    seen: Counter[int] = Counter()
    for length in (16, 32):
        for row in mixer.rows(length, 60).tolist():
            assert len(row) == length + 1
            for at in [i for i, token in enumerate(row) if token == data.USER]:
                size = next((n for n in range(4, length + 2 - at) if tuple(row[at : at + n]) in whole), 0)
                assert size, "a task was cut"
                seen[size] += 1
    assert sum(n for size, n in seen.items() if size > 17) > 20, (
        "the test needs tasks that only long windows hold"
    )
    assert sum(n for size, n in seen.items() if size < 17) > 20


def test_the_mixture_is_kept(texts):
    mixer = data.Mixer(texts, MIXTURE, [32], 0)
    mixer.rows(32, 500)
    taken: Counter[str] = Counter()
    for stream in mixer.streams:
        taken[stream.name.split("/")[0]] += stream.taken
    for kind, share in {"code": 0.5, "sums": 0.25, "long": 0.25}.items():
        assert taken[kind] / taken.total() == pytest.approx(share, abs=0.02)
    assert max(s.epoch for s in mixer.streams) > 0, "the test needs text that is read twice"


def test_the_mixer_goes_on_where_it_stood(texts):
    one, two = (data.Mixer(texts, MIXTURE, [16, 32], 0) for _ in range(2))
    one.rows(16, 31), one.rows(32, 17)
    two.load_state(one.state())
    assert torch.equal(one.rows(32, 40), two.rows(32, 40))
    assert not torch.equal(one.rows(16, 9), data.Mixer(texts, MIXTURE, [16, 32], 1).rows(16, 9))


@pytest.mark.parametrize(
    "begun", [{"new": {"long"}}, {"shares": {"code": 0.9, "tasks": 0.1}}], ids=["new kind", "new shares"]
)
def test_what_changes_in_a_mixture_has_nothing_to_catch_up_with(texts, begun):
    known = {kind: text for kind, text in texts.items() if kind not in begun.get("new", ())}
    before = data.Mixer(known, begun.get("shares", MIXTURE), [16, 32], 0)
    before.rows(32, 400)
    after = data.Mixer(texts, MIXTURE, [16, 32], 0)
    after.load_state(before.state())
    streams = {s.name: (s.taken, s.share) for s in after.streams}
    after.rows(32, 100)
    for stream in after.streams:
        taken, share = streams[stream.name]
        assert 0.5 < (stream.taken - taken) / (100 * 33 * share) < 1.5


def test_a_mixture_without_plain_text_is_refused(texts):
    with pytest.raises(ValueError, match="plain text"):
        data.Mixer(texts, {"tasks": 1.0}, [16], 0)


def test_answers_are_the_assistants_tokens():
    row = torch.tensor([[20, 0, 2, 21, 0, 3, 22, 23, 0, 24, 2, 25, 0, 3, 26]])
    assert data.answer_mask(row).int().tolist() == [[0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1]]


# ---- losses


def test_the_rate_rises_stays_and_falls_to_nothing():
    assert [train.rate(i, 4, 1.0) for i in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert [train.rate(100, 4, left) for left in (1.0, 0.5, 0.0, -0.1)] == [1.0, 0.5, 0.0, 0.0]


def test_dropout_rises_with_depth_and_a_dropped_layer_changes_nothing():
    rates = losses.dropout_rates(8, 0.1)
    assert rates[0] == 0 and rates[-1] == pytest.approx(0.1) and bool((rates.diff() > 0).all())
    keep = losses.draw_layer_mask(rates, 40_000, torch.Generator().manual_seed(0))
    assert torch.allclose(1 - keep.mean(1), rates, atol=0.01)
    torch.manual_seed(0)
    net, ids, keep = Net(TINY), torch.randint(14, 64, (2, 9)), torch.ones(4, 2)
    keep[2, 1] = 0
    states, plain = net.states(ids, keep=keep), net.states(ids)
    assert torch.equal(states[3][1], states[2][1]) and torch.allclose(states[-1][0], plain[-1][0])
    assert not torch.allclose(states[-1][1], plain[-1][1])


def test_an_early_exit_teaches_the_layers_below_it_and_the_shared_head():
    torch.manual_seed(0)
    net, rows = Net(TINY), torch.randint(14, 64, (4, 17))
    for exit_at in range(3):
        grads = []
        for weight in (0.0, 0.5):
            net.zero_grad()
            loss, figures = losses.loss_of(
                net, rows, torch.ones(4, 16), torch.tensor(exit_at), None, None, Objective(exits=weight)
            )
            loss.backward()
            grads.append({k: w.grad.clone() for k, w in net.named_parameters()})
        assert figures[2] > 0
        changed = {k for k in grads[0] if not torch.allclose(grads[0][k], grads[1][k], atol=1e-6)}
        layers = {int(k.split(".")[2]) for k in changed if ".layers." in k}
        assert layers == set(range(exit_at + 1))
        assert {"model.norm.weight", "model.embed_tokens.weight"} <= changed


def test_answers_weigh_more_than_what_was_asked(texts):
    torch.manual_seed(0)
    net, rows = Net(TINY), data.Mixer(texts, MIXTURE, [16], 0).rows(16, 40)
    told = data.answer_mask(rows)[:, 1:]
    assert 0 < told.sum() < told.numel()
    with torch.no_grad():
        nats = losses.token_loss(net(rows[:, :-1]), rows)
        loss, figures = losses.loss_of(net, rows, 1 + told.float(), torch.tensor(0), None, None, Objective())
    assert float(loss) == pytest.approx(
        float((nats.sum() + nats[told].sum()) / (told.numel() + told.sum())), rel=0.01
    )
    assert float(figures[1]) == pytest.approx(float(nats[told].mean()), rel=0.01)


@pytest.mark.parametrize("name", losses.DIVERGENCES)
def test_a_divergence_is_zero_at_the_target_and_leads_there(name):
    g = torch.Generator().manual_seed(0)
    p = torch.randn(5, 11, generator=g, dtype=torch.float64).log_softmax(1)
    q = torch.randn(5, 11, generator=g, dtype=torch.float64).requires_grad_()
    assert losses.divergence(name, p, p).abs().max() < 1e-12
    before = losses.divergence(name, p, q.log_softmax(1))
    assert (before > 0).all()
    overlap = torch.minimum(p.exp(), q.log_softmax(1).exp()).sum(1)
    if name in ("tvd", "tvd++"):
        assert torch.allclose(before, 1 - overlap)
    for _ in range(400):
        (grad,) = torch.autograd.grad(losses.divergence(name, p, q.log_softmax(1)).sum(), q)
        q = (q - 0.5 * grad).detach().requires_grad_()
    assert (torch.minimum(p.exp(), q.log_softmax(1).exp()).sum(1) > overlap).all(), (
        "more drafted tokens are accepted"
    )


def test_divergences_have_the_values_of_their_definitions():
    p, q = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.25, 0.5, 0.25])
    kl = 0.25 * np.log(2)
    m = (p + q) / 2
    jsd = float(((p * (p / m).log()).sum() + (q * (q / m).log()).sum()) / 2)
    for name, value in {"fkl": kl, "rkl": kl, "jsd": jsd, "tvd": 0.25, "tvd++": 0.25}.items():
        assert float(losses.divergence(name, p.log(), q.log())) == pytest.approx(value, rel=1e-5)
    lopsided = torch.tensor([0.9, 0.05, 0.05])
    fkl, rkl = (float(losses.divergence(n, p.log(), lopsided.log())) for n in ("fkl", "rkl"))
    assert fkl == pytest.approx(float((p * (p / lopsided).log()).sum()))
    assert rkl == pytest.approx(float((lopsided * (lopsided / p).log()).sum()))
    with pytest.raises(ValueError, match=r"fkl, rkl, jsd, tvd, tvd\+\+"):
        Objective(divergence="kl")


def laws() -> tuple[Tensor, Tensor]:
    """Log-probabilities of a target and logits of its draft, float64 [6, 9]; no token is as likely to both."""
    g = torch.Generator().manual_seed(0)
    p, logits = (torch.randn(6, 9, generator=g, dtype=torch.float64) for _ in range(2))
    return p.log_softmax(1), logits


def gradient(name: str, p: Tensor, logits: Tensor) -> Tensor:
    """Gradient of the mean divergence with respect to the draft's logits."""
    logits = logits.clone().requires_grad_()
    return torch.autograd.grad(losses.divergence(name, p, logits.log_softmax(1)).mean(), logits)[0]


def test_the_gradient_of_tvd_is_that_of_a_reward_for_tokens_of_which_the_draft_says_too_little():
    """Lemma 1 of TVD++: by autograd, by finite differences, and summed over all tokens that could be drawn."""
    p, logits = laws()
    q = logits.softmax(1)
    assert (p.exp() - q).abs().min() > 1e-4, "the test needs laws that are nowhere alike"
    by_hand = torch.zeros_like(logits)
    for i in range(6):
        for x in range(9):
            reward = float(q[i, x] < p[i, x].exp())
            # - E_q[r grad log q]
            by_hand[i] -= q[i, x] * reward * (torch.eye(9, dtype=torch.float64)[x] - q[i]) / 6
    assert torch.allclose(gradient("tvd", p, logits), by_hand, rtol=0, atol=1e-12)
    differences = torch.zeros_like(logits)
    for at in np.ndindex(6, 9):
        d = torch.zeros_like(logits)
        d[at] = 1e-6
        up, down = (losses.divergence("tvd", p, (logits + s * d).log_softmax(1)).mean() for s in (1, -1))
        differences[at] = (up - down) / 2e-6
    assert torch.allclose(differences, by_hand, rtol=0, atol=1e-8)


def test_tvd_plus_plus_follows_the_advantage_which_is_tvd_over_the_deviation_of_its_reward():
    p, logits = laws()
    q = logits.softmax(1)
    reward = (q < p.exp()).double()
    drawn = (q / 6).flatten()  # the chance of each token at each place of the batch
    mean = float((drawn * reward.flatten()).sum())
    deviation = float((drawn * (reward.flatten() - mean) ** 2).sum() ** 0.5)
    assert 0.1 < deviation < 0.6
    advantage = losses.advantage(p, q.log())
    assert torch.allclose(advantage, (reward - mean) / deviation)
    assert float((drawn * advantage.flatten()).sum()) == pytest.approx(0, abs=1e-12)
    assert float((drawn * advantage.flatten() ** 2).sum()) == pytest.approx(1, abs=1e-12)
    assert torch.allclose(
        gradient("tvd++", p, logits), gradient("tvd", p, logits) / deviation, rtol=0, atol=1e-12
    )
    assert torch.equal(losses.divergence("tvd++", p, q.log()), losses.divergence("tvd", p, q.log())), (
        "the value is tvd's"
    )
    assert torch.equal(losses.advantage(p, p), torch.zeros_like(p)), "nothing is earned at the target"


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        (dict(on_policy=0.6, target_text=0.5), "at most 1"),
        (dict(target_text=-0.1), "from 0 to 1"),
        (dict(hottest=-1.0), "or more"),
    ],
)
def test_shares_and_temperatures_that_cannot_be_are_refused(shares, said):
    with pytest.raises(ValueError, match=said):
        Objective(**shares)


def test_own_text_begins_as_the_corpus_does():
    torch.manual_seed(0)
    rows = torch.randint(14, 64, (8, 33))
    mixed, own = losses.own_text(Net(TINY), rows, 0.25, 0.25, torch.Generator().manual_seed(0))
    assert own == 2 and mixed.shape == rows.shape
    assert torch.equal(mixed[:6], rows[:6]) and torch.equal(mixed[:, :8], rows[:, :8])
    assert not torch.equal(mixed[6:], rows[6:])


def test_the_targets_text_begins_as_the_corpus_does_and_is_the_targets():
    torch.manual_seed(0)
    target, rows = Net(TINY), torch.randint(14, 64, (8, 33))
    for weight in target.parameters():
        weight.data.mul_(6 if weight.ndim == 2 else 1)
    chance, twin = (torch.Generator().manual_seed(0) for _ in range(2))
    greedy = losses.target_text(target, rows, Objective(target_text=0.25, hottest=0.0), 0.25, chance, None)
    assert torch.equal(greedy[2:], rows[2:]) and torch.equal(greedy[:, :8], rows[:, :8])
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(greedy[:2], target.write(rows[:2, :8], 25, 0.0))
    assert not torch.equal(greedy[:2], rows[:2])
    hot = losses.target_text(target, rows, Objective(target_text=1.0, hottest=2.0), 0.25, twin, twin)
    assert (hot[:, 8:] != rows[:, 8:]).any(1).all() and not torch.equal(hot[:2], greedy[:2])


# ---- training


def weights(run: train.LanguageTrainer) -> Tensor:
    return torch.cat([w.detach().flatten() for w in run.net.parameters()])


@pytest.mark.parametrize("kind", ["plain", "exits", "distilled", "on the target's text"])
def test_a_training_that_was_stopped_ends_as_one_that_was_not(texts, tmp_path, kind):
    torch.manual_seed(9)
    objective = {
        "plain": Objective(),
        "exits": Objective(exits=0.3, dropout=0.2),
        "distilled": Objective(distil=0.5, on_policy=0.5),
        "on the target's text": Objective(distil=0.5, divergence="tvd++", target_text=1.0),
    }[kind]
    teacher = Net(TINY) if objective.needs_target else None
    whole = training(texts, objective, teacher=teacher)
    start = weights(whole)
    for _ in range(6):
        whole.update()
    first = training(texts, objective, teacher=teacher)
    for _ in range(3):
        first.update()
    train.save(first, tmp_path / "x.pt")
    second = training(texts, objective, seed=0, teacher=teacher)
    second.load_state(torch.load(tmp_path / "x.pt"))
    for _ in range(3):
        second.update()
    assert second.tokens == whole.tokens and second.place == whole.place
    assert torch.equal(weights(second), weights(whole))
    assert (weights(whole) - start).abs().max() > 1e-3


def test_training_learns(texts):
    run = training(texts)
    windows = data.windows({"sums": texts["sums"]}, 16, 16)
    before = train.held_out_loss(run.net, windows)
    for _ in range(40):
        run.update()
    assert train.held_out_loss(run.net, windows) < before - 0.3


@pytest.mark.nightly
@pytest.mark.parametrize("divergence", ["tvd", "tvd++"])
def test_a_distilled_draft_comes_nearer_to_its_target(texts, divergence):
    torch.manual_seed(5)
    teacher = Net(TINY)
    for weight in teacher.parameters():
        weight.data.mul_(6 if weight.ndim == 2 else 1)
    run = training(texts, Objective(divergence=divergence, distil=1.0, on_policy=0.5), teacher=teacher)
    rows = data.windows({"code": texts["code"]}, 17, 32)

    @torch.no_grad()
    def distance() -> float:
        p, q = (losses.teacher_of(n, rows) for n in (teacher, run.net))
        return float(losses.divergence("tvd", p, q).mean())

    before = distance()
    for _ in range(30):
        run.update()
    assert distance() < 0.9 * before


@pytest.mark.nightly
def test_the_targets_text_alone_makes_a_draft_that_is_accepted_more_often(texts):
    """Compare FastDraft's last stage with an equally long first stage.

    Sequence-level distillation needs no distribution of the target.
    """
    torch.manual_seed(5)
    teacher = Net(TINY)
    for weight in teacher.parameters():
        weight.data.mul_(6 if weight.ndim == 2 else 1)
    rows = data.windows({"code": texts["code"]}, 17, 32)
    held = losses.target_text(
        teacher, rows, Objective(target_text=1.0), 0.25, torch.Generator().manual_seed(1), None
    )
    accepted = []
    for share in (0.0, 1.0):
        run = training(texts, Objective(target_text=share), teacher=teacher)
        for _ in range(25):
            run.update()
        with torch.no_grad():
            p, q = (losses.teacher_of(n, held) for n in (teacher, run.net))
            accepted.append(float(1 - losses.divergence("tvd", p, q).mean()))
    assert accepted[1] > 1.2 * accepted[0], accepted


@pytest.fixture
def workshop(texts, tmp_path, monkeypatch):
    """The command line with tiny sizes: call it with arguments, get its build folder."""
    for module, name, value in [
        (train, "BUILD", tmp_path),
        (train, "MODELS", tmp_path / "models"),
        (mixtures, "MIXTURES", dict.fromkeys(["lab", "lab-draft"], MIXTURE)),
        (train, "RECORDS", tmp_path / "records"),
        (train, "SHAPES", {"lab": TINY, "lab-draft": replace(TINY, layers=2)}),
        (train, "PLANS", {"cpu": PLAN}),
        (train, "RATES", dict.fromkeys(train.SHAPES, (0.01, 0.01))),
    ]:
        monkeypatch.setattr(module, name, value)
    data.save(
        {(split, kind): t for split in ("train", "valid") for kind, t in texts.items()}, tmp_path / "text.npz"
    )
    monkeypatch.setattr(
        train, "measure_and_log", lambda *_: None
    )  # its windows are longer than these models' context
    monkeypatch.setattr(train.signal, "signal", lambda *_: None)

    def call(*args: str) -> Path:
        text = str(tmp_path / "text.npz")
        monkeypatch.setattr(
            sys, "argv", ["train.py", *args, "--device", "cpu", "--threads", "1", "--text", text]
        )
        threads = torch.get_num_threads()
        train.main()
        torch.set_num_threads(threads)
        return tmp_path

    return call


def test_a_cooldown_writes_the_folder_and_leaves_the_constant_part_as_it_was(workshop, capsys):
    folder = workshop("lab", "--tokens", "0.001")
    steady = (folder / "lab.pt").read_bytes()
    assert not (folder / "models").exists(), "the constant part writes no model"
    workshop("lab", "--cooldown", "0.0005")
    assert (folder / "lab.pt").read_bytes() == steady
    made, (record,) = folder / "models" / "lab", json.loads((folder / "records" / "lab.json").read_text())
    assert {f.name for f in made.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert 1500 <= record["tokens"] < 1800 and record["objective"]["exits"] > 0
    cooled = torch.load(folder / "lab-cooldown.pt")
    assert cooled["cooled"] >= cooled["cooldown"] == 500
    workshop("lab", "--tokens", "0.0015")
    assert torch.load(folder / "lab.pt")["tokens"] >= 1500, "the constant part goes on"
    workshop("lab", "--cooldown", "0.0003")
    assert len(json.loads((folder / "records" / "lab.json").read_text())) == 1, (
        "a later branch takes the place of the first"
    )
    workshop("lab", "--from", str(made), "--cooldown", "0.0003", "--tokens", "0.0003", "--fresh")
    both = json.loads((folder / "records" / "lab.json").read_text())
    assert [r["source"] for r in both] == [None, str(made)], "what the weights began with stays in the record"
    assert "goes on from lab.pt at 0.00M tokens" in capsys.readouterr().out


def test_a_cooldown_that_was_stopped_goes_on(workshop):
    folder = workshop("lab", "--tokens", "0.0005")
    workshop("lab", "--cooldown", "0.05", "--minutes", "0.00001")
    assert not (folder / "models").exists()
    state = torch.load(folder / "lab-cooldown.pt")
    spent = state["cooldown"] - 150 - state["cooled"]  # as if all but 150 tokens were done
    torch.save(
        state | {"cooled": state["cooled"] + spent, "tokens": state["tokens"] + spent},
        folder / "lab-cooldown.pt",
    )
    workshop("lab", "--cooldown", "0.05")
    assert torch.load(folder / "lab-cooldown.pt")["step"] == state["step"] + 2
    assert (folder / "models" / "lab" / "model.safetensors").exists()


def test_a_cooldown_of_an_older_state_is_not_gone_on_with(workshop):
    folder = workshop("lab", "--tokens", "0.0005")
    workshop("lab", "--cooldown", "0.05", "--minutes", "0.00001")
    workshop("lab", "--tokens", "0.001")
    workshop("lab", "--cooldown", "0.05", "--minutes", "0.00001")
    assert torch.load(folder / "lab-cooldown.pt")["tokens"] >= 1000


def test_a_missing_corpus_is_said_in_a_sentence(workshop, tmp_path):
    (tmp_path / "text.npz").unlink()
    with pytest.raises(SystemExit, match="build the corpus first"):
        workshop("lab", "--tokens", "0.001")


def test_a_draft_needs_its_target(workshop):
    with pytest.raises(SystemExit, match="--teacher"):
        workshop("lab-draft", "--tokens", "0.001")


def test_text_of_the_target_needs_the_target(workshop):
    with pytest.raises(SystemExit, match="--teacher assets/models/lab, or --target-text 0"):
        workshop("lab-draft", "--tokens", "0.001", "--distil", "0", "--target-text", "0.5")


def test_a_checkpoint_of_an_earlier_version_is_refused(workshop, tmp_path):
    torch.save({"model": {}}, tmp_path / "lab.pt")
    with pytest.raises(SystemExit, match="--fresh"):
        workshop("lab", "--tokens", "0.001")


def test_minutes_bound_both_phases(texts, monkeypatch):
    """`--within`: the full rate first, then decay to zero by the clock, with long windows in the second phase."""
    clock, rates, phases = [0.0], [], []
    monkeypatch.setattr(train.time, "time", lambda: clock[0])
    monkeypatch.setattr(train.signal, "signal", lambda *_: None)
    run = training(texts)

    def step(left: float, cooling: bool):
        clock[0] += 6
        rates.append(left)
        phases.append(cooling)
        return torch.zeros(3), 96

    monkeypatch.setattr(run, "update", step)
    args = argparse.Namespace(within=10.0, tokens=None, minutes=None)
    assert train.run(run, args, None, {})
    assert len(rates) == 100 and rates[0] == 1 and 0 < rates[-1] < 0.05
    assert phases == [False] * phases.count(False) + [True] * phases.count(True)
    assert phases.count(False) == pytest.approx(100 * train.STEADY_SHARE, abs=2)


def test_long_windows_can_come_at_the_end_of_a_cooldown_alone(texts, monkeypatch):
    monkeypatch.setattr(train.signal, "signal", lambda *_: None)
    run, phases = training(texts), []
    run.cooldown, run.long = 1000, 0.3

    def step(left: float, cooling: bool):
        run.cooled += 10
        phases.append((left, cooling))
        return torch.zeros(3), 10

    monkeypatch.setattr(run, "update", step)
    assert train.run(run, argparse.Namespace(within=None, tokens=None, minutes=None), None, {})
    assert len(phases) == 100 and all(cooling == (left <= 0.3) for left, cooling in phases)


# ---- acceptance


def test_greedy_tau_is_that_of_drafting_and_checking():
    torch.manual_seed(3)
    target, draft, prompt = Net(TINY), Net(TINY), torch.randint(14, 64, (1, 6))
    for a, b in zip(target.parameters(), draft.parameters(), strict=True):
        a.data.mul_(6 if a.ndim == 2 else 1)
        b.data.copy_(a + 0.7 * a.std() * torch.randn(a.shape) if a.ndim == 2 else a)
    written = target.write(prompt, 50, 0.0)
    with torch.autocast("cpu", torch.bfloat16):
        told = target(written[:, :-1]).argmax(2)[0].tolist()
    assert told[5:] == written[0, 6:].tolist(), "the test needs text without numerical ties"
    runs, at = [], 6
    while at - 6 + 5 < 50:
        with torch.autocast("cpu", torch.bfloat16):
            drafted = draft.write(written[:, :at], 5, 0.0)[0, at:].tolist()
        run = next((i for i in range(5) if drafted[i] != written[0, at + i]), 5)
        runs.append(run + 1)
        at += run + 1
    assert len(set(runs)) > 2, "the test needs acceptances and refusals"
    chance = acceptance.acceptance_chances(target, draft, written, 0.0)[:, 5:]
    assert acceptance.tau(chance) == pytest.approx(sum(runs) / len(runs))


def test_the_chance_of_a_drafted_token_averages_to_the_overlap():
    torch.manual_seed(0)
    target, draft = Net(TINY), Net(TINY)
    for weight in [*target.parameters(), *draft.parameters()]:
        weight.data.mul_(4 if weight.ndim == 2 else 1)
    rows = torch.randint(14, 64, (1, 4))
    p, q = (losses.teacher_of(n, torch.cat((rows, rows[:, :1]), 1))[0, -1].exp() for n in (target, draft))
    every = torch.cat([torch.cat((rows, torch.tensor([[x]])), 1) for x in range(64)])
    chance = acceptance.acceptance_chances(target, draft, every, 1.0)[:, -1]
    assert 0.1 < float((p * chance).sum()) < 0.95
    assert float((p * chance).sum()) == pytest.approx(float(torch.minimum(p, q).sum()), abs=1e-4)


def test_tau_counts_accepted_tokens_and_the_targets_own():
    assert acceptance.tau(torch.ones(2, 60)) == 6
    assert acceptance.tau(torch.zeros(2, 60)) == 1
    assert acceptance.tau(torch.tensor([[1.0, 0.0] * 30])) == 2
    half = acceptance.tau(torch.full((40, 500), 0.5))
    assert half == pytest.approx(sum(0.5**i for i in range(6)), abs=0.05)


# ---- the card


def test_the_card_has_every_model_every_kind_and_whole_tables(texts, tmp_path, monkeypatch):
    shape, runs = replace(TINY, layers=2, vocabulary=4096, context=2048), []
    monkeypatch.setattr(evaluate, "NAMES", ("lab", "lab-draft"))
    for name in evaluate.NAMES:
        torch.manual_seed(0)
        net = Net(shape)
        net.to_folder(tmp_path / name)
        runs = [
            {
                "origin": f"first-{name}",
                "source": None,
                "command": f"{name} --tokens 1",
                "steps": 9,
                "tokens": 900_000,
                "minutes": 1.0,
                "device": "cpu",
                "mixture": MIXTURE,
                "objective": {"answers": 2.0, "distil": 0.0},
                "held_out": [[500_000, {"all": 5.0}], [900_000, {"all": 4.0}]],
            },
            {
                "origin": "7",
                "source": "x",
                "command": f"{name} --cooldown 2",
                "steps": 19,
                "tokens": 1_900_000,
                "minutes": 2.0,
                "device": "cuda",
                "mixture": MIXTURE,
                "objective": {"answers": 2.0, "distil": 0.9, "divergence": "tvd"},
                "held_out": [
                    [i * 100_000, {"code": 4 - i / 10} | ({"tasks": 3.0} if i else {})] for i in range(20)
                ],
            },
        ]
        (tmp_path / f"{name}.json").write_text(json.dumps(runs))
    questions = [
        {"category": c, "turns": ["Say yes."] * n, "reference": ["yes"] * n, "scorer": "exact"}
        for c, n in (("chat", 2), ("copy", 1), ("copy", 1))
    ]
    (tmp_path / "bench.jsonl").write_text("\n".join(json.dumps(q) for q in questions))
    for name, value in [
        ("MODELS", tmp_path),
        ("RECORDS", tmp_path),
        ("BENCH", tmp_path / "bench.jsonl"),
        ("ANSWER", 8),
        ("DIVERGENCES", tmp_path / "none.md"),
        ("MIXTURE", MIXTURE),
    ]:
        monkeypatch.setattr(evaluate, name, value)
    monkeypatch.setattr(data, "load", lambda split: texts)
    found = evaluate.measure(1, 2)
    assert found["tasks"]["lab"] == {"chat": (0.0, 1), "copy": (0.0, 2)}
    assert found["fit"]["lab-draft", "code"]["overlap"] == pytest.approx(1, abs=0.01), (
        "the same weights agree"
    )
    assert found["fit"]["lab-draft", "code"]["tau greedy"] > 5
    assert found["exits"][-1][1] == 1 > found["exits"][0][1]
    greedy, drawn = found["drafting"]["greedy"], found["drafting"]["temperature"]
    assert {name for name, _ in greedy} == {"prompt_lookup", "lab-draft", evaluate.AGAIN}, "it has no heads"
    assert greedy["lab-draft", "code"] > 4 > greedy["prompt_lookup", "code"] >= 1, "the same weights"
    assert greedy[evaluate.AGAIN, "code"] > drawn[evaluate.AGAIN, "code"], "what is drawn does not go round"
    page = evaluate.card(found)
    for name in evaluate.NAMES:
        assert f"## {name}\n" in page and f"training.train {name} --cooldown 2" in page
        assert f"| `{name}` | {sum(w.numel() for w in net.parameters()):,} | 2.80 M |" in page
    for block in page.split("\n\n"):
        widths = {line.count("|") for line in block.splitlines() if line.startswith("|")}
        assert len(widths) <= 1, f"a table with rows of different length: {block}"
    assert f"| 4-grams said again | {greedy[evaluate.AGAIN, 'code']:.0%} |" in page
    assert "| tasks |  | 3.000 |" in page, "a kind that was not read from the beginning"
    assert "divergence tvd" in page and "1.90 M" in page and "chat (0.00), copy (0.00)" in page


# ---- travelling


def test_parts_join_to_what_was_split(tmp_path):
    file, bag = tmp_path / "w.bin", tmp_path / "bag"
    content = bytes(range(256)) * 11
    file.write_bytes(content)
    written = parts.split(file, bag, limit=1000)
    assert [p.stat().st_size for p in written[:-1]] == [1000, 1000, 816]
    file.unlink()
    parts.join(bag, file)
    assert file.read_bytes() == content
    (bag / "w.bin.1").write_bytes(b"x" * 1000)
    with pytest.raises(ValueError, match="hash differs"):
        parts.join(bag, file)
    (bag / "w.bin.1").unlink()
    with pytest.raises(ValueError, match=r"w\.bin\.1 are not in"):
        parts.join(bag, file)
    with pytest.raises(ValueError, match="There is no"):
        parts.join(tmp_path, file)


def test_packed_text_comes_back(texts):
    some = {(split, "code"): texts["code"] for split in ("train", "valid")}
    back = pack.unpack(pack.pack(some))
    for key, t in some.items():
        assert np.array_equal(back[key].ids, t.ids) and np.array_equal(back[key].ends, t.ends)
        assert (back[key].size, back[key].chat) == (t.size, t.chat)


def test_packed_text_keeps_its_limit_in_whole_documents(texts):
    some = {("train", "code"): texts["code"], ("valid", "code"): pack.cut(texts["code"], 0.05)}
    limit = len(pack.pack(some)) * 2 // 3
    packed = pack.pack(some, limit)
    back = pack.unpack(packed)
    assert limit * 0.7 < len(packed) <= limit
    cut = back["train", "code"]
    assert 0 < len(cut.ends) < len(texts["code"].ends) and cut.ends[-1] == len(cut.ids)
    assert np.array_equal(cut.ids, texts["code"].ids[: len(cut.ids)])
    assert np.array_equal(back["valid", "code"].ids, some["valid", "code"].ids), "held-out text is never cut"
    assert lzma.decompress(packed) and np.load(io.BytesIO(lzma.decompress(packed))).files
