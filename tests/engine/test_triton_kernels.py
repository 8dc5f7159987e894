"""The kernels called triton, interpreted on the CPU: a row has the same bits in any number of rows, and torch's numbers."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import toys
from shapes import FAMILIES
from torch import Tensor

from decodescope.engine import load
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.kernels import choice
from decodescope.engine.kernels.choice import (
    KernelError,
    kernels_for,
    kernels_in_use,
    kernels_set_to,
    require_kernels,
    use_kernels,
)
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.session.session import Session
from decodescope.engine.trace.query.comparability import exactness_mark_text

INTERPRETED = importlib.util.find_spec("triton") is not None and os.environ.get("TRITON_INTERPRET") == "1"
needs_triton = pytest.mark.skipif(
    not INTERPRETED, reason="triton is not installed, or TRITON_INTERPRET=1 is not set"
)
TYPES = {"float32": 3e-6, "bfloat16": 2e-2, "float16": 3e-3}  # -> error, relative to the largest number
START = toys.PROMPT[:5]
TEXT = [*START, 7, 0, 11, 2]
TREE = Draft([7, 1, 0, 4, 11, 2], [ROOT, ROOT, 0, 1, 2, 4])  # it contains the path 7, 0, 11, 2


@pytest.fixture
def triton() -> Iterator[None]:
    """The kernels called triton, without gradients."""
    with kernels_set_to("triton"), torch.inference_mode():
        yield


def random_tensor(*shape: int, dtype: str = "float32") -> Tensor:
    """Numbers of the normal distribution, the same for a shape."""
    draw = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=draw).to(getattr(torch, dtype))


def close(a: Tensor, b: Tensor, dtype: str) -> bool:
    return bool((a.double() - b).abs().max() <= TYPES[dtype] * b.abs().max())


def read_in_chunks(decoder: Decoder, sizes: list[int], batch: int = 1) -> tuple[Tensor, KVCache]:
    """The logits [batch, n, V] of TEXT, read in chunks of these sizes, and the cache."""
    cache, at, parts = KVCache(decoder.spec, batch=batch, dtype=decoder.dtype), 0, list[Tensor]()
    for size in sizes:
        rows = torch.tensor(TEXT[at : at + size]).expand(batch, -1)
        feed = Feed(rows, torch.arange(at, at + size).expand(batch, -1), highest=at + size - 1)
        parts.append(decoder.forward(feed, cache))
        cache.commit(range(size))
        at += size
    return torch.cat(parts, 1), cache


def same_entries(a: KVCache, b: KVCache) -> bool:
    pairs = zip(a.layers, b.layers, strict=True)
    return all(torch.equal(x.k, y.k) and torch.equal(x.v, y.v) for x, y in pairs)


def rows_depend_on_their_number(linear: Any, dtype: str) -> bool:
    """Whether some row of a product of 64 has other bits in a product of fewer rows."""
    x, w, bias = (random_tensor(*s, dtype=dtype) for s in ((64, 40), (21, 40), (21,)))
    many = linear(x, w, bias)
    parts = ((0, 1), (0, 2), (5, 12), (40, 41), (0, 63))
    return not all(torch.equal(linear(x[a:b], w, bias), many[a:b]) for a, b in parts)


@needs_triton
@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize("dtype", TYPES)
def test_a_product_of_many_rows_holds_those_of_each(dtype: str) -> None:
    linear = kernels_for().linear
    assert not rows_depend_on_their_number(linear, dtype)
    x, w = random_tensor(3, 40, dtype=dtype), random_tensor(21, 40, dtype=dtype)
    assert close(linear(x, w), x.double() @ w.double().T, dtype)
    assert linear(x, w, dtype=torch.float32).dtype == torch.float32 and linear(x[:0], w).shape == (0, 21)
    assert torch.equal(linear(x, w.T.contiguous().T), linear(x, w)), "columns that are not contiguous"

    def split(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        if len(x) > 8:
            return linear(x, w, bias)
        wide = linear(x[:, :16], w[:, :16], bias, torch.float32) + linear(
            x[:, 16:], w[:, 16:], None, torch.float32
        )
        return wide.to(x.dtype)

    if dtype == "float32":  # rounded to a half type most sums are the same again
        assert rows_depend_on_their_number(split, dtype), "few rows split k: that is found"


@needs_triton
@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_attention_is_that_of_float64_and_does_not_see_what_is_masked(dtype: str) -> None:
    attend = kernels_for().attend
    q, k, v = (random_tensor(*s, dtype=dtype) for s in ((1, 2, 3, 2, 20), (1, 2, 41, 20), (1, 2, 41, 20)))
    mask = torch.rand(1, 1, 2, 41, generator=torch.Generator().manual_seed(1)) < 0.6
    scores = ((q.double() @ k.double()[:, :, None].mT) * 0.3 / 2.0).tanh() * 2.0
    p = scores.masked_fill(~mask[:, :, None], -torch.inf).softmax(-1)
    due, weights = p @ v.double()[:, :, None], torch.empty(p.shape)
    y = attend(q, k, v, mask, 0.3, 2.0, weights=weights)
    assert close(y, due, dtype) and (weights - p).abs().max() < 2e-6
    total, maximum = torch.empty(2, *p.shape[:-1]).unbind(0)
    part = attend(q, k, v, mask, 0.3, 2.0, sums=(total, maximum))
    assert close(part / total[..., None], due, dtype)
    kept = mask[0, 0, 1].nonzero().squeeze(1)  # as if a policy had dropped the others
    last = q[:, :, :, 1:]
    assert torch.equal(attend(last, k[:, :, kept], v[:, :, kept], None, 0.3, 2.0), y[:, :, :, 1:])
    by_head = mask[:, :, None].expand(-1, -1, 3, -1, -1).contiguous()
    assert torch.equal(attend(q, k, v, by_head, 0.3, 2.0), y), "a mask for each query head"
    assert not attend(last, k, v, torch.zeros(1, 1, 1, 41, dtype=torch.bool), 0.3).any(), "it sees nothing"


@needs_triton
@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize("dtype", TYPES)
def test_norm_rotation_activation_and_cap_are_torchs(dtype: str) -> None:
    x, weight = random_tensor(2, 2, 70, dtype=dtype), random_tensor(70, dtype=dtype)
    kernels, exact = kernels_for(x), x.double()
    for w in (weight, None):
        due = F.rms_norm(exact, (70,), None if w is None else w.double(), 1e-5)
        assert close(kernels.rms_norm(x, w, 1e-5), due, dtype)
    gate, up = exact.chunk(2, -1)
    assert close(kernels.apply_gate(x, "silu"), F.silu(gate) * up, dtype)
    assert close(kernels.apply_gate(x, "gelu"), F.gelu(gate, approximate="tanh") * up, dtype)
    heads, turns = random_tensor(2, 3, 6, 16, dtype=dtype), random_tensor(2, 1, 3, 1, 12, dtype=dtype)
    turned, front = heads.clone(), heads.double()[..., :12]
    kernels.rotate_(turned[:, :, 1:5], *turns)  # four of six heads, twelve of sixteen features
    due = front * turns[0].double() + front.roll(6, -1) * turns[1].double()
    assert close(turned[:, :, 1:5, :12], due[:, :, 1:5], dtype)
    assert torch.equal(turned[..., 12:], heads[..., 12:]) and torch.equal(turned[:, :, ::5], heads[:, :, ::5])
    wide = torch.linspace(-60, 60, 501)
    assert (kernels.soft_cap(wide, 4.0) - (wide.double() / 4).tanh() * 4).abs().max() < 2e-6


@needs_triton
@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize(
    ("family", "dtype"),
    [("llama", "bfloat16"), ("gemma2", "float32"), ("gemma2", "bfloat16"), ("qwen3", "bfloat16")],
)
def test_a_token_has_the_same_bits_however_it_is_read(family: str, dtype: str) -> None:
    """Alone, in chunks, in prefill, in a tree, in a batch, with and without a cache; and they are torch's to rounding."""
    decoder = FAMILIES[family][0]().to(getattr(torch, dtype))
    n, start = len(TEXT), len(START)
    alone, cache = read_in_chunks(decoder, [1] * n)
    for sizes in ([n], [2, n - 2]):
        logits, other = read_in_chunks(decoder, sizes)
        assert torch.equal(logits, alone) and same_entries(cache, other), sizes
    both, _ = read_in_chunks(decoder, [4, n - 4], batch=2)
    assert torch.equal(both[0], alone[0]) and torch.equal(both[1], alone[0])
    whole = decoder.forward(Feed.causal_chain(TEXT, 0), None)
    assert torch.equal(whole, alone), "without a cache"
    tree = KVCache(decoder.spec, dtype=decoder.dtype)
    decoder.forward(Feed.causal_chain(TEXT[: start - 1], 0), tree)
    tree.commit(range(start - 1))
    logits = decoder.forward(TREE.build_feed(TEXT[start - 1], start - 1), tree)
    path = [1, 3, 5, 6]  # rows of the nodes 7, 0, 11, 2: the root is row 0
    assert torch.equal(logits[0, path], alone[0, start:])
    tree.commit([0, *path])
    assert same_entries(tree, cache)
    use_kernels("torch")
    theirs = decoder.forward(Feed.causal_chain(TEXT, 0), None)
    assert (whole - theirs).abs().max() < (1e-4 if dtype == "float32" else 0.05) * theirs.abs().max()


