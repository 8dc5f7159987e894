"""Training of draft heads, in a language where each token has exactly one successor.

Trained heads draft without an error. Heads that are trained one token off never draft a right token. The shipped heads fit
their models.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import toys
from cyclic import NEXT, D, V, cyclic
from sizes import by_turns, sizes

from decodescope.engine.model.checkpoint.folder import read_json
from decodescope.engine.model.heads.drafting.shift import head_shifts
from decodescope.engine.model.heads.files import CACHE, HEADS, find_head_folders, write_head
from decodescope.engine.session.load import fingerprint, load
from decodescope.engine.training import guesses
from decodescope.engine.training.adversary import Adversary
from decodescope.engine.training.measures import TrigramTable
from decodescope.engine.training.shapes import SHAPES as SHAPES_OF_KINDS
from decodescope.training import heads as training

ASSETS = Path(__file__).resolve().parents[2] / "assets"

SHAPES = {
    "medusa": dict(heads=3),
    "hydra": dict(heads=3, rank=0),
    "eagle": dict(n_heads=2, n_kv_heads=1, head_dim=16, d_ff=32),
    "eagle3": dict(kept=13, n_heads=2, n_kv_heads=1, head_dim=16, d_ff=32, rank=0),
    "p_eagle": dict(kept=13, n_heads=2, n_kv_heads=1, head_dim=16, d_ff=32, rank=0),
    "mtp": dict(n_heads=2, n_kv_heads=1, head_dim=16, d_ff=32),
    "kangaroo": dict(layer=1, n_heads=4, n_kv_heads=4, head_dim=16),
    "blockwise": dict(heads=3, hidden=64),
    "mlp_speculator": dict(heads=3, inner=48),
    "redrafter": dict(heads=3, inner=48, blocks=1),
    "fspad": dict(n_heads=2, n_kv_heads=1, head_dim=16, d_ff=32, rank=8),
    "parallelspec": dict(masks=2, n_heads=2, n_kv_heads=1, head_dim=16, d_ff=32),
    "clover": dict(heads=3, gates=2, gate_dim=16, n_heads=2, n_kv_heads=1, head_dim=16, d_ff=32, rank=32),
    "dflash": dict(kept=13, n_heads=2, n_kv_heads=1, head_dim=16, d_ff=32, block=4, own_mask=1),
    "dspark": dict(
        kept=13,
        n_heads=2,
        n_kv_heads=1,
        head_dim=16,
        d_ff=32,
        block=3,
        anchor=1,
        own_mask=1,
        rank=8,
        markov=2,
        confidence=2,
    ),
}
DRAFTS = {
    "medusa": dict(nodes=3),
    "hydra": dict(nodes=3),
    "eagle": dict(nodes=3, depth=3),
    "eagle3": dict(nodes=3, width=1, depth=3),
    "p_eagle": dict(nodes=3, width=1, depth=3),
    "mtp": dict(nodes=3, width=1, depth=3),
    "kangaroo": dict(max_draft_tokens=3, min_probability=0.0),
    "blockwise": dict(max_draft_tokens=3),
    "mlp_speculator": dict(branching="1,1,1", max_paths=1),
    "redrafter": dict(width=1, depth=3),
    "fspad": dict(nodes=3, width=1, depth=3),
    "parallelspec": dict(nodes=3, width=1, depth=3, tokens_per_pass=3),
    "clover": dict(nodes=3),
    "dflash": dict(),
    "dspark": dict(),
}


def text(rows: int, length: int, seed: int) -> torch.Tensor:
    """int64 [rows, length]: what the net writes; each row starts from one random token."""
    beginnings = torch.from_numpy(np.random.default_rng(seed).integers(V, size=(rows, 1)))
    return cyclic().write(beginnings, length - 1, 1.0, torch.Generator().manual_seed(seed))


def trained(kind: str):
    """A head of this kind, trained until it guesses the whole cycle from any start."""
    torch.manual_seed(1)
    steps = 320 if kind == "eagle3" else 200
    how = dict(length=24, muon=2e-2, share=0.5)
    if kind == "p_eagle":  # masks go by their places, so it must have read as far as it drafts
        steps, how = 500, dict(length=48, muon=1e-2, share=1.0)
    head = training.new_head(kind, cyclic(), **SHAPES[kind])
    memory = training.store_states(cyclic(), text(400, int(how.pop("length")), 1), [head])
    training.train(cyclic(), [head], training.batches(cyclic(), memory, 12, 0), steps, lr=1e-2, **how)
    return head


def decoded(head, folder: Path) -> list[int]:
    """Run the folder's model with these heads; return the number of accepted tokens per step."""
    cyclic().to_folder(folder)
    head.rates = ((1.0, 0.0),) * 3  # turns the tree of three nodes into a chain
    write_head(head, folder / "heads" / head.kind)
    model = load(folder, "float32", "cpu")
    assert model.spec.heads == (head.kind,)
    method = toys.method(drafter=(head.kind, DRAFTS[head.kind]))
    session = toys.decode(method, [3, 1, 0], 41, pair=(model, model), stop_tokens=())
    assert session.end.tokens == toys.greedy_text(model.decoder, [3, 1, 0], 41)
    return [step.accepted for step in session.sink.steps]


