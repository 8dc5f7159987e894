"""LM-Infinite: one dense pass under an explicit mask, with an explicit matrix of distances."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import toys
from masked import rotated
from torch import Tensor

from decodescope.engine import MethodError
from decodescope.engine.core.component import build
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import Rope
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.rope import RopeTable, rotate_, unrotate

DECODER = toys.pair()[0].decoder
WINDOWED = toys.decoder(toys.toy_spec(windows=(9, None, 4)), toys.LIVELY, torch.float64)
TEXT = [*toys.PROMPT, *toys.prompts(1, 35, seed=4)[0]]


def lane(decoder: Decoder, start: int, window: int, attention: str = "none") -> Lane:
    needs = Needs(attention)  # type: ignore[arg-type] # one of its words
    return Lane(
        "target", decoder, build("policy", "lm_infinite", dict(sink_tokens=start, window=window)), needs=needs
    )


def dense(
    decoder: Decoder,
    tokens: list[int],
    start: int,
    window: int,
    middle: tuple[int, int, int] = (0, 0, 0),
    since: int = 0,
) -> Tensor:
    """Logits [T, V]. middle: (count, away, first layer) of the middle entries that rows from `since` on also read.

    Entry s is t - s behind row t; an entry of the start that is further away counts as window + 1 behind. Of the other entries
    a row sees those at most `window` behind. A layer with a window of its own counts these distances.
    """
    spec, T = decoder.spec, len(tokens)
    behind = torch.arange(T)[:, None] - torch.arange(T)
    distance = torch.where(torch.arange(T) < start, behind.clamp(max=window + 1), behind)
    seen = (behind >= 0) & ((torch.arange(T) < start) | (behind <= window))
    x = F.embedding(torch.tensor(tokens), decoder.embed)
    for i, w in enumerate(decoder.layers):
        qkv = F.linear(F.rms_norm(x, (spec.d_model,), w.attn_norm, spec.norm_eps), w.qkv).view(
            T, -1, spec.head_dim
        )
        inside = seen & (distance < (spec.window(i) or T))
        heads = []
        for h in range(spec.n_heads):
            q, (k, v) = (
                qkv[:, h],
                qkv[:, spec.n_heads :].unflatten(1, (2, -1))[:, :, h // spec.group].unbind(1),
            )
            scores = torch.stack(
                [rotated(q, distance[:, s].clamp(min=0), decoder) @ k[s] for s in range(T)], 1
            )
            reads = inside.clone()
            between = ~seen & (behind >= 0) & (torch.arange(T)[:, None] >= since)
            near = rotated(q, torch.full((T,), middle[1]), decoder) @ k.T
            for t in (
                torch.nonzero(between.sum(1) >= max(1, middle[0])).flatten().tolist()
                if i >= middle[2]
                else []
            ):
                chosen = near[t].masked_fill(~between[t], -torch.inf).topk(middle[0]).indices
                scores[t, chosen], reads[t, chosen] = near[t, chosen], True
            weights = (scores / spec.head_dim**0.5).masked_fill(~reads, -torch.inf).softmax(-1)
            heads.append(weights @ v)
        x = x + F.linear(torch.cat(heads, 1), w.out)
        gate, up = F.linear(F.rms_norm(x, (spec.d_model,), w.mlp_norm, spec.norm_eps), w.gate_up).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, w.down)
    return decoder.unembed(decoder.apply_norm(x))


@pytest.mark.parametrize("attention", ["none", "columns"])
@pytest.mark.parametrize(("start", "window"), [(0, 1), (0, 6), (3, 1), (2, 6), (5, 4), (4, 20), (4, 100)])
@pytest.mark.parametrize("decoder", [DECODER, WINDOWED], ids=["plain", "windowed"])
@torch.inference_mode()
def test_equals_one_dense_pass_with_its_mask_and_distances(
    decoder: Decoder, start: int, window: int, attention: str
) -> None:
    """Prompt, tokens and blocks of tokens alike: no later row sees what left the store."""
    made, wanted = lane(decoder, start, window, attention), dense(decoder, TEXT, start, window)
    at = len(toys.PROMPT) - 1
    assert torch.allclose(made.read(TEXT[: at + 1]), wanted[at], atol=1e-10)
    for rows in (1, 3, 1, 2, 5, 1, 8, 1, 1, 12):
        at = len(made.tokens)
        logits = made.forward(Feed.causal_chain(TEXT[at : at + rows], at))[0]
        assert torch.allclose(logits, wanted[at : at + rows], atol=1e-10)
        made.commit(list(range(rows)))
        assert made.cache.fullest_length == min(len(made.tokens), start + window)
    assert len(made.tokens) == len(TEXT)


@pytest.mark.parametrize(("count", "away", "above"), [(3, 2, 0), (5, 4, 1), (1, 9, 2)])
@torch.inference_mode()
def test_the_middle_is_read_by_upper_layers_from_one_distance(count: int, away: int, above: int) -> None:
    """Tokens and blocks, with memory that keeps everything. Lower layers do not read the entries that they do not see."""
    knobs = dict(sink_tokens=2, window=6, middle_top_k=count, middle_distance=away, first_middle_layer=above)
    made, at = Lane("target", DECODER, build("policy", "lm_infinite", knobs)), len(toys.PROMPT) - 1
    wanted = dense(DECODER, TEXT, 2, 6, (count, away, above), since=at)
    made.read(TEXT[:at], compress=False)
    for rows in (1, 1, 3, 1, 12, 1):
        at = len(made.tokens)
        logits = made.forward(Feed.causal_chain(TEXT[at : at + rows], at))[0]
        assert torch.allclose(logits, wanted[at : at + rows], atol=1e-10)
        made.commit(list(range(rows)))
        assert made.cache.fullest_length == len(made.tokens)
    assert not torch.allclose(wanted, dense(DECODER, TEXT, 2, 6), atol=1e-3), (
        "the test needs a middle that shows"
    )
    read = made.passes[-1].read
    assert (read or [[at] * 2] * 3) == [[8 if i < above else at] * 2 for i in range(3)]
    for store in made.cache.layers[:above]:
        store.kv[:, :, :, 2 : at - 6] = torch.nan
    made.truncate(at)
    assert torch.equal(made.forward(Feed.causal_chain(TEXT[at : at + 1], at))[0], logits)


@pytest.mark.parametrize(
    "drafter", [("draft_model", {"max_draft_tokens": 4}), ("token_recycling", {"nodes": "16"})]
)
def test_drafts_change_no_text_with_a_middle(drafter: tuple[str, dict]) -> None:
    policy = ("lm_infinite", dict(sink_tokens=2, window=6, middle_top_k=2, first_middle_layer=0))
    fast = toys.decode(toys.method(policy=policy, drafter=drafter), TEXT[:30], count=40)
    plain = toys.decode(toys.method(policy=policy), TEXT[:30], count=40)
    assert fast.tokens == plain.tokens and sum(step.accepted for step in fast.sink.steps) > 5
    assert (
        plain.tokens
        != toys.decode(
            toys.method(policy=("lm_infinite", dict(sink_tokens=2, window=6))), TEXT[:30], count=40
        ).tokens
    )


@torch.inference_mode()
def test_a_text_no_longer_than_the_window_is_read_in_full() -> None:
    whole = DECODER.forward(Feed.causal_chain(TEXT, 0), None)[0]
    for window in (len(TEXT) - 1, len(TEXT) + 50):
        made = lane(DECODER, 3, window)
        assert torch.equal(made.forward(Feed.causal_chain(TEXT, 0))[0], whole)
    # the last row is two tokens beyond its window
    less = lane(DECODER, 3, len(TEXT) - 3).forward(Feed.causal_chain(TEXT, 0))[0]
    assert (less[-1] - whole[-1]).abs().max() > 1e-6 and torch.allclose(less[:-1], whole[:-1], atol=1e-10)


@torch.inference_mode()
def test_in_a_tree_each_path_is_what_the_dense_pass_says() -> None:
    made = lane(DECODER, 2, 6)
    made.read(toys.PROMPT)
    tree = Draft([3, 1, 4, 6, 5], [ROOT, ROOT, 0, 0, 2])
    logits = made.forward(tree.build_feed(8, len(made.tokens)))[0]
    for path in ([1], [0, 3], [0, 2, 4]):
        text = [*toys.PROMPT, 8, *(tree.tokens[node] for node in path)]
        wanted = dense(DECODER, text, 2, 6)[len(toys.PROMPT) :]
        assert torch.allclose(logits[[0, *(node + 1 for node in path)]], wanted, atol=1e-10)


@torch.inference_mode()
def test_a_key_comes_back_to_position_0_whatever_the_rotation() -> None:
    """Only some features are rotated, and yarn's factor lengthens them; a key at position 0 has this factor too."""
    table = RopeTable(
        Rope(dim=4, kind="yarn", factor=4.0, original_positions=8, amplitude=1.3), 16, torch.float64, "cpu"
    )
    raw = torch.randn(2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    keys, zero = raw.clone(), raw.clone()
    for x, at in ((keys, torch.arange(5)), (zero, torch.zeros(5, dtype=torch.int64))):
        rotate_(x, *(y.squeeze(-2) for y in table.at(at, 5)))
    assert torch.allclose(unrotate(keys, table, torch.arange(5), 5), zero, atol=1e-12)
    assert (keys - zero).abs().max() > 0.1 and (zero - raw).abs().max() > 0.1, "the guard: both are at work"


DRAFTERS = {
    "chain": ("draft_model", {"max_draft_tokens": 4}),
    "tree": ("token_recycling", {"nodes": "16"}),
}


@pytest.mark.parametrize("way", DRAFTERS)
def test_drafts_change_no_text(way: str) -> None:
    """Strict semantics: a draft's later tokens do not see more than in single-token decoding."""
    policy = ("lm_infinite", {"sink_tokens": 2, "window": 6})
    fast = toys.decode(toys.method(policy=policy, drafter=DRAFTERS[way]), count=60)
    plain = toys.decode(toys.method(policy=policy), count=60)
    assert fast.tokens == plain.tokens and sum(step.accepted for step in fast.sink.steps) > 5
    assert plain.tokens != toys.decode(count=60).tokens, "the guard: what is not seen matters"
    for step in fast.sink.steps:
        assert step.cache[0].held == 8 and step.cache[0].evicted_count == len(step.emitted)


def test_runs_beyond_the_trained_context_in_constant_memory() -> None:
    small = toys.model(toys.decoder(toys.toy_spec(max_positions=32), toys.LIVELY, torch.float64))
    session = toys.decode(
        toys.method(policy=("lm_infinite", {"sink_tokens": 2, "window": 10})), count=80, pair=(small, small)
    )
    assert session.end.reason == "max_new_tokens" and len(session.tokens) == 95
    assert {step.cache[0].held for step in session.sink.steps} == {12}
    assert len({step.cache[0].held_bytes for step in session.sink.steps}) == 1
    with torch.inference_mode():
        wanted = dense(small.decoder, session.tokens[:-1], 2, 10)
    assert wanted[len(toys.PROMPT) - 1 :].argmax(-1).tolist() == session.tokens[len(toys.PROMPT) :]


def test_a_middle_that_no_layer_would_read_is_refused() -> None:
    with pytest.raises(
        MethodError,
        match=r"lm_infinite.first_middle_layer = 3: .* has the layers 0 to 2, .* or middle_top_k = 0\.",
    ):
        toys.decode(toys.method(policy=("lm_infinite", dict(middle_top_k=2, first_middle_layer=3))), count=1)
    toys.decode(toys.method(policy=("lm_infinite", dict(middle_top_k=0, first_middle_layer=3))), count=1)