@needs_triton
@pytest.mark.usefixtures("triton")
def test_the_greedy_text_of_a_drafter_is_plain_decodings() -> None:
    """In bfloat16, on a toy, with no tolerance for ties; the header names the kernels."""
    model, texts = toys.model(toys.decoder(dtype=torch.bfloat16)), list[list[int]]()
    for drafter in ("", "prompt_lookup"):
        method = toys.method(drafter=drafter) if drafter else toys.method()
        session = Session(model, method, [7, 0, 11, 7, 0, 11, 7], max_new_tokens=6)
        session.start()
        while not session.is_done:
            session.step()
        assert session.header.kernels == "triton"
        assert exactness_mark_text(session.header).endswith("the same bits as plain decoding") is bool(
            drafter
        )
        texts.append(list(session.tokens))
    assert texts[0] == texts[1]


@needs_triton
@pytest.mark.usefixtures("triton")
def test_what_interpreted_kernels_do_not_compute_is_refused() -> None:
    x = torch.ones(2, 8)
    assert kernels_for(x) is not None and kernels_in_use(x.dtype, x.device) == "triton"
    assert kernels_for(x.double()) is None
    with pytest.raises(LoadError, match="do not compute float64: choose float32"):
        load("lab", "float64")
    with pytest.raises(KernelError, match="compute on cpu here, and the model is on cuda"):
        require_kernels(torch.float32, torch.device("cuda"))


def test_where_triton_cannot_compute_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(choice.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        KernelError, match=r"^The kernels called triton need Triton, .*: pip install triton, .*\.$"
    ):
        use_kernels("triton")
    monkeypatch.setattr(choice.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(KernelError, match=r"need a CUDA device, .* set TRITON_INTERPRET=1 .*\.$"):
        use_kernels("triton")
