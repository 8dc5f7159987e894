"""Quest: bounds dominate, pages that are not chosen are not read, and drafts do not change the text."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import toys
from masked import rotated
from toys import feed_tokens

from decodescope.engine import MethodError
from decodescope.engine.core.component import build
from decodescope.engine.cost.cost import cost_of
from decodescope.engine.cost.passes import PassPricer
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import PAGE
from decodescope.engine.model.stores.pages import score_bound
from decodescope.engine.trace.checks.record_consistency import validate_step
from decodescope.engine.trace.records.events import Pass
from decodescope.engine.trace.values.limits import TraceError
from decodescope.lab.cache.lifetimes import EntryLifetimes

SETTINGS: dict[str, Any] = dict(token_budget=3 * PAGE, dense_layers=1)
TEXT = toys.prompts(1, 150, seed=5)[0]
AHEAD: dict[str, dict[str, Any]] = {
    "chain": dict(drafter=("draft_model", {"max_draft_tokens": 4})),
    "tree": dict(drafter=("token_recycling", {"nodes": "16"})),
    "own layers": dict(drafter=("early_exit", {"max_draft_tokens": 4, "layers": 2})),
}


@torch.inference_mode()
def reading(
    settings: dict[str, Any] = SETTINGS, decoder: Decoder | None = None, text: list[int] = TEXT, **more: Any
) -> Lane:
    """A lane that has read a prompt, its last token in the pass that may select pages for the first time."""
    lane = Lane("target", decoder or toys.pair()[0].decoder, build("policy", "quest", settings), **more)
    lane.read(text[:-1], compress=False)
    feed_tokens(lane, text[-1])
    return lane


@torch.inference_mode()
def by_hand(lane: Lane, token: int, count: int, dense: int) -> torch.Tensor:
    """Logits [V] of a token that reads `count` pages per query head of a lane's entries; its first layers read everything."""
    decoder, s, at = lane.decoder, lane.decoder.spec, len(lane.tokens)
    x = decoder.embed[token]
    for i, w in enumerate(decoder.layers):
        qkv = (w.qkv @ F.rms_norm(x, (s.d_model,), w.attn_norm, s.norm_eps)).view(-1, s.head_dim)
        places = torch.tensor([at])
        queries, new, values = qkv.split([s.n_heads, s.n_kv_heads, s.n_kv_heads])
        outputs = []
        for h in range(s.n_heads):
            g = h // s.group
            q = rotated(queries[h, None], places, decoder)[0]
            k = torch.cat([lane.cache.layers[i].k[0, g], rotated(new[g, None], places, decoder)])
            v = torch.cat([lane.cache.layers[i].v[0, g], values[g, None]])
            if i >= dense:
                *older, _ = k.split(PAGE)
                tops = [float((q * torch.where(q > 0, page.amax(0), page.amin(0))).sum()) for page in older]
                order = sorted(range(len(tops)), key=lambda p: (-tops[p], p))
                keep = torch.isin(
                    torch.arange(len(k)) // PAGE, torch.tensor([*order[: count - 1], len(older)])
                )
                k, v = k[keep], v[keep]
            outputs.append((k @ q * s.score_scale).softmax(0) @ v)
        x = x + w.out @ torch.cat(outputs)
        gate, up = (w.gate_up @ F.rms_norm(x, (s.d_model,), w.mlp_norm, s.norm_eps)).chunk(2)
        x = x + w.down @ (F.silu(gate) * up)
    return decoder.unembed(decoder.apply_norm(x[None]))[0]


def test_no_key_of_a_page_has_a_larger_product_than_its_bound() -> None:
    keys, q = torch.randn(2, 6, PAGE, 8, dtype=torch.float64), torch.randn(2, 5, 8, dtype=torch.float64) * 3
    tops = score_bound(q, *keys.aminmax(dim=2))  # [2, 5, 6]
    true = torch.einsum("btd,bpkd->btpk", q, keys)
    assert bool((true <= tops[..., None] + 1e-12).all()) and bool((true.amax(-1) < tops - 0.1).any())
    alone = torch.randn(1, 4, 1, 8, dtype=torch.float64)
    assert torch.allclose(score_bound(q[:1], *alone.aminmax(dim=2)), q[:1] @ alone[:, :, 0].mT), (
        "of one key it is the product"
    )


