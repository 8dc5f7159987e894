"""The kernels called rows: a token's row has the same bits in any number of rows, and torch's numbers."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import toys
from shapes import FAMILIES
from sizes import thinned
from torch import Tensor

from decodescope.engine import load, run
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.kernels import choice
from decodescope.engine.kernels.choice import (
    KernelError,
    OneThreadForTorch,
    kernels_for,
    kernels_in_use,
    kernels_set_to,
    pass_threads,
    set_pass_threads,
    use_kernels,
)
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.compressed_matrices import Int8Matrix
from decodescope.engine.model.layers.matrix import linear
from decodescope.engine.model.stores.cache import KVCache

TYPES = {
    "float32": 3e-6,
    "bfloat16": 2e-2,
    "float16": 3e-3,
}  # -> the allowed error, relative to the largest number
TEXT = [*toys.PROMPT, 7, 0, 11, 2, 2, 9, 10, 4, 1, 3, 3, 8, 12, 5, 6, 0, 2, 1, 7, 7]
TREE = Draft([7, 1, 0, 4, 11, 2], [ROOT, ROOT, 0, 1, 2, 4])  # it contains the path 7, 0, 11, 2


@pytest.fixture(autouse=True)
def kernels() -> Iterator[None]:
    """Use the rows kernels in this file's tests, and restore torch's kernels and threads afterwards."""
    threads = pass_threads()
    with kernels_set_to("rows"), torch.inference_mode():
        yield
    set_pass_threads(threads)


def close(a: Tensor, b: Tensor, dtype: str) -> bool:
    return bool((a.double() - b).abs().max() <= TYPES[dtype] * b.abs().max())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("outputs", "k"), [(1, 8), (13, 37), (200, 64), (96, 576)])
def test_a_product_of_many_rows_holds_those_of_each(outputs: int, k: int, dtype: str) -> None:
    kind = getattr(torch, dtype)
    draw = torch.Generator().manual_seed(outputs)
    x, w, bias = (
        torch.randn(shape, generator=draw).to(kind) for shape in ((50, k), (outputs, k), (outputs,))
    )
    tensors = kernels_for(x)
    many = tensors.linear(x, w, bias)
    assert close(many, x.double() @ w.double().T + bias.double(), dtype)
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 13, 49):
        for threads in (1, 3):
            set_pass_threads(threads)
            assert torch.equal(tensors.linear(x[:rows], w, bias), many[:rows]), (rows, threads)
    strange = w.T.contiguous().T  # columns that are not contiguous
    assert torch.equal(tensors.linear(x[:3], strange, bias), many[:3])
    assert tensors.linear(x[:0], w).shape == (0, outputs)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", [64, 20, 7])
def test_attention_is_that_of_float64_and_of_a_row_alone(width: int, dtype: str) -> None:
    kind, draw = getattr(torch, dtype), torch.Generator().manual_seed(width)
    tensors = kernels_for()
    for B, H, g, T, S in ((1, 3, 3, 1, 100), (2, 2, 1, 9, 41), (1, 1, 8, 3, 9), (1, 2, 2, 20, 20)):
        q, k, v = (
            torch.randn(shape, generator=draw).to(kind)
            for shape in ((B, H, g, T, width), *[(B, H, S, width)] * 2)
        )
        mask = torch.rand(B, 1, T, S, generator=draw) < 0.5
        mask[..., 0] = True
        for seen, cap in ((None, None), (mask, None), (mask, 2.0)):
            scores = (q.double() @ k.double()[:, :, None].mT) * 0.3
            scores = scores if cap is None else (scores / cap).tanh() * cap
            if seen is not None:
                scores.masked_fill_(~seen[:, :, None], -torch.inf)
            p = scores.softmax(-1)
            weights = torch.empty(p.shape)
            y = tensors.attend(q, k, v, seen, 0.3, cap, weights=weights)
            assert close(y, p @ v.double()[:, :, None], dtype) and (weights - p).abs().max() < 2e-6
            total, maximum = torch.empty(2, *p.shape[:-1]).unbind(0)
            part = tensors.attend(q, k, v, seen, 0.3, cap, sums=(total, maximum))
            assert close(
                part / total[..., None],
                p @ v.double()[:, :, None],
                "float32" if dtype == "float32" else dtype,
            )
            assert torch.allclose(maximum.double(), scores.amax(-1), rtol=1e-5, atol=1e-6)
            row = tensors.attend(q[:, :, :, -1:], k, v, None if seen is None else seen[..., -1:, :], 0.3, cap)
            assert torch.equal(row, y[:, :, :, -1:])
        kept = mask[0, 0, -1].nonzero().squeeze(1)  # as if a policy had dropped the others
        one = tensors.attend(q[:1, :, :, -1:], k[:1, :, kept], v[:1, :, kept], None, 0.3)
        assert torch.equal(one, tensors.attend(q, k, v, mask, 0.3)[:1, :, :, -1:])
    blind = torch.zeros(1, 1, 1, 5, dtype=torch.bool)
    assert not tensors.attend(q[:, :, :, :1], k[:, :, :5], v[:, :, :5], blind, 0.3).any(), (
        "a row that sees nothing"
    )


@pytest.mark.parametrize("dtype", TYPES)
def test_norm_rotation_activation_and_cap_are_torchs(dtype: str) -> None:
    kind, draw = getattr(torch, dtype), torch.Generator().manual_seed(2)
    x, weight, heads = (
        torch.randn(shape, generator=draw).to(kind) for shape in ((2, 5, 70), (70,), (2, 5, 6, 16))
    )
    tensors, exact = kernels_for(x), x.double()
    assert close(tensors.rms_norm(x, weight, 1e-5), F.rms_norm(exact, (70,), weight.double(), 1e-5), dtype)
    assert close(tensors.rms_norm(x, None, 1e-5), F.rms_norm(exact, (70,), None, 1e-5), dtype)
    gate, up = (3 * exact).chunk(2, -1)
    three = (3 * x).to(kind)
    gate, up = three.double().chunk(2, -1)
    assert close(tensors.apply_gate(three, "silu"), F.silu(gate) * up, dtype)
    assert close(tensors.apply_gate(three, "gelu"), F.gelu(gate, approximate="tanh") * up, dtype)
    cos, sin = (torch.randn(1, 5, 1, 12, generator=draw).to(kind) for _ in range(2))
    turned, front = heads.clone(), heads.double()[..., :12]
    tensors.rotate_(turned[:, :, 1:5], cos, sin)  # four of six heads, twelve of sixteen features
    due = front * cos.double() + front.roll(6, -1) * sin.double()
    assert close(turned[:, :, 1:5, :12], due[:, :, 1:5], dtype)
    assert torch.equal(turned[..., 12:], heads[..., 12:]) and torch.equal(turned[:, :, ::5], heads[:, :, ::5])
    wide = torch.linspace(-60, 60, 5001)
    assert (tensors.soft_cap(wide, 4.0) - (wide.double() / 4).tanh() * 4).abs().max() < 2e-6


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


@pytest.mark.parametrize(("family", "dtype"), thinned(2, FAMILIES, TYPES))
def test_a_token_has_the_same_bits_however_it_is_read(family: str, dtype: str) -> None:
    """Alone, in chunks, in prefill, in a tree, in a batch, with one to four threads: logits, keys and values."""
    decoder = FAMILIES[family][0]().to(getattr(torch, dtype))
    if not decoder.spec.causal:
        return  # such a model reads all rows in one pass
    n = len(TEXT)
    alone, cache = read_in_chunks(decoder, [4] + [1] * (n - 4))
    for sizes in ([n], [4, 2, 3, 5, n - 14], [7, n - 7]):
        for threads in (1, 2, 4):
            set_pass_threads(threads)
            logits, other = read_in_chunks(decoder, sizes)
            assert torch.equal(logits, alone), (sizes, threads)
            for a, b in zip(cache.layers, other.layers, strict=True):
                assert torch.equal(a.k, b.k) and torch.equal(a.v, b.v), sizes
    both, _ = read_in_chunks(decoder, [4] + [1] * (n - 4), batch=2)
    assert torch.equal(both[0], alone[0]) and torch.equal(both[1], alone[0])
    assert torch.equal(decoder.forward(Feed.causal_chain(TEXT, 0), None), alone), "without a cache"


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_a_path_in_a_tree_has_the_bits_of_a_chain(family: str, dtype: str) -> None:
    decoder = FAMILIES[family][0]().to(getattr(torch, dtype))
    start = TEXT.index(7, len(toys.PROMPT))
    assert TEXT[start : start + 4] == [7, 0, 11, 2]
    alone, cache = read_in_chunks(decoder, [start, *[1] * 4])
    tree = KVCache(decoder.spec, dtype=decoder.dtype)
    decoder.forward(Feed.causal_chain(TEXT[: start - 1], 0), tree)
    tree.commit(range(start - 1))
    feed = TREE.build_feed(TEXT[start - 1], start - 1)
    logits = decoder.forward(feed, tree)
    path = [1, 3, 5, 6]  # rows of the nodes 7, 0, 11, 2: the root is row 0
    assert feed.tokens[0, path].tolist() == [7, 0, 11, 2]
    assert torch.equal(logits[0, path], alone[0, start : start + 4])
    tree.commit([0, *path])
    for a, b in zip(cache.layers, tree.layers, strict=True):
        assert torch.equal(a.k, b.k) and torch.equal(a.v, b.v)


@pytest.mark.parametrize("lower", [1, 2])
def test_caches_of_layers_may_have_room_for_different_numbers_of_rows(lower: int) -> None:
    """A drafter that drops rows after some layers leaves the caches of these larger than those of the others."""
    decoder = toys.decoder()
    n = len(TEXT)
    alone, _ = read_in_chunks(decoder, [4] + [1] * (n - 4))
    cache = KVCache(decoder.spec)
    decoder.forward(Feed.causal_chain(TEXT[:4], 0), cache)
    cache.commit(range(4))
    for wide in (60, 300):
        decoder.states_before(Feed.causal_chain([1] * wide, 4), cache, lower)
        cache.rollback()
    room = [store.kv.shape[3] for store in cache.layers]
    assert room[0] > room[-1], "the test needs caches of different sizes"
    for at in range(4, n):
        logits = decoder.forward(Feed.causal_chain([TEXT[at]], at), cache)
        assert torch.equal(logits[0, 0], alone[0, at])
        cache.commit([0])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("packed", [False, True])
def test_logits_of_half_types_are_rounded_to_float32_alone(dtype: str, packed: bool) -> None:
    """Sums of a half type come out in float32 where that is asked for; rounded again they are those of the half type."""
    torch.manual_seed(3)
    kind = getattr(torch, dtype)
    x, weight, bias = torch.randn(5, 64).to(kind), torch.randn(33, 64).to(kind), torch.randn(33).to(kind)
    codes, scale = torch.randint(-127, 128, (33, 64), dtype=torch.int8), torch.rand(33).to(kind)
    matrix = Int8Matrix.from_codes(codes, scale) if packed else weight
    numbers = codes.double() * scale.double()[:, None] if packed else weight.double()
    wide = linear(x, matrix, bias, dtype=torch.float32)
    assert wide.dtype == torch.float32 and torch.equal(wide.to(kind), linear(x, matrix, bias))
    exact = x.double() @ numbers.T + bias.double()
    assert (wide - exact).abs().max() < 2e-6 * exact.abs().max()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_numbers_are_torchs_to_rounding(family: str) -> None:
    decoder = FAMILIES[family][0]().to(torch.float32)
    feed = Feed.causal_chain(TEXT, 0)
    ours = decoder.forward(feed, None)
    use_kernels("torch")
    theirs = decoder.forward(feed, None)
    assert not torch.equal(ours, theirs), "another order of sums"
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_greedy_text_of_a_lossless_drafter_is_plain_decodings(dtype: str) -> None:
    """On the shipped model, with no tolerance for ties."""
    model, prompt = load("lab", dtype), "One day a fox met a hen and they"
    plain = run(model, None, prompt, max_new_tokens=60)
    assert plain.trace.header.kernels == "rows"
    for drafter in ("prompt_lookup", "anpd", "token_recycling", "medusa", "early_exit"):
        assert run(model, drafter, prompt, max_new_tokens=60).tokens == plain.tokens, drafter


def test_the_norm_of_a_wide_row_has_room() -> None:
    x, weight = torch.randn(3, 20_000), torch.randn(20_000)
    due = F.rms_norm(x.double(), (20_000,), weight.double(), 1e-5)
    assert close(kernels_for(x).rms_norm(x, weight, 1e-5), due, "float32")


def test_layers_that_nobody_has_are_given_back_at_once() -> None:
    decoder = FAMILIES["llama"][0]()
    read_in_chunks(decoder, [4, 1])
    layer = weakref.ref(decoder.layers[0])
    assert layer().programs
    del decoder
    assert layer() is None, "its program does not hold it"


def test_several_threads_run_passes_at_the_same_time() -> None:
    set_pass_threads(2)
    decoder = FAMILIES["llama"][0]()
    due, wrong = read_in_chunks(decoder, [4] + [1] * (len(TEXT) - 4))[0], list[int]()

    def read(number: int) -> None:
        with torch.inference_mode():
            for _ in range(8):
                if not torch.equal(read_in_chunks(decoder, [4] + [1] * (len(TEXT) - 4))[0], due):
                    wrong.append(number)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_who_computes_what() -> None:
    x = torch.ones(2, 8)
    assert kernels_for(x) is not None and kernels_in_use() == "rows"
    assert kernels_for(x.double()) is None and kernels_in_use(torch.float64, x.device) == "torch"
    assert kernels_in_use(torch.bfloat16, torch.device("cuda")) == "torch"
    with torch.inference_mode(False), torch.enable_grad():
        assert kernels_for(x) is None, "who wants a gradient gets torch's"
    use_kernels("torch")
    assert kernels_for(x) is None and kernels_in_use() == "torch"


def test_what_cannot_be_used_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        KernelError, match=r"^There are no kernels called 'fast'; choose torch, rows or triton\.$"
    ):
        use_kernels("fast")
    monkeypatch.setattr(choice.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(KernelError, match=r"^The kernels called rows need numba, .*: pip install numba\.$"):
        use_kernels("rows")


@pytest.fixture
def unchosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in which nobody has chosen yet."""
    monkeypatch.setattr(choice, "_choice", choice._Choice())