def test_the_net_writes_the_cycle() -> None:
    rows = text(20, 30, 3)
    assert (torch.tensor(NEXT)[rows[:, :-1]] == rows[:, 1:]).float().mean() > 0.99
    assert sorted(rows.unique().tolist()) == list(range(V))


def test_feature_is_what_the_unembedding_reads() -> None:
    ids = text(2, 9, 0)
    r = training.read_states(cyclic(), ids, layer=1)
    assert torch.equal(cyclic().unembed(r.feature), cyclic()(ids))
    assert torch.equal(r.early, cyclic().states(ids)[1]) and torch.equal(r.embedded, cyclic().states(ids)[0])


@pytest.mark.parametrize("kind", by_turns(len(HEADS), HEADS))
def test_trained_heads_draft_the_cycle_without_a_fault(kind: str, tmp_path: Path) -> None:
    """Training and drafting agree on every shift: all drafted tokens are accepted, in every step."""
    head = trained(kind)
    for row in training.measure(cyclic(), head, text(32, 24, 999)):
        # of 304 guesses a wrong one may be third and none second
        assert row[0] > 0.97 and [round(x, 2) for x in row] == sorted(
            (round(x, 2) for x in row), reverse=True
        )
    assert decoded(head, tmp_path)[1:-1] == [3] * 9


