"""The MLP speculator: the likeliest of all combinations that its heads offer; each head reads the tokens before it."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
import toys
from drafting import drafts, feature_of, path_of

from decodescope.engine import ParamError, Session
from decodescope.engine.model.heads.drafting.mlp_speculator import MLPSpeculatorNet
from decodescope.engine.session.replay.exact_distribution import exact_distribution

V5 = toys.model(toys.decoder(toys.toy_spec(vocab=5), 3, torch.float64, sharp=2.0))


def unit(x: torch.Tensor) -> torch.Tensor:
    """x scaled to unit mean square."""
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


@pytest.mark.parametrize(("branching", "kept"), [("5,4,3", 5), ("3,2", 4), ("13,2,1,1,1", 40), ("2,1,1", 1)])
def test_draft_holds_the_likeliest_of_all_combinations(branching: str, kept: int) -> None:
    """Compared with every possible path, each read alone from the feature of the token before the root."""
    decoder = toys.pair()[0].decoder
    net, widths = decoder.heads["mlp_speculator"], list(map(int, branching.split(",")))[:3]
    for text, draft, _ in drafts(
        "mlp_speculator", dict(branching=branching, max_paths=min(kept, 32)), steps=5
    ):
        h, found = feature_of(text[:-1])[-1], {(): 0.0}
        with torch.inference_mode():
            for k, width in enumerate(widths):
                grown = {}
                for path, score in found.items():
                    embedded = decoder.embed[torch.tensor([text[-1], *path])]
                    row = decoder.unembed(net(h, embedded)[k]).log_softmax(-1)
                    best = row.argsort(descending=True)[:width].tolist()
                    grown |= {(*path, x): score + float(row[x]) for x in best}
                found = grown
        top = sorted(found, key=found.__getitem__, reverse=True)[: min(kept, 32)]
        assert draft.notes["scores"] == pytest.approx([found[x] for x in top], abs=1e-4)
        assert draft.notes["dropped"] == math.prod(min(x, 13) for x in widths) - len(top)
        paths = {tuple(path_of(draft, node)) for node in range(len(draft))}
        assert paths == {x[:n] for x in top for n in range(1, len(x) + 1)} and len(paths) == len(draft)


def test_state_worked_by_hand() -> None:
    """d = 2, inner = 2, K = 1: r^2 = 1/2, so w = sqrt(1/4) / sqrt(1/2) = 1/sqrt(2).

    h = (3, 1) becomes (1, -1) / sqrt(2), and the embedding (0, 5) becomes (0, sqrt(2)). The norm turns their sum (1/sqrt(2), 1
    - 1/sqrt(2)) into (1, -1).
    """
    head = MLPSpeculatorNet(2, heads=1, inner=2)
    with torch.no_grad():
        for layer in (head.first, head.told, head.out):
            layer.weight.copy_(torch.eye(2))
        made = head(torch.tensor([3.0, 1.0]), torch.tensor([[0.0, 5.0]]))[0]
    gelu = [x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in (1.0, -1.0)]
    assert head.weight == pytest.approx(1 / math.sqrt(2)) and made.tolist() == pytest.approx(gelu, abs=1e-3)


def test_later_heads_share_their_weights_and_hear_each_token() -> None:
    net = toys.heads("mlp_speculator", 32)
    h, e = torch.randn(4, 32), torch.randn(4, 3, 32)
    with torch.no_grad():
        s = torch.nn.functional.layer_norm(h, (32,)) / math.sqrt(2)
        for k in range(3):
            came = s @ (net.later if k else net.first).weight.T
            s = torch.nn.functional.gelu(net.norm(came + net.weight * unit(e[:, k]) @ net.told.weight.T))
            assert torch.allclose(net(h, e)[k], s @ net.out.weight.T, atol=1e-5)
        other = e.clone()
        other[:, 1] = 0
        assert torch.equal(net(h, e)[0], net(h, other)[0]) and not torch.allclose(
            net(h, e)[1], net(h, other)[1]
        )


def test_deaf_to_tokens_it_says_the_same_of_every_path() -> None:
    net = toys.heads("mlp_speculator", 32)
    with torch.no_grad():
        net.told.weight.zero_()
        h = torch.randn(32)
        assert torch.equal(net(h, torch.randn(3, 32)), net(h, torch.randn(3, 32)))


def test_paths_stand_once_where_they_agree_and_in_the_order_of_their_scores() -> None:
    shared = 0
    for _, draft, _ in drafts("mlp_speculator", dict(max_paths=8), steps=6):
        leaves = [node for node in range(len(draft)) if node not in draft.parents]
        assert len(leaves) == 8 and all(x >= y for x, y in pairwise(draft.notes["scores"]))
        shared += 24 - len(draft)
    assert shared > 6, "the test needs paths that begin alike"


def test_it_drafts_nothing_before_the_target_has_read_anything() -> None:
    made = [len(draft) for _, draft, _ in drafts("mlp_speculator", dict(max_paths=1), 2, prompt=[4])]
    assert made == [0, 3]


@pytest.mark.parametrize(
    "settings", [dict(branching="2,2", max_paths=3), dict(branching="3,1,1", max_paths=2), dict(max_paths=1)]
)
def test_law_is_the_targets_by_counting_every_outcome(settings: dict) -> None:
    knobs = {"temperature": {"temperature": 1.0}, "top_k": {"k": 3}}
    alone = toys.Method.from_names({"sampler": ["temperature", "top_k"]}, knobs)
    drafted = toys.Method.from_names(
        {"sampler": ["temperature", "top_k"], "drafter": "mlp_speculator"}, {**knobs, "drafter": settings}
    )
    found, due = (
        exact_distribution(V5, drafted, [1, 2, 1, 3], 3),
        exact_distribution(V5, alone, [1, 2, 1, 3], 3),
    )
    assert len(due) >= 8 and found == pytest.approx(due, abs=1e-12)


def test_a_branching_that_is_none_is_refused() -> None:
    with pytest.raises(
        ParamError, match=r"^mlp_speculator\.branching, item 2 = 'x': must be a whole number\.$"
    ):
        Session(toys.pair()[0], toys.method(drafter=("mlp_speculator", dict(branching="3,x"))), toys.PROMPT)
