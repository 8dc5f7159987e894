"""CacheGen: a cache in a file, in as few bits as its integers allow, and runs that continue without reading the prompt."""

from __future__ import annotations

import hashlib
import json
import random
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import toys

from decodescope.engine.saved.deltas import (
    ANCHOR,
    LEVELS,
    CacheShape,
    dequantise_deltas,
    difference_steps,
    from_bfloat16_bits,
    quantise_deltas,
    to_bfloat16_bits,
)
from decodescope.engine.saved.entropy import decode_symbols, encode_symbols, information, symbol_frequencies
from decodescope.engine.saved.file import MAGIC, SavedCacheError, _contexts, save
from decodescope.engine.session.cache_files import load_cache, save_cache
from decodescope.engine.session.method import MethodError
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.session.session import Session
from decodescope.engine.trace import Trace, check

PROMPT = toys.prompts(1, 300, seed=5)[0]
SHAPE = CacheShape(layers=6, entries=47, channels=32)


def counted(symbols: np.ndarray, contexts: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    counts = np.zeros(shape, np.int64)
    np.add.at(counts, (contexts, symbols), 1)
    return counts


@pytest.mark.parametrize(
    ("value", "reason"), [(3.4e38, "the largest that a file takes"), (float("inf"), "not finite")]
)
def test_numbers_that_a_file_cannot_hold_are_refused_and_nothing_is_written(
    value: float, reason: str, tmp_path: Path
) -> None:
    kv = torch.full((3, 2, 2, 4, 8), value)
    with pytest.raises(SavedCacheError, match=reason):
        save(tmp_path / "x.dscache", toys.SPEC, "0" * 16, [1, 2, 3, 4, 5], kv)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("count", "symbols", "contexts"), [(0, 2, 1), (1, 9, 1), (40_000, 31, 64), (30_001, 255, 3)]
)
def test_symbols_come_back_in_about_as_many_bits_as_they_tell(
    count: int, symbols: int, contexts: int
) -> None:
    chance = np.random.default_rng(0)
    where = np.sort(chance.integers(0, contexts, count))
    drawn = np.clip(np.rint(chance.normal(symbols / 2, 1 + where % 5)), 0, symbols - 1).astype(np.uint8)
    drawn[where == 1] = 1  # a context with one symbol carries no information
    counts = counted(drawn, where, (contexts, symbols))
    table = symbol_frequencies(counts)
    assert (
        set(table.astype(int).sum(1)[counts.sum(1) > 0]) <= {1 << 16}
        and not table[counts == 0].astype(int).sum() > contexts
    )
    coded = encode_symbols(drawn, where, table)
    assert np.array_equal(decode_symbols(coded, where, table), drawn)
    if count > 1:
        assert 0.999 < 8 * coded.nbytes / information(counts) < 1.02