@pytest.mark.parametrize("kind", by_turns(len(HEADS), HEADS))
def test_heads_trained_one_token_off_never_guess_right(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def off(name: str, heads: int = 1):
        return [replace(s, says=s.says + 1) for s in head_shifts(name, heads)]

    with monkeypatch.context() as patched:
        patched.setattr(guesses, "head_shifts", off)
        head = trained(kind)
        assert all(row[0] > 0.97 for row in training.measure(cyclic(), head, text(32, 24, 999))), (
            "it learnt something else"
        )
    assert all(row[0] < 0.1 for row in training.measure(cyclic(), head, text(32, 24, 999)))
    assert sum(decoded(head, tmp_path)) == 0


def test_deeper_levels_of_eagle_are_measured_on_its_own_guesses() -> None:
    """Deeper levels are measured on the head's own guesses.

    If the guesses are right, every level is as good as the first. With a random net, the result is what
    a new cache gives for every place, slot by slot.
    """
    assert all(
        row[0] > 0.95
        for row in training.measure_unrolled(cyclic(), trained("eagle"), text(8, 24, 999), levels=4, stride=3)
    )
    ids, levels = text(2, 16, 4), 3
    head = toys.heads("eagle", D, **SHAPES["eagle"])
    hits = torch.zeros(levels - 1, 10)
    places = range(0, 16 - levels - 1, 2)
    for row in ids:
        r = training.read_states(cyclic(), row[None])
        for t in places:
            store = head.attention.store()
            # the guessed feature of t + 1
            guess = head(r.feature[:, : t + 1], r.embedded[:, 1 : t + 2], 0, store)[:, -1:]
            for level in range(1, levels):
                known = t + level + 1  # the token that follows the token of the guessed feature
                guess = head(guess, r.embedded[:, known : known + 1], known - 1, store)
                ranked = cyclic().unembed(guess)[0, 0].argsort(descending=True)[:10]
                hits[level - 1] += ranked == cyclic()(row[None, : known + 1])[0, -1].argmax()
    found = torch.tensor(training.measure_unrolled(cyclic(), head, ids, levels, stride=2))
    assert (
        torch.allclose(found, hits / (2 * len(places)))
        and 0.1 < hits.sum() / (2 * len(places) * (levels - 1)) < 1
    )


def test_a_net_around_eagles_layer_goes_on_from_eagle_and_else_from_its_own(tmp_path: Path) -> None:
    eagle, around = (
        toys.heads("eagle", D, **SHAPES["eagle"]),
        training.new_head("fspad", cyclic(), **SHAPES["fspad"]),
    )
    write_head(eagle, tmp_path / "eagle", {"made_with": {"seed": 1}})
    assert training.load_weights(around, tmp_path) == {"seed": 1}
    f, e = torch.randn(2, 5, D), torch.randn(2, 5, D)
    assert torch.equal(around(f, e), eagle.copy_to(dtype=torch.bfloat16).copy_to(dtype=torch.float32)(f, e))
    write_head(toys.heads("fspad", D, **SHAPES["fspad"]), tmp_path / "fspad", {"made_with": {"seed": 2}})
    assert training.load_weights(around, tmp_path) == {"seed": 2}
    assert not torch.equal(around.gate(e), torch.ones_like(e)), "its own gates"


def test_kinds_trained_side_by_side_become_what_each_becomes_alone() -> None:
    made = []
    for kinds in (["hydra"], ["medusa"], ["hydra", "medusa"]):
        torch.manual_seed(2)
        some = [training.new_head(kind, cyclic(), heads=2) for kind in kinds]
        training.train(cyclic(), some, iter([training.read_states(cyclic(), text(4, 12, 1))] * 5), 5)
        made += some
    for alone, together in zip(made[:2], made[2:], strict=True):
        for name, x in alone.state_dict().items():
            assert x.abs().sum() > 0 and torch.allclose(x, together.state_dict()[name], atol=1e-6)


def test_training_leaves_the_model_alone_and_gives_the_heads_gradients() -> None:
    before = {name: w.clone() for name, w in cyclic().named_parameters()}
    for kind in HEADS:
        head = training.new_head(kind, cyclic(), **SHAPES[kind]).requires_grad_(True)
        with torch.no_grad():
            for p in head.parameters():
                p.add_(torch.randn_like(p) * 0.1)
        training.loss_of(cyclic(), head, training.read_states(cyclic(), text(4, 12, 1), 1)).backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in head.parameters()), kind
    assert all(torch.equal(before[name], w) and w.grad is None for name, w in cyclic().named_parameters())


@pytest.mark.parametrize("kind", ["medusa", "eagle", "eagle3"])
def test_an_adversary_without_weight_changes_no_bit_of_its_hosts_training(kind: str) -> None:
    """KOALA at weight 0 equals the host, although the discriminator reads and learns; at another weight it does not."""
    kept, read = [], training.read_states(cyclic(), text(4, 12, 1), 1)
    for weight in (None, 0.0, 0.3):
        torch.manual_seed(2)
        head = training.new_head(kind, cyclic(), **SHAPES[kind])
        with torch.no_grad():
            for p in head.parameters():
                # heads that are not right yet, and differ between levels
                p.add_(torch.randn_like(p) * 0.1)
        rivals = [] if weight is None else [Adversary(V, weight, lr=1e-2)]
        before = [p.clone() for rival in rivals for p in rival.net.parameters()]
        training.train(cyclic(), [head], iter([read] * 5), 5, share=0.5, rivals=rivals)
        after = [p for rival in rivals for p in rival.net.parameters()]
        assert all(not torch.equal(a, b) for a, b in zip(before, after, strict=True)), (
            "it learns, whatever it weighs"
        )
        kept.append([p.clone() for p in head.parameters()])
    host, watched, driven = kept
    assert all(torch.equal(a, b) for a, b in zip(host, watched, strict=True))
    assert any(not torch.allclose(a, b, atol=1e-4) for a, b in zip(host, driven, strict=True))


