"""Expected Attention: the kept set follows the queries' own mean and covariance, and e^z is what Gaussian queries give."""

from __future__ import annotations

import pytest
import torch
import toys
from masked import rotated
from torch import Tensor
from voted import best, held, sharp

from decodescope.engine.core.component import build
from decodescope.engine.core.moments import Moments
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.values.prompt_attention import PromptAttention
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import LayerStore

SINKS, N = 2, 40


def lane(decoder: Decoder, **knobs) -> Lane:
    return Lane(
        "target",
        decoder,
        build(
            "policy",
            "expected_attention",
            dict(sink_tokens=SINKS, prompt_budget=7, future_positions=5, **knobs),
        ),
    )


@torch.inference_mode()
def queries(decoder: Decoder, text: list[int]) -> list[Tensor]:
    """Per layer the queries of `text` before rotation, float64 [H, n, D], from the states that enter the layer."""
    probe = Probe(Needs(hidden=frozenset(range(decoder.spec.n_layers))))
    decoder.forward(Feed.causal_chain(text, 0), None, probe)
    s = decoder.spec
    made = []
    for i, w in enumerate(decoder.layers):
        y = torch.nn.functional.rms_norm(probe.hidden[i][0], (s.d_model,), w.attn_norm, s.norm_eps)
        made.append((y @ w.qkv[: s.n_heads * s.head_dim].T).view(-1, s.n_heads, s.head_dim).transpose(0, 1))
    return made


def turn(decoder: Decoder, position: int) -> Tensor:
    """The matrix that rotates a query to a position: float64 [D, D]."""
    D = decoder.spec.head_dim
    return rotated(torch.eye(D, dtype=torch.float64), torch.full((D,), position), decoder).T


def caught(
    lane: Lane, text: list[int], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]]]:
    """Per layer the worth of the entries at the prompt's end, and the keys and values in the store at that time."""
    worths, stores = [], []
    worth = type(lane.policy).entry_scores

    def watch(policy: object, layer: int, store: LayerStore, prompt: PromptAttention) -> Tensor:
        worths.append(worth(policy, layer, store, prompt))
        stores.append((store.k.clone(), store.v.clone()))
        return worths[-1]

    monkeypatch.setattr(type(lane.policy), "entry_scores", watch)
    lane.read(text)
    return worths, stores


@pytest.mark.parametrize("chunk", [512, 7])
@pytest.mark.parametrize("layout", [4, 2])
@torch.inference_mode()
def test_worth_and_kept_set_are_those_of_the_whole_prompts_queries(
    chunk: int, layout: int, monkeypatch
) -> None:
    monkeypatch.setattr("decodescope.engine.decoding.bases.lane.CHUNK", chunk)
    decoder, text = sharp(by=0.5, n_kv_heads=layout), toys.prompts(1, N)[0]
    made, scale = lane(decoder), 8**-0.5
    worths, stores = caught(made, text, monkeypatch)
    R = torch.stack([turn(decoder, N + i) for i in range(5)]).mean(0)
    for i, q in enumerate(queries(decoder, text)):
        k, v = (x[0, :, SINKS:] for x in stores[i])
        due = torch.zeros(layout, N - SINKS, dtype=torch.float64)
        for h in range(4):
            kept, head = q[h, SINKS:], h * layout // 4
            mu, sigma = R @ kept.mean(0), R @ torch.cov(kept.T, correction=0) @ R.T
            z = scale * k[head] @ mu + scale**2 / 2 * torch.einsum("nd,de,ne->n", k[head], sigma, k[head])
            due[head] += z.softmax(0) * layout / 4
        due *= v.norm(dim=-1)
        assert torch.allclose(worths[i][0, :, SINKS:].double(), due, rtol=1e-3, atol=1e-6)
        assert held(made)[i] == [[0, 1, *(SINKS + p for p in best(row.tolist(), 7))] for row in due]


@torch.inference_mode()
def test_without_spread_and_one_position_ahead_it_is_the_attention_of_the_mean_query(monkeypatch) -> None:
    decoder, text = sharp(n_kv_heads=4), toys.prompts(1, N)[0]
    made = lane(decoder, use_covariance=False, use_value_norm=False)
    made.policy.future_positions = 1
    worths, stores = caught(made, text, monkeypatch)
    for i, q in enumerate(queries(decoder, text)):
        for h in range(4):
            mean = rotated(q[h, SINKS:].mean(0, keepdim=True), torch.tensor([N]), decoder)
            given = (mean @ stores[i][0][0, h, SINKS:].T * 8**-0.5).softmax(-1)[0]
            assert torch.allclose(worths[i][0, h, SINKS:].double(), given, atol=1e-6)


@torch.inference_mode()
def test_drawn_queries_give_what_is_expected(monkeypatch) -> None:
    """50,000 queries of the Gaussian at the next position: the mean of exp(s q k) is e^z up to a factor for all entries."""
    decoder, text = sharp(by=0.4, n_kv_heads=4), toys.prompts(1, N)[0]
    made = lane(decoder, use_value_norm=False)
    made.policy.future_positions = 1
    worths, stores = caught(made, text, monkeypatch)
    g, R = torch.Generator().manual_seed(0), turn(decoder, N)
    q = queries(decoder, text)[0][1, SINKS:]
    factor = torch.linalg.cholesky(torch.cov(q.T, correction=0) + 1e-9 * torch.eye(8, dtype=torch.float64))
    drawn = (q.mean(0) + torch.randn(50_000, 8, generator=g, dtype=torch.float64) @ factor.T) @ R.T
    given = (drawn @ stores[0][0][0, 1, SINKS:].T * 8**-0.5).exp().mean(0)
    assert torch.allclose(given / given.sum(), worths[0][0, 1, SINKS:].double(), rtol=0.15)


def test_moments_of_parts_are_those_of_the_whole() -> None:
    x = torch.randn(2, 3, 50, 4, generator=torch.Generator().manual_seed(0)) + 100
    parts = [Moments.of(part) for part in x.split([1, 20, 29], 2)]
    whole = parts[0].merge(parts[1]).merge(parts[2])
    assert whole.count == 50 and torch.allclose(whole.mean, x.mean(2), atol=1e-4)
    for b in range(2):
        for h in range(3):
            assert torch.allclose(whole.covariance[b, h], torch.cov(x[b, h].T, correction=0), atol=1e-3)


def test_the_text_is_written_by_fused_passes() -> None:
    session = toys.decode(
        toys.method(policy=("expected_attention", dict(sink_tokens=2, prompt_budget=6))),
        toys.PROMPT * 3,
        count=6,
    )
    assert [x.passes[0].instrumented for x in session.sink.steps] == [
        True,
        *[None] * 5,
    ] and not session.target.needs
    assert [x.cache[0].held for x in session.sink.steps] == [8 + i for i in range(6)]