@pytest.mark.usefixtures("unchosen")
def test_where_nobody_chooses_rows_compute_unless_they_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert kernels_in_use() == "rows" and kernels_for(torch.ones(2)) is not None
    for name, value in (("find_spec", lambda name: None), ("machine", lambda: "x86_64")):
        monkeypatch.setattr(choice, "_choice", choice._Choice())
        with monkeypatch.context() as patch:
            patch.setattr(choice.importlib.util if name == "find_spec" else choice.platform, name, value)
            patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
            assert kernels_in_use() == "torch", name
    monkeypatch.setattr(choice, "_choice", choice._Choice())

    def fail() -> None:
        raise RuntimeError("no space left")

    monkeypatch.setattr(choice, "_compiled_kernels", fail)
    assert kernels_in_use() == "torch" and "no space left" in caplog.text


def test_a_folder_that_cannot_be_written_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = choice._writable_folder(tmp_path / "file" / "kernels")
    assert home.is_dir() and tmp_path not in home.parents
    assert choice._writable_folder(tmp_path / "kernels") == tmp_path / "kernels"


def test_torch_has_one_thread_while_steps_are_computed_and_its_own_number_outside() -> None:
    cpu, before = torch.device("cpu"), torch.get_num_threads()
    set_pass_threads(3)
    with OneThreadForTorch(torch.bfloat16, cpu):
        assert (torch.get_num_threads(), pass_threads()) == (1, 3)
        with OneThreadForTorch(torch.float32, cpu):
            assert (torch.get_num_threads(), pass_threads()) == (1, 3)
            set_pass_threads(2)
        assert (torch.get_num_threads(), pass_threads()) == (1, 2)
    assert (torch.get_num_threads(), pass_threads()) == (2, 2)
    with OneThreadForTorch(torch.float64, cpu):
        assert torch.get_num_threads() == 2, "torch computes that type"
    set_pass_threads(before)


def test_importing_the_engine_compiles_nothing() -> None:
    import subprocess

    code = "import sys, decodescope.engine.session.load; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