def test_a_discriminator_tells_a_head_from_its_target_until_the_head_passes_for_it() -> None:
    """Train against one target distribution, with no other loss.

    First the discriminator is always right. Then it is at chance, and the head's total variation distance shrinks to under 10%.
    """
    g = torch.Generator().manual_seed(0)
    p, q = torch.randn(V, generator=g) * 2, torch.randn(V, generator=g) * 2
    rival, q = Adversary(V, 1.0, lr=3e-3), q.requires_grad_()
    apart = [float((p.softmax(0) - q.softmax(0)).abs().sum().detach() / 2)]
    for _ in range(100):
        rival.adversarial_loss(p[None], q[None])
        rival.learn()
    assert rival.rate == 1 and apart[0] > 0.4, "the test needs a head that can be told"
    optimizer = torch.optim.Adam([q], lr=3e-2, betas=(0.5, 0.9))
    for _ in range(600):
        optimizer.zero_grad()
        rival.adversarial_loss(p[None], q[None]).backward()
        optimizer.step()
        rival.learn()
    apart.append(float((p.softmax(0) - q.softmax(0)).abs().sum().detach() / 2))
    assert apart[1] < 0.1 * apart[0], apart


def test_ids_that_a_head_never_says_have_no_part_in_its_loss_against_the_adversary() -> None:
    logits = torch.tensor([[1.0, 0.5, float("-inf"), 0.0]], requires_grad=True)
    Adversary(4, 1.0).adversarial_loss(torch.zeros(1, 4), logits).backward()
    assert (
        logits.grad is not None
        and logits.grad.isfinite().all()
        and logits.grad[0, 2] == 0
        and logits.grad.abs().sum() > 0
    )


@pytest.mark.parametrize("distance", [1, 3])
def test_trigrams_are_the_most_frequent_continuations(distance: int) -> None:
    rows = np.random.default_rng(0).integers(4, size=(30, 20)).astype(np.uint16)
    pairs: dict[tuple[int, int], Counter] = {}
    for row in rows.tolist():
        for i in range(len(row) - 1 - distance):
            pairs.setdefault((row[i], row[i + 1]), Counter())[row[i + 1 + distance]] += 1
    table = TrigramTable(rows, distance, 5)
    for (a, b), counts in pairs.items():
        guess = int(table.guess(np.array([a]), np.array([b]))[0])
        assert counts[guess] == max(counts.values())
    assert table.guess(np.array([4, 0]), np.array([0, 4])).tolist()[1] == -1, "token 4 never came"
    singles = Counter(
        row[i + distance] for row in rows.tolist() for i in range(1, len(row) - distance) if row[i] == 0
    )
    assert singles[int(table.guess(np.array([4]), np.array([0]))[0])] == max(singles.values())


def test_blockwise_learns_from_one_head_at_a_time_and_from_all_alike() -> None:
    head, r = (
        toys.heads("blockwise", D, **SHAPES["blockwise"]).requires_grad_(False),
        training.read_states(cyclic(), text(4, 12, 1)),
    )
    rows = [
        (cyclic().unembed(x).flatten(0, 1), s.align(r.ids, s.says).flatten())
        for s, x in guesses.head_guesses(head, r)
    ]
    due = [round(float(torch.nn.functional.cross_entropy(*row)), 4) for row in rows]
    torch.manual_seed(0)
    drawn = Counter(round(float(training.loss_of(cyclic(), head, r)), 4) for _ in range(300))
    assert len(set(due)) == 3 and set(drawn) == set(due) and min(drawn.values()) > 75