def test_no_number_is_further_off_than_half_a_step_and_finer_levels_are_nearer() -> None:
    chance = np.random.default_rng(1)
    x = chance.normal(size=(6, 2, 47, 32)).cumsum(2) * chance.normal(size=32) ** 2
    x[2, 1, 13] = 0
    errors = []
    for level in LEVELS:
        codes, fine = (
            quantise_deltas(x, SHAPE, level),
            np.broadcast_to(difference_steps(level, 6)[:, :, None, None], (6, 2, 47, 1)).copy(),
        )
        fine[:, :, ::10] = ANCHOR
        assert np.array_equal(
            from_bfloat16_bits(to_bfloat16_bits(codes.largest)), codes.largest
        ) and codes.anchors.shape == (
            6,
            2,
            5,
            32,
        )
        error = np.abs(dequantise_deltas(codes, SHAPE, level, np.float64) - x)
        assert (error <= codes.largest[..., None] / fine / 2 * (1 + 1e-9)).all() and error.max() > 0.1
        errors.append(np.square(error).sum())
    assert errors[0] > errors[1] > errors[2]
    assert (difference_steps("middle", 6) == [[15, 15], [15, 7], [7, 7], [7, 7], [7, 7], [7, 7]]).all(), (
        "deeper layers are coarser"
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "toy.dscache"
    save_cache(toys.pair()[0], PROMPT, path)
    return path


def test_file_holds_the_same_codes_within_two_percent_of_their_entropy(saved: Path, tmp_path: Path) -> None:
    target = toys.pair()[0]
    written, read = save_cache(target, PROMPT, tmp_path / "again.dscache"), load_cache(target, saved)
    assert read.tokens == PROMPT and torch.equal(written.kv, read.kv), "codes are bit-equal"
    assert (
        saved.read_bytes() == (tmp_path / "again.dscache").read_bytes()
        and read.nbytes == saved.stat().st_size
    )
    shape, head = CacheShape(3, 299, 16), read.head
    session = Session(target, None, PROMPT, max_new_tokens=1)
    session.start()
    kv = torch.stack([torch.stack([store.k[0], store.v[0]]) for store in session.target.cache.layers]).float()
    codes = quantise_deltas(kv.transpose(2, 3).reshape(3, 2, 299, 16).numpy(), shape, "middle")
    assert np.array_equal(
        dequantise_deltas(codes, shape, "middle"), read.kv.transpose(2, 3).reshape(3, 2, 299, 16).numpy()
    )
    assert head.splits == ["layer", "layer"], (
        "of a cache so small the frequencies of each channel would take more"
    )
    for i, one in enumerate((codes.anchors, codes.differences)):
        symbols = one.reshape(6, -1)
        tells = information(counted(symbols.ravel(), np.repeat(np.arange(6), symbols.shape[1]), (6, 255)))
        lanes = max(symbols.size // 4096, 1)
        assert 32 * head.words[i] + 64 * lanes < 1.02 * tells + 64, (
            "a state of 64 bits remains of a short stream"
        )
    assert 8 * saved.stat().st_size / kv.numel() == read.bits < 7, "of 64"


@torch.inference_mode()
def test_a_run_goes_on_from_a_loaded_cache_without_a_pass_over_the_prompt(saved: Path) -> None:
    target = toys.pair()[0]
    cache = load_cache(target, saved)
    session = Session(target, toys.method(drafter="prompt_lookup"), PROMPT, saved=cache, max_new_tokens=12)
    session.sink = trace = Trace()
    session.start()
    assert not session.prefilled.passes and session.target.tokens == PROMPT[:-1]
    for store, kv in zip(session.target.cache.layers, cache.kv, strict=True):
        assert torch.equal(torch.stack([store.k[0], store.v[0]]), kv.double())
    plain = Session(target, None, PROMPT, max_new_tokens=12)
    plain.start()
    for store, kv in zip(plain.target.cache.layers, cache.kv, strict=True):
        assert not torch.equal(store.k[0], kv[0].double()), "the file is lossy"
        store.kv[:, 0, :, : store.n] = kv
    for one in (session, plain):
        for _ in one.stream():
            pass
    assert session.tokens == plain.tokens and len(session.tokens) == 312
    assert (
        trace.header.loaded == cache.record()
        and cache.record()["entries"] == 299
        and not trace.header.lossless
    )
    assert check(trace).ok and plain.header.loaded is None and plain.header.lossless
    with pytest.raises(
        MethodError, match=r"^This run went on from a loaded cache, which its trace does not hold"
    ):
        Fork(target, trace.header, list(trace.steps), 2)
    longer = Session(target, None, [*PROMPT, 1, 2, 3], saved=cache, max_new_tokens=4)
    assert [x.tokens for x in longer.start().passes] == [3], (
        "the last token of the file, and what follows but its last"
    )


def test_what_needs_a_pass_over_the_prompt_is_refused(saved: Path) -> None:
    target = toys.pair()[0]
    cache = load_cache(target, saved)
    for parts, words in (
        (dict(policy="snapkv"), "snapkv works from the prompt's first pass on, .* choose keep_all"),
        (dict(kv_compression="kivi"), "kivi works from .* choose unpacked"),
        (dict(prompt_compression="gemfilter"), "gemfilter works from .* choose whole_prompt"),
        (dict(drafter="medusa"), "medusa wants what passes over the prompt leave behind"),
        (
            dict(strategy="contrastive_search"),
            "contrastive_search wants what passes .*: choose another strategy",
        ),
    ):
        with pytest.raises(MethodError, match=words):
            Session(target, toys.method(**parts), PROMPT, saved=cache)
    with pytest.raises(
        MethodError, match=r"^the loaded cache is of toy \(0{16}\), and this is .* \(1{16}\): load that mod"
    ):
        Session(replace(target, fingerprint="1" * 16), None, PROMPT, saved=cache)
    with pytest.raises(MethodError, match=r"does not begin with the 300 tokens of the loaded cache"):
        Session(target, None, PROMPT[:-1], saved=cache)


def repacked(data: bytes, **changes: object) -> bytes:
    """A file with a changed header."""
    length = struct.unpack("<I", data[8:12])[0]
    head = json.dumps({**json.loads(data[12 : 12 + length]), **changes}).encode()
    return MAGIC + struct.pack("<I", len(head)) + head + data[12 + length :]


def test_files_that_are_foreign_cut_damaged_or_of_another_model_are_refused(
    saved: Path, tmp_path: Path
) -> None:
    target, data, path = toys.pair()[0], saved.read_bytes(), tmp_path / "x.dscache"

    def refused(data: bytes) -> str:
        path.write_bytes(data)
        with pytest.raises(SavedCacheError) as error:
            load_cache(target, path)
        assert str(error.value).endswith(".") and "\n" not in str(error.value)
        return str(error.value)

    for end in (0, 5, 11, 40, 300, 1000, len(data) - 1):
        assert "no cache" in (sentence := refused(data[:end])) or "cut short" in sentence
    assert "longer than it says" in refused(data + b"x") and "no cache" in refused(b"\x80\x04pickle" * 99)
    other = data.replace(b'"0000000000000000"', b'"1111111111111111"')
    assert "is of the model 'toy' ('1111111111111111'), and here is toy (0000000000000000)" in refused(other)
    for changes in (
        {"tokens": 1 << 39},
        {"tokens": -1},
        {"tokens": True},
        {"group": 0},
        {"splits": ["layer", []]},
        {"more": 1},
    ):
        refused(repacked(data, **changes))
    for changes in ({"words": [1 << 39, 1]}, {"tables": [1 << 39, 1]}, {"level": "x"}, {"sha256": "0" * 64}):
        refused(repacked(data, **changes))
    assert "is not UTF-8" in refused(data[:13] + b"\xff" + data[14:]) and "is not JSON" in refused(
        data[:13] + b"x" + data[14:]
    )
    with pytest.raises(SavedCacheError, match="exists already"):
        save_cache(target, PROMPT, saved)
    with pytest.raises(SavedCacheError, match="cannot be read"):
        load_cache(target, tmp_path)
    for place in (saved / "x.dscache", tmp_path / ("x" * 251)):
        with pytest.raises(SavedCacheError, match="cannot be saved"):
            save_cache(target, PROMPT, place)
    (tmp_path / "y.dscache.partial").write_bytes(b"somebody's")
    with pytest.raises(SavedCacheError, match="exists already"):
        save_cache(target, PROMPT, tmp_path / "y.dscache")
    assert (tmp_path / "y.dscache.partial").read_bytes() == b"somebody's"


def test_a_file_whose_hash_was_made_to_fit_can_only_hold_other_numbers(tmp_path: Path) -> None:
    target, path = toys.pair()[0], tmp_path / "x.dscache"
    save_cache(target, PROMPT[:16], path)
    data = path.read_bytes()
    begun, refused = 12 + struct.unpack("<I", data[8:12])[0], 0
    for seed in range(30):
        body, chance = bytearray(data[begun:]), random.Random(seed)
        body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        path.write_bytes(repacked(data[:begun] + bytes(body), sha256=hashlib.sha256(body).hexdigest()))
        try:
            read = load_cache(target, path)
        except SavedCacheError:
            refused += 1
        else:
            assert read.kv.shape == (3, 2, 2, 15, 8) and all(0 <= x < 13 for x in read.tokens)
    assert 10 < refused < 30, "states that do not end as they began are noticed"


def test_numbers_come_back_in_hardly_more_memory_than_they_take() -> None:
    shape = CacheShape(layers=16, entries=500, channels=64)
    codes = quantise_deltas(
        np.random.default_rng(2).normal(size=(16, 2, 500, 64)).astype(np.float32), shape, "middle"
    )
    tracemalloc.start()
    try:
        nbytes = dequantise_deltas(codes, shape, "middle").nbytes
        assert nbytes < tracemalloc.get_traced_memory()[1] < 1.5 * nbytes
    finally:
        tracemalloc.stop()
    assert [_contexts(16, 3, n, "channel").dtype.itemsize for n in (4, 64, 4096)] == [1, 2, 4], (
        "a cache has few contexts"
    )


def test_a_cache_without_room_is_one_sentence(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise MemoryError

    for step in (
        "unique",
        "ascontiguousarray",
        "isfinite",
    ):  # while it is read, while it is copied, and after that
        # the first call only looks at the largest numbers
        calls = iter((getattr(np, step),)) if step == "isfinite" else iter(())
        monkeypatch.setattr(np, step, lambda *args, calls=calls: next(calls, full)(*args))
        due = r"holds 300 tokens, whose keys and values take \d+ MiB, .* a shorter prompt\.$"
        with pytest.raises(SavedCacheError, match=due):
            load_cache(toys.pair()[0], saved)
        monkeypatch.undo()