def test_a_query_head_reads_its_newest_page_and_those_of_the_largest_bounds() -> None:
    lane = reading()
    for extra in (7, 2, 11, 5):
        due = by_hand(lane, extra, 3, dense=1)
        assert torch.allclose(feed_tokens(lane, extra)[0], due, atol=1e-9)


@pytest.mark.parametrize("entries", [1, PAGE, 2 * PAGE, 3 * PAGE - 1])
def test_three_pages_are_read_however_small_the_budget(entries: int) -> None:
    lane = reading(dict(token_budget=entries, dense_layers=0))
    due, two = by_hand(lane, 7, 3, dense=0), by_hand(lane, 7, 2, dense=0)
    logits = feed_tokens(lane, 7)[0]
    assert torch.allclose(logits, due, atol=1e-9) and not torch.allclose(logits, two, atol=1e-4)
    short = reading(dict(token_budget=entries, dense_layers=0), text=TEXT[: 3 * PAGE - 1])
    feed_tokens(short, 7)
    assert short.passes[-1].read is None, "three pages are all that there is"
    feed_tokens(short, 2)
    assert short.passes[-1].read is not None


@torch.inference_mode()
def test_what_is_not_chosen_is_not_read() -> None:
    """The pages that a pass did not read are overwritten with NaN: the same pass gives the same logits."""
    lane = reading()
    logits = feed_tokens(lane, 7)
    lane.truncate(len(TEXT))
    read = lane.passes[-1].read
    feed = Feed.causal_chain([7], len(TEXT))
    first = lane.forward(feed)[0]
    assert torch.equal(first, logits) and feed.board is not None and set(feed.board.chosen) == {1, 2}
    lane.rollback()
    spoilt = 0
    for layer, (some, size) in feed.board.chosen.items():
        slots = some[0].repeat_interleave(size, 1)  # [H_kv, n]
        lane.cache.layers[layer].kv[:, 0, :, : slots.shape[1]].masked_fill_(
            ~slots[None, :, :, None], torch.nan
        )
        spoilt += int((~slots).sum())
        assert (
            read is not None
            and read[layer] == (slots.sum(1) + len(TEXT) % PAGE).tolist()
            and read[0] == [len(TEXT)] * 2
        )
    assert spoilt > 50 and torch.equal(feed_tokens(lane, 7), logits)


def test_with_entries_for_everything_it_is_the_full_cache() -> None:
    plain = Lane("plain", toys.pair()[0].decoder, build("policy", "keep_all"))
    lane = reading(dict(token_budget=400, dense_layers=0))
    plain.read(TEXT[:-1])
    feed_tokens(plain, TEXT[-1])
    assert torch.equal(feed_tokens(lane, 7), feed_tokens(plain, 7)) and lane.passes[-1].read is None