def test_floor_knows_a_language_of_trigrams() -> None:
    rows = text(32, 24, 5)
    for kind in HEADS:
        table = training.trigram_floor(cyclic(), kind, 3, text(64, 24, 6).numpy(), rows)
        assert len(table) == len(head_shifts(kind, 3)) and min(table) > 0.97


def test_the_table_of_the_floor_is_told_no_token_that_the_head_is_not_told() -> None:
    """On random ids the net follows only the last token: a table that reads it is always right, any other is at chance."""
    rows = torch.from_numpy(np.random.default_rng(0).integers(V, size=(32, 24)))
    language = text(64, 24, 6).numpy()
    for kind in HEADS:
        fair, told = (
            training.trigram_floor(cyclic(), kind, 3, language, rows, root)[0] for root in (False, True)
        )
        assert fair < 0.2 if kind in ("medusa", "blockwise") else fair > 0.97, kind
        assert told > 0.97, kind


def test_own_text_begins_with_what_it_was_given() -> None:
    given = text(70, 24, 7)
    made = training.own_text(cyclic(), given, 24, seed=0)
    assert made.shape == (70, 24) and made.dtype == np.uint16
    assert (made[:, :8] == given[:, :8].numpy()).all()
    follows = np.array(NEXT)[made[:, :-1].astype(int)] == made[:, 1:]
    assert follows.mean() > 0.99


def test_own_text_is_mixed_with_a_share_of_the_corpus() -> None:
    own, corpus = np.zeros((6, 7), np.uint16), np.ones((5, 7), np.uint16)
    made = training.mix_text(own, corpus, 0.25)
    assert made.dtype == torch.int64 and made.shape == (8, 7) and int(made[:, 0].sum()) == 2


def test_batches_are_what_the_model_made_of_their_text_and_every_window_comes_once_an_epoch() -> None:
    rows = text(9, 12, 8)
    heads = [training.new_head(kind, cyclic(), **SHAPES[kind]) for kind in ("kangaroo", "eagle3")]
    drawn = training.batches(cyclic(), training.store_states(cyclic(), rows, heads), 3, 0)
    for _ in range(2):
        epoch = [next(drawn) for _ in range(3)]
        assert sorted(x for r in epoch for x in r.ids.tolist()) == sorted(rows.tolist())
        for r in epoch:
            due = training.read_states(cyclic(), r.ids, layer=1)
            assert torch.equal(r.embedded, due.embedded)
            for kept, made in ((r.early, due.early), (r.feature, due.feature), (r.fused, due.fused)):
                assert torch.allclose(kept, made, rtol=2**-6, atol=2**-6), "in bfloat16"


@sizes("draws", usual=100, full=400)
def test_the_loss_at_a_share_of_the_places_is_on_average_that_of_all(draws: int) -> None:
    r = training.read_states(cyclic(), text(4, 12, 1), 1)
    for kind in sorted(HEADS.keys() - {"blockwise", "eagle"}):
        head = toys.heads(kind, D, **(SHAPES[kind] | (dict(vocab=V) if "kept" in SHAPES[kind] else {})))
        with torch.no_grad():
            whole = float(training.loss_of(cyclic(), head, r))
            torch.manual_seed(5)  # the places are drawn by chance
            some = torch.stack([training.loss_of(cyclic(), head, r, 0.25) for _ in range(draws)])
        assert some.std() > 0 and abs(float(some.mean()) - whole) < 4 * float(some.std()) / draws**0.5, kind


# ---- what is shipped

