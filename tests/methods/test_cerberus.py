"""Cerberus: the gate is the logistic of entropy and confidence; never is plain decoding, always is its host."""

from __future__ import annotations

import math

import pytest
import torch
import toys
from cyclic import cyclic
from drafting import feature_of

from decodescope.engine.model.heads.drafting.cerberus import CerberusGate
from decodescope.engine.trace import check
from decodescope.training import cerberus as training
from decodescope.training import heads


def run(least: float | None, drafter: str = "hydra"):
    schedule = {} if least is None else dict(schedule=("cerberus", {"min_probability": least}))
    return toys.decode(toys.method(drafter=drafter, **schedule), count=40)


@torch.inference_mode()
def chance(text: list[int]) -> tuple[float, float, float]:
    """The gate before the last token of text is read, by the formula: chance, entropy, largest probability."""
    decoder = toys.pair()[0].decoder
    p = decoder.unembed(feature_of(text[:-1])[-1]).softmax(-1)
    entropy, largest = -float((p * p.log()).sum()), float(p.max())
    weights = decoder.heads["cerberus"].tensors()
    (w_h, w_m), b = weights["weigh.weight"][0].tolist(), float(weights["weigh.bias"])
    return float(torch.tensor(w_h * entropy + w_m * largest + b).sigmoid()), entropy, largest


def test_it_drafts_where_the_formula_says_so() -> None:
    tokens = toys.greedy_text(toys.pair()[0].decoder, toys.PROMPT, 40)
    chances = sorted(chance([*toys.PROMPT, *tokens[:n]])[0] for n in range(39))
    session = run(
        least := (chances[19] + chances[20]) / 2
    )  # so that the session drafts in some steps and not in others
    text, drafts, off = list(toys.PROMPT), [], 0
    for step in session.sink.steps[:-1]:
        due = chance(text)
        drafts.append(due[0] >= least)
        assert bool(step.drafted) == drafts[-1]
        if step.draft is not None:
            told = step.draft.notes["schedule"]
            assert [told[x] for x in ("chance", "entropy", "largest")] == pytest.approx(list(due), abs=1e-3)
            assert told["off"] == off
        off, text = 0 if step.drafted else off + 1, text + step.emitted
    assert 3 < sum(drafts) < len(drafts) - 3, "the test needs steps of both kinds"
    assert session.end.tokens == tokens and check(session.sink).ok


@pytest.mark.parametrize("drafter", ["hydra", "eagle2", "prompt_lookup"])
def test_never_is_plain_decoding_and_always_is_the_host(drafter: str) -> None:
    plain, never, host, always = run(None, "none"), run(1.0, drafter), run(None, drafter), run(0.0, drafter)
    assert never.end.tokens == plain.end.tokens and len(never.sink.steps) == len(plain.sink.steps)
    assert all(step.drafted == 0 and len(step.emitted) == 1 for step in never.sink.steps)
    drafts = lambda session: [(x.draft.tokens, x.accepted) for x in session.sink.steps if x.draft is not None]  # noqa: E731
    assert drafts(always) == drafts(host) and len(drafts(host)) > 10


def test_an_untrained_gate_says_one_half_and_a_law_is_looked_at_as_in_the_formula() -> None:
    gate, law = CerberusGate(8), torch.tensor([0.5, 0.25, 0.25, 0.0])
    assert gate.chance(torch.randn(3, 5)).tolist() == [0.5] * 3
    looks = gate.distribution_features(torch.stack([law.log(), torch.zeros(4)]))
    assert looks.tolist() == [
        pytest.approx(x, abs=1e-6) for x in ([1.5 * math.log(2), 0.5], [math.log(4), 0.25])
    ]


def test_training_finds_the_logistic_that_made_its_labels() -> None:
    g = torch.Generator().manual_seed(0)
    seen = torch.rand(60_000, 2, generator=g, dtype=torch.float64) * torch.tensor([3.0, 1.0])
    due = torch.tensor([-1.5, 2.0, 0.5], dtype=torch.float64)
    right = torch.rand(60_000, generator=g, dtype=torch.float64) < (seen @ due[:2] + due[2]).sigmoid()
    gate = CerberusGate(8)
    training.fit_gate(gate, seen, right, ridge=0.0)
    gate.requires_grad_(False)
    assert [*gate.weigh.weight[0].tolist(), float(gate.weigh.bias)] == pytest.approx(due.tolist(), abs=0.1)
    figures = training.evaluate_gate(gate, seen[:4000], right[:4000])
    shares = [row[1] for row in figures["thresholds"]]
    assert shares == sorted(shares, reverse=True) and 0 < shares[-1] < shares[0] <= 1
    hits = [row[2] for row in figures["thresholds"]]
    assert hits[-1] > hits[0] > figures["right"] - 0.01 and figures["auc"] > 0.75


def test_beside_heads_trained_on_the_cycle_it_always_drafts_and_beside_others_it_does_not() -> None:
    """The model is certain everywhere on a cycle. So only whether the heads were right distinguishes the two gates."""
    windows = cyclic().write(
        torch.arange(13)[:, None].repeat(4, 1), 23, 1.0, torch.Generator().manual_seed(0)
    )
    torch.manual_seed(1)
    said = {}
    for steps in (0, 200):
        head = heads.new_head("hydra", cyclic(), heads=1, rank=0)
        memory = heads.store_states(cyclic(), windows, [head])
        heads.train(cyclic(), [head], heads.batches(cyclic(), memory, 12, 0), steps, lr=1e-2, muon=2e-2)
        gate, (seen, right) = CerberusGate(32), training.examples(cyclic(), head, windows)
        training.fit_gate(gate, seen, right)
        said[steps] = gate.weigh(seen.float()).sigmoid().flatten().detach()
        assert float(right.double().mean()) == pytest.approx(float(said[steps].double().mean()), abs=0.02)
    assert float(said[0].max()) < 0.1 and float(said[200].min()) > 0.9