def test_the_bounds_follow_what_is_forgotten_and_written_anew() -> None:
    lane, other = reading(), reading(text=[*TEXT[:100], *TEXT[:50]])
    lane.truncate(100)
    for token in TEXT[:50]:
        feed_tokens(lane, token)
    for a, b in zip(lane.cache.layers[1:], other.cache.layers[1:], strict=True):
        pages = a.k[:, :, : len(TEXT) // PAGE * PAGE].unflatten(2, (-1, PAGE))
        assert (
            torch.equal(a.bounds(), torch.stack(pages.aminmax(dim=3)))
            and a.bounds().shape == b.bounds().shape
        )


@pytest.mark.parametrize("rows", ["chain", "tree"])
@torch.inference_mode()
def test_each_row_of_a_draft_reads_what_it_would_one_by_one(rows: str) -> None:
    """Also after a page that the draft itself fills: 24 rows over 150 entries fill one and begin another."""
    tokens = toys.prompts(1, 24, seed=8)[0]
    lane = reading()
    if rows == "chain":
        logits, paths = feed_tokens(lane, *tokens), [list(range(24))]
    else:  # a root, then two branches
        branches = [[0, *range(1, 12)], [0, *range(12, 24)]]
        visible = torch.zeros(1, 24, 24, dtype=torch.bool)
        depth = [0] * 24
        for branch in branches:
            for at, row in enumerate(branch):
                visible[0, row, branch[: at + 1]], depth[row] = True, at
        places = torch.tensor([depth]) + len(TEXT)
        logits, paths = lane.forward(Feed(torch.tensor([tokens]), places, visible))[0], branches
    for path in paths:
        one = reading()
        for row in path:
            assert torch.allclose(feed_tokens(one, tokens[row])[0], logits[row], atol=1e-9)
    assert any(min(x) < len(TEXT) for x in one.passes[-1].read or []), (
        "the test needs pages that are not read"
    )


@pytest.mark.parametrize("ahead", AHEAD)
def test_drafts_change_no_text(ahead: str) -> None:
    prompt, policy = TEXT[:90], ("quest", dict(token_budget=16, dense_layers=0))
    fast = toys.decode(toys.method(policy=policy, **AHEAD[ahead]), prompt, count=40)
    plain = toys.decode(toys.method(policy=policy), prompt, count=40)
    assert fast.tokens == plain.tokens and sum(step.accepted for step in fast.sink.steps) > 5
    assert plain.tokens != toys.decode(prompt=prompt, count=40).tokens, "the test needs reading that shows"


@torch.inference_mode()
def test_a_batch_of_two_texts_is_each_of_them_alone() -> None:
    texts = toys.prompts(2, 100, seed=11)
    both = Lane("both", toys.pair()[0].decoder, build("policy", "quest", SETTINGS), batch=2)
    both.forward(Feed(torch.tensor(texts), torch.arange(100).expand(2, -1), logits="last"))
    both.commit(list(range(100)))
    logits = both.forward(Feed(torch.tensor([[3], [4]]), torch.full((2, 1), 100)))
    for i, text in enumerate(texts):
        alone = reading(text=text)
        assert (
            torch.allclose(feed_tokens(alone, 3 + i), logits[i], atol=1e-9)
            and alone.passes[-1].read is not None
        )


def test_a_trace_says_what_each_pass_has_read() -> None:
    """Counts and map agree, and are checked against each other; the map is as long as the text, and drawn in columns."""
    trace = toys.decode(toys.method(policy=("quest", SETTINGS)), TEXT[:90], count=12).sink
    first, *later = trace.steps
    assert first.passes[-1].read is None and first.cache[0].read is None, (
        "the prompt's last token reads everything"
    )
    for step in later:
        one, read = step.passes[-1], step.cache[0].read
        assert one.read is not None and one.bounds == [0, *[one.held // PAGE] * 2] and read is not None
        assert (
            read[:, :, : one.held].sum(2).tolist() == one.read
            and read.shape[2] == one.held + 1
            and read.min() == 0
        )
        validate_step(step, step.step, toys.SPEC.vocab, trace.header.details)
    grid = EntryLifetimes.of(trace).binned_map(5, 20, None, later[4].cache[0].read)
    assert (
        grid["read"].shape == grid["kept"].shape
        and set(grid["read"][:2].flatten()) == {255}
        and grid["read"][2:].min() == 0
    )
    spoilt = later[4].cache[0].read
    spoilt[2, 0, :] = 1
    with pytest.raises(TraceError, match="maps other numbers of entries"):
        validate_step(later[4], 5, toys.SPEC.vocab, trace.header.details)
    later[3].passes[-1].read[1][0] = 1000
    with pytest.raises(TraceError, match="more entries of a layer than are held"):
        validate_step(later[3], 4, toys.SPEC.vocab, trace.header.details)


def test_what_was_read_is_what_a_pass_costs() -> None:
    spec, pages = toys.SPEC, 12
    held, read = (
        Pass("target", "verify", 1, 200, 1.0, read=x) for x in (None, [[200, 200], [48, 64], [48, 48]])
    )
    bounds = Pass("target", "verify", 1, 200, 1.0, read=read.read, bounds=[0, pages, pages])
    entry = 2 * 2 * spec.n_kv_heads * spec.head_dim  # bytes of a key and a value in 16 bits, all KV heads
    less = cost_of(spec, held).kv_read_bytes - cost_of(spec, read).kv_read_bytes
    assert less == entry * (2 * 200 - 56 - 48)
    assert cost_of(spec, bounds).kv_read_bytes - cost_of(spec, read).kv_read_bytes == 2 * pages * entry
    assert cost_of(spec, read).flops < cost_of(spec, held).flops
    assert PassPricer(toys.decode(count=1).header).cost(bounds) == cost_of(spec, bounds, bits=64)


def test_as_many_dense_layers_as_the_model_has_are_refused() -> None:
    with pytest.raises(
        MethodError, match=r"quest.dense_layers = 3: .* has the layers 0 to 2, .* choose at most 2\."
    ):
        toys.decode(toys.method(policy=("quest", dict(dense_layers=3))), count=1)
    toys.decode(toys.method(policy=("quest", dict(dense_layers=2))), count=1)
