"""EAGLE-3's layer: it reads three depths, trains on its own outputs as it drafts on them, and knows only some of the ids."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import toys
from drafting import drafts, feature_of
from methods.test_draft_heads import SAMPLERS, alone, method

from decodescope.engine import MethodError, Session
from decodescope.engine.model.heads.drafting.draft_vocabulary import fused_layers, scatter_logits
from decodescope.engine.model.heads.drafting.eagle3 import Eagle3Layer
from decodescope.engine.session.load import Model
from decodescope.engine.session.replay.exact_distribution import exact_distribution
from decodescope.engine.training.shapes import SHAPES
from decodescope.training import heads as training
from decodescope.training.net import Net, NetShape


def test_which_layers_are_read() -> None:
    """Deep models use the layers of the original; ours, with eight layers, uses the last instead of the third from the end."""
    assert [fused_layers(n) for n in (28, 32, 80)] == [(2, 14, 25), (2, 16, 29), (2, 40, 77)]
    assert fused_layers(8) == (2, 4, 7) and fused_layers(3) == (0, 1, 2)


def test_it_reads_the_states_that_enter_these_layers() -> None:
    target, _ = toys.pair()
    session = Session(target, toys.method(drafter="eagle3"), toys.PROMPT, max_new_tokens=30)
    session.start()
    states, tokens = session.drafter._walk.due
    assert (
        torch.allclose(states, feature_of(toys.PROMPT[:-1], (0, 1, 2)), atol=1e-12)
        and tokens == toys.PROMPT[1:]
    )
    for _ in range(4):
        before = len(session.tokens)
        session.step()
        states, tokens = session.drafter._walk.due
        whole = feature_of(session.tokens[:-1], (0, 1, 2))
        assert tokens == session.tokens[before:]
        assert torch.allclose(states, whole[before - 1 :], atol=1e-9)


def test_a_depth_rule_that_may_leave_early_is_refused() -> None:
    target, _ = toys.pair()
    made = toys.method(drafter="eagle3", adaptive_depth="confidence_exit")
    with pytest.raises(
        MethodError, match=r"^eagle3 reads states of all depths, confidence_exit .* choose .* all_layers\.$"
    ):
        Session(target, made, toys.PROMPT)


@cache
def narrow() -> Model:
    """A model of five ids with an EAGLE-3 layer, whose draft vocabulary is 0, 2 and 4."""
    made = toys.decoder(toys.toy_spec(vocab=5), 3, torch.float64, sharp=2.0)
    layer = toys.heads("eagle3", 32, vocab=5, kept=3)
    layer.set_draft_vocabulary([4, 0, 2])
    made.heads = {"eagle3": layer.copy_to(dtype=torch.float64)}
    return toys.model(made)


def test_what_is_not_in_the_draft_vocabulary_has_no_probability() -> None:
    decoder = narrow().decoder
    layer = decoder.heads["eagle3"]
    g = torch.randn(6, 32, dtype=torch.float64)
    logits = layer.logits(g, decoder)
    assert logits.shape == (6, 5) and layer.ids.tolist() == [0, 2, 4]
    assert torch.equal(logits.softmax(-1)[:, [1, 3]], torch.zeros(6, 2, dtype=torch.float64))
    x = g / (g.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.last
    assert torch.allclose(logits[:, [0, 2, 4]], x @ decoder.head[[0, 2, 4]].T, atol=1e-12)
    cut = decoder.limit_vocab(4)  # id 4 must not be written: the layer does not offer it
    assert torch.equal(layer.logits(g, cut)[:, :3], logits[:, :3]) and layer.logits(g, cut).shape == (6, 4)
    assert torch.equal(
        scatter_logits(torch.tensor([1.0, 2.0]), torch.tensor([3, 1]), 4),
        torch.tensor([-torch.inf, 2, -torch.inf, 1]),
    )


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_law_is_the_targets_whatever_the_layer_knows(sampler: str) -> None:
    """All outcomes counted: texts with ids that are never drafted occur as often as they should."""
    found = exact_distribution(
        narrow(), method("eagle3", sampler, nodes=3, depth=2, width=2), [1, 2, 1, 3], 3
    )
    assert found == pytest.approx(alone(sampler, 3), abs=1e-12)
    assert sum(p for text, p in found.items() if {1, 3} & set(text)) > 0.1


def test_only_ids_that_it_knows_are_drafted() -> None:
    kept = 0
    for seed in range(10):
        made = method("eagle3", "top-k 2", nodes=4, depth=3, width=2)
        session = toys.decode(made, [1, 2, 1, 3], 12, seed=seed, pair=(narrow(), narrow()))
        for step in session.sink.steps:
            assert set(step.draft.tokens if step.draft else ()) <= {0, 2, 4}
            kept += step.accepted
    assert kept > 10, "the test needs tokens that were accepted"


@pytest.mark.parametrize("reduced", [False, True])
def test_training_sees_each_level_as_drafting_makes_it(reduced: bool) -> None:
    """Every level of `unroll`, at every place, equals a draft from there, slot by slot in a cache of its own."""
    layer: Eagle3Layer = toys.heads("eagle3", 32, **(dict(rank=5) if reduced else {})).copy_to(
        dtype=torch.float64
    )
    T, levels = 9, 3
    states, embedded = (
        torch.randn(1, T, 96, dtype=torch.float64),
        torch.randn(1, T + levels, 32, dtype=torch.float64),
    )
    told = [embedded[:, k : k + T - k] for k in range(levels)]
    made = layer.unroll(layer.enter(states), told)
    assert [x.shape[1] for x in made] == [9, 8, 7]
    for t in range(T - levels):
        store = layer.attention.store()
        g = layer(layer.enter(states[:, : t + 1]), embedded[:, : t + 1], 0, store)[:, -1:]
        store.commit(range(t + 1))
        for level in range(levels):
            assert torch.allclose(made[level][:, t : t + 1], g, atol=1e-10), (t, level)
            g = layer(g, embedded[:, t + level + 1 : t + level + 2], t + level + 1, store)
            store.commit([0])


def net() -> Net:
    torch.manual_seed(0)
    return Net(NetShape(4, 32, 2, 1, 16, 64, 13, 64)).requires_grad_(False)


def test_the_loss_is_the_papers() -> None:
    """Three levels, 0.8^k each; cross-entropy with the distribution over the draft vocabulary.

    A place counts nothing if the likeliest token is outside this vocabulary.
    """
    model = net()
    head = training.new_head("eagle3", model, kept=6, n_heads=2, n_kv_heads=1, head_dim=16, d_ff=16, rank=0)
    head.set_draft_vocabulary([0, 3, 5, 7, 8, 12])
    ids = torch.randint(0, 13, (2, 10))
    r = training.read_states(model, ids)
    due, masked = 0.0, 0
    table = model.model.embed_tokens.weight[head.ids]
    told = [r.embedded[:, 1:9], r.embedded[:, 2:9], r.embedded[:, 3:9]]
    made = head.requires_grad_(False).unroll(head.enter(r.fused[:, :8]), told)
    for k, x in enumerate(made):
        rows = 8 - k
        assert x.shape[1] == rows
        level = 0.0
        for b in range(2):
            for t in range(
                rows
            ):  # the draft that begins at t gives token t + 2 + k; its distribution is at t + 1 + k
                p = model.unembed(r.feature[b, t + 1 + k])
                if int(p.argmax()) not in head.ids.tolist():
                    masked += 1
                    continue
                q = F.linear(F.rms_norm(x[b, t], (32,), head.last, 1e-5), table).log_softmax(-1)
                level -= float((p[head.ids].softmax(-1) * q).sum())
        due += 0.8**k * level / (2 * rows)
    assert 5 < masked < 37 and float(training.loss_of(model, head, r)) == pytest.approx(due, rel=1e-5)


def test_states_of_training_are_those_of_drafting(tmp_path: Path) -> None:
    """The net's fused states are those that enter a decoder's layers."""
    model = net()
    ids = torch.randint(0, 13, (1, 10))
    r, states = training.read_states(model, ids), model.states(ids)
    assert torch.equal(r.fused, torch.cat([states[1], states[2], states[3]], -1)) and fused_layers(4) == (
        1,
        2,
        3,
    )


def test_the_draft_vocabulary_is_the_most_frequent_ids() -> None:
    import numpy as np

    text = np.array([[4, 4, 4, 1], [7, 7, 2, 1]], dtype=np.uint16)
    assert training.frequent_ids(text, 2, 9) == [1, 4] and training.frequent_ids(text, 4, 9) == [1, 2, 4, 7]


def test_default_sizes_take_less_than_a_mib_at_the_shipped_width() -> None:
    layer = Eagle3Layer(d=384, **SHAPES["eagle3"])
    assert sum(x.numel() for x in layer.tensors().values()) * 2 < 2**20
    for draft in (x for _, x, _ in drafts("eagle3", {}, 3)):
        assert len(draft) == 16, "the default tree"