SHIPPED = [
    path
    for model in sorted((ASSETS / "models").iterdir())
    if model.is_dir()
    for path in find_head_folders(model).values()
]
GATING = ASSETS / "models" / "lab-draft" / "heads" / "specdec"
# none of these guesses a token; test_judge.py, test_edit.py, test_cloze.py, ... test the others
FILTER, TAGGER = (ASSETS / "models" / "lab-mdm" / "heads" / kind for kind in ("learn2pd", "edit"))
EXITS, JUDGE, SKIPS = (
    ASSETS / "models" / "lab" / "heads" / kind for kind in ("exits", "judge", "skip_layer")
)
GATE = ASSETS / "models" / "lab" / "heads" / "cerberus"
APART = (GATING, JUDGE, FILTER, TAGGER, EXITS, SKIPS, GATE)
BLOCKS = ASSETS / "models" / "lab-blocks" / "heads" / "block_transformer"
DOUBT = ASSETS / "models" / "lab-draft" / "heads" / "correctness"
READING = (EXITS.name, "past_future", "trigrams")  # inside the model; tests of the same names cover them
GUESSING = [x for x in SHIPPED if x not in (*APART, BLOCKS, DOUBT) and x.name not in (*CACHE, *READING)]


def test_the_shipped_acceptance_head_belongs_to_both_models_and_knows_more_than_a_constant() -> None:
    config = read_json(GATING, "config.json")
    assert config["target"] == fingerprint(ASSETS / "models" / "lab"), (
        "the target was trained again after the head"
    )
    assert config["draft"] == fingerprint(GATING.parents[1]), "the draft was trained again after its head"
    assert config["loss"] < config["constant"]
    pooled: list[
        tuple[int, float]
    ] = []  # from the surest down; with a few dozen places, a share is off by some per cent
    for _, _, count, _, _, accepted in reversed(config["calibration"]):
        before = pooled.pop() if pooled and pooled[-1][0] < 200 else (0, 0.0)
        pooled.append((before[0] + count, before[1] + count * accepted))
    said = [total / count for count, total in pooled]
    assert len(said) > 6 and said == sorted(said, reverse=True), "the more it expects, the more is accepted"


@pytest.mark.parametrize(
    "folder", [FILTER, TAGGER, BLOCKS, DOUBT, GATE], ids=["filter", "tagger", "blocks", "doubt", "gate"]
)
def test_the_shipped_parts_that_guess_no_token_belong_to_their_model(folder: Path) -> None:
    config = read_json(folder, "config.json")
    assert config["target"] == fingerprint(folder.parents[1]), "the model was trained again after its head"


def test_the_shipped_gate_is_surer_where_the_heads_are_right() -> None:
    config = read_json(GATE, "config.json")
    shares, right = ([row[i] for row in config["thresholds"]] for i in (1, 2))
    assert config["auc"] > 0.6 and shares == sorted(shares, reverse=True) and right == sorted(right)
    assert right[0] <= config["right"] + 1e-9 < right[-1]


@pytest.mark.parametrize("folder", GUESSING, ids=lambda x: f"{x.parents[1].name}-{x.name}")
def test_shipped_heads_belong_to_their_model_and_beat_trigrams(folder: Path) -> None:
    config = read_json(folder, "config.json")
    assert config["target"] == fingerprint(folder.parents[1]), "the model was trained again after its heads"
    assert {x.name for x in folder.iterdir()} == {"config.json", "model.safetensors"}
    beat = [row[0] > floor for row, floor in zip(config["rates"], config["trigrams"], strict=False)]
    assert beat == [True] * len(beat) if config["kind"] != "ppd" else beat == [True, False, False], (
        "docs/heads.md, PPD"
    )


def test_shipped_heads_take_less_than_8_and_a_half_mib_a_model() -> None:
    for model in {folder.parents[1] for folder in SHIPPED}:
        assert sum(f.stat().st_size for f in (model / "heads").rglob("*") if f.is_file()) < 8.5 * 2**20


def test_default_sizes_of_all_heads_stay_below_8_mib_at_the_shipped_width() -> None:
    config = json.loads((ASSETS / "models" / "lab" / "config.json").read_text())
    shipped = HEADS.keys() - training.TOLD
    nets = [HEADS[kind](d=config["hidden_size"], **SHAPES_OF_KINDS[kind]) for kind in shipped]
    count = sum(p.numel() for net in nets for p in net.parameters())
    assert 2 * count < 7.8 * 2**20
