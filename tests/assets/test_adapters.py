"""Training of adapters: what one pass reads, what each adapter learns, and what is written to the folder.

One pass reads a text and guesses for its blocks. Trajectories are Jacobi's. The adapter learns to jump. The base model does not
change. The written files are the net that was trained.
"""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from cyclic import sharp
from torch import Tensor

from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.adaptive_depth.skipdecode import SkipDecode
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.methods.strategies.jacobi import Jacobi
from decodescope.engine.model.checkpoint.adapter import write
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import fingerprint, load
from decodescope.training import adapter_training, cllm, ditto, hyperfit, lud, skipdecode
from decodescope.training.cacheparts import train
from decodescope.training.lowrank import adapter_tensors, add_low_rank, enable_deltas
from decodescope.training.net import Net

PROMPT, NEW, BLOCK = 6, 12, 4
NEVER = 99  # an id that is not there


def net() -> Net:
    """A random net with sharp logits, for tests to change."""
    return copy.deepcopy(sharp())


def prompts(count: int = 5) -> Tensor:
    """int64 [count, PROMPT]."""
    return torch.randint(13, (count, PROMPT), generator=torch.Generator().manual_seed(2))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use short texts that end only at their length limit."""
    for name, value in dict(
        PROMPT=PROMPT, NEW=NEW, BLOCK=BLOCK, END=NEVER, SAME=NEVER, ROWS=4, WINDOWS=4
    ).items():
        for module in (adapter_training, cllm, lud):
            monkeypatch.setattr(module, name, value, raising=False)


@torch.no_grad()
def test_one_pass_reads_a_text_and_the_guesses_of_each_block_as_if_that_stood_alone() -> None:
    model, length = net(), PROMPT + NEW
    text, guessed = torch.randint(13, (2, length)), torch.randint(13, (2, NEW))
    places = torch.cat((torch.arange(length), torch.arange(PROMPT, length)))
    both, _ = cllm.masked_states(model, torch.cat((text, guessed), 1), places, cllm.mask(PROMPT, NEW, BLOCK))
    alone = model.model.norm(model.states(text)[-1])
    assert torch.allclose(both[:, :length], alone, atol=1e-5)
    for first in range(0, NEW, BLOCK):
        mixed = torch.cat((text[:, : PROMPT + first], guessed[:, first : first + BLOCK]), 1)
        wanted = model.model.norm(model.states(mixed)[-1])[:, PROMPT + first :]
        assert torch.allclose(both[:, length + first : length + first + BLOCK], wanted, atol=1e-5)


def test_trajectories_are_jacobi_s_and_take_as_many_passes() -> None:
    model, starts = net(), prompts()
    made = cllm.collect_trajectories(model, starts, 3, BLOCK, NEW)
    assert made.texts.equal(model.write(starts, NEW, 0.0)) and len(made.points) == BLOCK
    needed = []
    for row, text in enumerate(made.texts):
        for block in range(NEW // BLOCK):
            begun, at = text[: PROMPT + block * BLOCK], slice(block * BLOCK, (block + 1) * BLOCK)
            guesses = made.points[0, row, at].long()
            for step in range(1, BLOCK):
                after = model(torch.cat((begun, guesses))[None])[0, -BLOCK - 1 : -1].argmax(1)
                guesses = after
                assert guesses.equal(made.points[step, row, at].long())
                assert guesses[:step].equal(text[PROMPT:][at][:step]), "so many are final"
            right = [
                bool((made.points[j, row, at][:-1] == text[PROMPT:][at][:-1]).all()) for j in range(BLOCK)
            ]
            needed.append(right.index(True) + 1)
    assert cllm.mean_passes(made, BLOCK) == (pytest.approx(sum(needed) / len(needed)), len(needed))
    assert 1 < sum(needed) / len(needed) <= BLOCK, "neither all at once nor without an end"


def test_passes_are_those_of_the_strategy(tmp_path: Path) -> None:
    from decodescope.engine import Method, Session

    net().to_folder(tmp_path / "m")
    model, first = load(tmp_path / "m", "float32", "cpu"), [0] * NEW
    model.stop_tokens = []
    starts = prompts(3)
    counted = []
    for start in starts:
        session = Session(
            model,
            Method(strategy=Jacobi(block=BLOCK, initial_guess="zero")),
            start.tolist(),
            max_new_tokens=NEW,
        )
        counted.append(sum(1 for _ in session.stream()))
    trained = Net.from_folder(tmp_path / "m")
    with pytest.MonkeyPatch.context() as here:
        here.setattr(cllm, "draw_guesses", lambda texts, new, draw: torch.tensor([first] * len(texts)))
        mean, blocks = cllm.mean_passes(cllm.collect_trajectories(trained, starts, 0, BLOCK, NEW), BLOCK)
    assert blocks == 3 * NEW // BLOCK and sum(counted) == pytest.approx(mean * blocks)


def test_the_consistency_of_a_fixed_point_is_nothing_and_of_guesses_it_falls() -> None:
    part = cllm.ConsistencyAdapter(net(), 0, texts=8)
    part.known = cllm.collect_trajectories(part.net, prompts(8), 1, BLOCK, NEW)
    rows = torch.arange(4)
    texts, counted = part.known.texts[rows], part.known.counted[rows]
    assert part.losses(texts, counted, texts[:, PROMPT:])[0].item() == 0, "no guess is wrong"
    point = part.known.points[0, rows].long()
    before = {name: x.clone() for name, x in part.net.named_parameters() if not name.endswith((".A", ".B"))}
    with torch.no_grad():
        first = float(part.losses(texts, counted, point)[0])
    part.lr = 2e-2
    assert train(part, 60, 60, lambda said: None) == 60
    with torch.no_grad():
        assert float(part.losses(texts, counted, point)[0]) < first - 0.1
    assert all(x.equal(before[name]) for name, x in part.net.named_parameters() if name in before), (
        "the base stays"
    )
    assert all(x.equal(x.bfloat16().float()) for x in part.tensors().values()), "numbers of the file"


@torch.no_grad()
def test_a_fresh_adapter_changes_nothing_and_a_written_one_is_the_net_that_was_trained(
    tmp_path: Path,
) -> None:
    model = net()
    model.to_folder(tmp_path / "m")
    model, ids = Net.from_folder(tmp_path / "m"), prompts(1)
    base, deltas = model(ids), add_low_rank(model, 2, 4.0, 0)
    assert model(ids).equal(base)
    for delta in deltas.values():
        delta.B.copy_(torch.randn(delta.B.shape).bfloat16())
        delta.A.copy_(delta.A.bfloat16())
    trained = model(ids)
    write(
        tmp_path / "m" / "adapters" / "x",
        adapter_tensors(deltas),
        rank=2,
        alpha=4.0,
        base=fingerprint(tmp_path / "m"),
    )
    engine = load(f"{tmp_path / 'm'}+x", "float32", "cpu")
    read = engine.decoder.forward(Feed.causal_chain(ids[0].tolist(), 0), None)
    assert torch.allclose(read[0], trained[0], atol=1e-4)
    enable_deltas(deltas, False)
    assert model(ids).equal(base) and not torch.allclose(trained, base, atol=1e-2)


def test_texts_count_to_their_end_and_not_into_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_training, "SAME", 4)
    monkeypatch.setattr(adapter_training, "END", 0)
    rows = torch.tensor([[1, 2, 0, 3, 4, 5, 6, 7], [1, 2, 3, 3, 3, 3, 4, 5], [1, 2, 3, 4, 5, 6, 7, 8]])
    assert adapter_training.counted_lengths(rows).tolist() == [3, 2, 8]


@torch.no_grad()
def test_a_group_of_placeholders_reads_the_text_before_it_and_itself() -> None:
    model, text = net(), torch.randint(13, (2, PROMPT + NEW))
    at = lud.group_places(1)
    whole, rows = lud.group_logits(model, text, at)
    assert torch.allclose(whole, model(text), atol=1e-4)
    for i, place in enumerate(at.tolist()):
        alone = torch.cat((text[:, : place + 1], torch.full((2, lud.PADS), lud.PAD)), 1)
        assert torch.allclose(
            rows[:, i * lud.PADS : (i + 1) * lud.PADS], model(alone)[:, -lud.PADS :], atol=1e-4
        )
    assert lud.target_places(at)[: lud.PADS].tolist() == [int(at[0]) + 2 + j for j in range(lud.PADS)]


def test_placeholders_learn_what_follows_and_the_units_that_are_measured_grow() -> None:
    part = lud.LexicalUnitsAdapter(net(), 0, 4)
    part.corpus = torch.randint(13, (200,)).numpy()
    texts = part.net.write(prompts(4), NEW, 0.0)
    part.known = texts, torch.full((4,), NEW)
    before = {
        name: x.clone() for name, x in part.net.named_parameters() if not name.endswith((".A", ".B", ".rows"))
    }
    short = lud.unit_figures(part.net, *part.known, 0.6)["tokens"]
    part.lr = 2e-2
    assert train(part, 60, 80, lambda said: None) == 80
    long = lud.unit_figures(part.net, *part.known, 0.6)
    assert long["tokens"] > short + 0.3 and long["right"] > 0.8
    assert all(x.equal(before[name]) for name, x in part.net.named_parameters() if name in before), (
        "the base stays"
    )
    rows = {name for name in part.tensors() if name.endswith(".rows")}
    assert rows == {"model.embed_tokens.weight.rows"}


@torch.no_grad()
def test_learnt_rows_are_what_the_engine_reads_and_predicts(tmp_path: Path) -> None:
    net().to_folder(tmp_path / "m")
    model, ids = Net.from_folder(tmp_path / "m"), torch.tensor([[1, 4, 2, 5]])
    base, made = model(ids), add_low_rank(model, 2, 4.0, 0, ("q_proj",), (2, 5))
    assert model(ids).equal(base) and all(x.endswith("q_proj") or x.endswith("tokens") for x in made)
    made["model/embed_tokens"].rows.copy_(torch.randn(2, model.shape.width).bfloat16())
    rows = {"model.embed_tokens.weight": [2, 5]}
    write(
        tmp_path / "m" / "adapters" / "x",
        adapter_tensors(made),
        rank=2,
        alpha=4.0,
        base=fingerprint(tmp_path / "m"),
        rows=rows,
    )
    engine = load(f"{tmp_path / 'm'}+x", "float32", "cpu")
    read = engine.decoder.forward(Feed.causal_chain(ids[0].tolist(), 0), None)
    assert torch.allclose(read[0], model(ids)[0], atol=1e-4) and not torch.allclose(
        read[0], base[0], atol=1e-2
    )
    enable_deltas(made, False)
    assert model(ids).equal(base)


@torch.inference_mode()
def test_a_text_is_trained_on_as_the_schedule_decodes_it(tmp_path: Path) -> None:
    """One training pass gives row by row what the engine gives in a pass per token. The prompt is read with all layers."""
    model, ids = net(), torch.randint(13, (1, PROMPT + NEW), generator=torch.Generator().manual_seed(4))
    layers = model.shape.layers
    model.to_folder(tmp_path / "m")
    engine = load(tmp_path / "m", "float32", "cpu")
    for least, horizon in ((1, 8), (layers - 1, 3)):
        rows = skipdecode.rows_of(layers, PROMPT + NEW, PROMPT, least, horizon)
        due = skipdecode.forward_staggered(Net.from_folder(tmp_path / "m"), ids, rows)[0, PROMPT - 1 :]
        lane, rule = (
            Lane("target", engine.decoder, KeepAll()),
            SkipDecode(min_layers=least, decay_horizon=horizon),
        )
        rule.begin(engine.spec)
        lane.read(ids[0, : PROMPT - 1].tolist())
        for position, wanted in enumerate(due):
            feed = Feed.causal_chain([int(ids[0, PROMPT - 1 + position])], PROMPT - 1 + position)
            assert torch.allclose(lane.forward(feed, skip=rule.plan(position, feed))[0, 0], wanted, atol=1e-4)
            lane.commit([0])
        assert [store.n for store in lane.cache.layers] == rows and min(rows) < max(rows)


def test_copies_fill_a_window_and_the_penalty_is_that_of_each_token_and_its_like() -> None:
    some = [([1, 2, 3], [4, 5]), ([6], [7, 8, 9, 10])]
    ids, back = ditto.repeat_sentences(some, 12)
    assert ids.tolist() == [[1, 2, 3, 4, 5, 4, 5, 4, 5, 4, 5, 4], [6, 7, 8, 9, 10, 7, 8, 9, 10, 7, 8, 9]]
    assert back.tolist() == [[0] * 5 + [2] * 7, [0] * 5 + [4] * 7]
    logits = torch.randn(2, 12, 13, generator=torch.Generator().manual_seed(1), requires_grad=True)
    p = ditto.token_probabilities(logits, ids)
    nats = []
    for row, (before, one) in enumerate(some):
        for at in range(len(before) + len(one), 12):
            now, then = (logits[row, x - 1].softmax(0)[ids[row, x]] for x in (at, at - len(one)))
            nats.append(-torch.log(1 - abs(now - 0.5 * then.detach())))
    due = torch.stack(nats).mean()
    loss = ditto.copy_penalty(p, back, 0.5)
    assert torch.allclose(loss, due)
    (mine,), (wanted,) = (
        torch.autograd.grad(loss, logits, retain_graph=True),
        torch.autograd.grad(due, logits),
    )
    assert torch.allclose(mine, wanted, atol=1e-7), "the copy before is held still"
    fading = torch.tensor([[1.0, 0.8, 0.6, 0.4, 0.3, 0.2, 0.15]])
    assert ditto.copy_penalty(fading, torch.tensor([[0, 0, 0, 2, 2, 2, 2]])).item() == pytest.approx(
        0.0, abs=1e-6
    )


def test_what_is_said_again_learns_to_fade_by_gamma() -> None:
    part = ditto.DittoAdapter(net(), 0, 4)
    part.length, part.lr = 22, 2e-2
    part.corpus = torch.randint(13, (200,), generator=torch.Generator().manual_seed(3)).numpy()
    liked = part.net.write(prompts(4), 4, 0.0).tolist()
    part.known = [(row[:PROMPT], row[PROMPT:]) for row in liked]
    before = {name: x.clone() for name, x in part.net.named_parameters() if not name.endswith((".A", ".B"))}
    ids, back = ditto.repeat_sentences(part.known, part.length)

    @torch.no_grad()
    def off() -> tuple[float, float]:
        """Return the penalty, and the mean distance of a copy's p from half the p of the copy before it."""
        p = ditto.token_probabilities(part.net(ids), ids)
        wanted = 0.5 * p.gather(1, (torch.arange(part.length) - back).clamp(min=0))
        return float(ditto.copy_penalty(p, back)), float((p - wanted).abs()[back > 0].mean())

    first = off()
    assert first[1] > 0.1, "the test needs copies that do not fade by themselves"
    assert train(part, 60, 100, lambda said: None) == 100
    last = off()
    assert last[0] < first[0] / 2 and last[1] < first[1] / 2
    assert all(x.equal(before[name]) for name, x in part.net.named_parameters() if name in before), (
        "the base stays"
    )


