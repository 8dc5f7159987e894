"""The past-future exit: it looks at both sides of the exit, is priced as its net, and the net learns to imitate."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import toys
from cyclic import cyclic
from leaving import DEEP, asked, reader

from decodescope.engine.cost.cost import exit_test, ops_of
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.base import unit_rms_norm
from decodescope.engine.trace import check
from decodescope.training import past_future as training


def text(rows: int) -> torch.Tensor:
    """int64 [rows, 24] of random ids."""
    return torch.randint(cyclic().shape.vocabulary, (rows, 24), generator=torch.Generator().manual_seed(rows))


def test_it_asks_the_mean_of_the_states_so_far_and_the_imitation_of_those_to_come() -> None:
    lane, head = reader(), DEEP.decoder.heads["past_future"]
    feed = Feed.causal_chain([7], len(lane.tokens))
    with torch.inference_mode():
        states = [
            (lane.decoder.states_before(feed, lane.cache, i)[0, 0], lane.rollback())[0] for i in range(1, 6)
        ]
    left = asked(lane, "past_future", dict(min_layers=2, threshold=1.01), [7])
    assert [layer for layer, *_ in left.tests] == [2, 3, 4, 5]
    for layer, score, _ in left.tests:
        at = int(layer)
        past = torch.stack([unit_rms_norm(x) for x in states[:at]]).mean(0)
        y = unit_rms_norm(states[at - 1])
        future = y + head.up[at - 1] @ F.silu(head.down[at - 1] @ y)
        due = torch.sigmoid(head.past[at - 1] @ past + head.future[at - 1] @ future + head.bias[at - 1])
        assert score == pytest.approx(float(due), abs=1e-6)


def test_a_test_is_priced_as_its_net_and_its_classifier() -> None:
    settings = dict(threshold=0.7, min_layers=1)
    trace = toys.decode(
        toys.method(adaptive_depth=("past_future", settings)), count=14, pair=(DEEP, DEEP)
    ).sink
    spec, h, r, seen = DEEP.spec, DEEP.spec.d_model, 3, 0
    assert check(trace).ok
    for step in trace.steps:
        (one,), (left,) = step.passes, step.exits
        tests = [op for op in ops_of(spec, one) if op.name == "exit_test"]
        assert one.asks == left.asks == "imitation" and one.inner == r and len(tests) == len(left.tests)
        for op in tests:
            assert op.flops == 2 * (h * r + r * h) + 2 * (2 * h) and op.weight_bytes == 2 * (
                2 * h * r + 2 * h
            )
        seen += len(tests)
    assert (
        seen > 20
        and exit_test(spec, "imitation", inner=64).flops > exit_test(spec, "imitation", inner=3).flops
    )


def test_the_net_learns_to_imitate_and_the_model_stays_as_it_is() -> None:
    net = cyclic().requires_grad_(False)
    head = training.PastFutureHeads(d=net.shape.width, n_layers=net.shape.layers, rank=4)
    kept, found = {k: x.clone() for k, x in net.state_dict().items()}, training.layer_states(net, text(8))
    fresh = [
        float(training.imitation_loss(head, found, layer).detach()) for layer in range(1, net.shape.layers)
    ]
    came = [training.side_means(found, layer)[1] for layer in range(1, net.shape.layers)]
    as_it_is = [
        float(1 - F.cosine_similarity(x, y, dim=-1).mean()) for x, y in zip(found, came, strict=False)
    ]
    assert fresh == pytest.approx(as_it_is, abs=1e-6), "before training the future is the present"
    training.train(net, head, iter(text(16 * 60).split(16)), 60, 1e-2)
    assert all(float(training.imitation_loss(head, found, i)) < 0.9 * x for i, x in enumerate(fresh, 1))
    assert all(torch.equal(x, kept[k]) for k, x in net.state_dict().items())


def test_the_classifier_is_fitted_on_both_sides_and_told_by_its_file() -> None:
    net = cyclic().requires_grad_(False)
    head = training.PastFutureHeads(d=net.shape.width, n_layers=net.shape.layers, rank=4)
    found, unseen = (training.layer_states(net, text(n)) for n in (40, 12))

    def by_norm(x: torch.Tensor, layer: int) -> torch.Tensor:
        return net.model.norm(x)

    made = training.fit_classifiers(net, head, found, by_norm)
    rows = training.measure(net, head, unseen, by_norm, made)
    for layer, row in enumerate(rows, 1):
        best = training.likeliest_tokens(net, net.model.norm(unseen[-1]))
        agrees = training.likeliest_tokens(net, net.model.norm(unseen[layer - 1])) == best
        past, _ = training.side_means(unseen, layer)
        sure = head.confidence(past, head(unseen[layer - 1], layer), layer)
        assert row["agrees"] == pytest.approx(float(agrees.double().mean()))
        assert training.ranking_accuracy(sure.logit(), agrees) == pytest.approx(row["tells"], abs=0.02)