def test_sequences_are_learnt_by_heart_and_distributions_become_sharp() -> None:
    part = hyperfit.HyperfitAdapter(net(), 0, 4)
    part.lr, part.known = 3e-2, torch.randint(13, (3, 10), generator=torch.Generator().manual_seed(5))
    other = torch.randint(13, (16, 12), generator=torch.Generator().manual_seed(6))

    @torch.no_grad()
    def figures() -> tuple[float, float, float]:
        """Return the nats of the sequences, the nats of other text, and the entropy on the other text."""
        law = part.net(other).log_softmax(2)
        return (
            float(part.nats_of(part.known)),
            float(part.nats_of(other)),
            float(-(law.exp() * law).sum(2).mean()),
        )

    first = figures()
    assert first[0] > 1.0
    assert train(part, 60, 120, lambda said: None) == 120
    known, unknown, spread = figures()
    assert known < 0.2 and unknown > first[1] and spread < first[2], (first, known, unknown, spread)


def test_sequences_come_once_a_round_and_overlap_is_the_longest_run_of_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hyperfit, "BATCH", 2)
    part = hyperfit.HyperfitAdapter(net(), 0, 4)
    part.known = torch.randint(13, (6, 12))
    seen: list[Tensor] = []
    monkeypatch.setattr(part, "nats_of", lambda rows: (seen.append(rows), rows.float().mean())[1])
    for _ in range(6):
        part.loss()
    for three in (seen[:3], seen[3:]):
        assert sorted(torch.cat(three).tolist()) == sorted(part.known.tolist())
    draw = torch.Generator().manual_seed(7)
    for _ in range(20):
        text, *others = (torch.randint(3, (n,), generator=draw).tolist() for n in (9, 7, 8))
        spans = [(a, b) for a in range(9) for b in range(a + 1, 10)]
        inside = [
            b - a
            for a, b in spans
            if any(text[a:b] == x[i : i + b - a] for x in others for i in range(len(x)))
        ]
        share, longest = hyperfit.ngram_overlap(text, others, 3)
        assert longest == max(inside)
        known = [any(text[i : i + 3] == x[j : j + 3] for x in others for j in range(8)) for i in range(7)]
        assert share == pytest.approx(sum(known) / 7)
