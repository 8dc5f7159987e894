"""A saved cache: the file that holds a prompt's tokens with their keys and values, and that is read without trusting it.

The file holds the magic, the length of the head (uint32), the head (JSON), then the parts one after another. The parts are
token ids (int32) and the largest number of each token (16 bits). Then, for anchors and for differences: the frequencies
(deflated), the coder's states and its words. All numbers are little-endian.

The head names the model, and what is needed to read the parts. Their sizes follow from the model's shape, so nothing is
allocated that the head alone asks for. A hash over the parts finds damage.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.arguments import format_value
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.trace.values.limits import OWN, TraceError
from decodescope.engine.trace.values.strict_json import parse

from .deltas import (
    ANCHOR,
    GROUP,
    LEVELS,
    CacheCodes,
    CacheShape,
    dequantise_deltas,
    difference_steps,
    from_bfloat16_bits,
    quantise_deltas,
    to_bfloat16_bits,
)
from .entropy import (
    CodedSymbols,
    EntropyError,
    decode_symbols,
    encode_symbols,
    information,
    lane_count,
    symbol_frequencies,
)

SUFFIX = ".dscache"
MAGIC = b"DSCACHE1"
HEAD_BYTES = 1 << 16
_MOST = torch.finfo(torch.bfloat16).max
_SPLITS = (
    "layer",
    "channel",
)  # what shares a frequency table: a layer's keys or values, or each of their channels


class SavedCacheError(Refusal):
    """A cache cannot be saved or loaded. One sentence."""


@dataclass(frozen=True)
class CacheFileHeader:
    """The head of the file.

    model, fingerprint: the cache's model; tokens: ids, one more than entries; splits: what shares a frequency table, for
    anchors and for differences; tables: bytes of these; words: how many the coder wrote of each; sha256: of all parts.
    """

    model: str
    fingerprint: str
    tokens: int
    level: str
    splits: list[str]
    tables: list[int]
    words: list[int]
    sha256: str
    group: int = GROUP


@dataclass(frozen=True)
class SavedCache:
    """A prompt and its cache, read from a file.

    tokens: the prompt; kv: float32 [L, 2, H_kv, n, D], keys as they are rotated and values, of all its tokens but the last
    nbytes: of the file;  bits: average bits of a number in it, everything included
    """

    tokens: list[int]
    kv: Tensor
    nbytes: int
    bits: float
    head: CacheFileHeader

    def record(self) -> dict[str, Any]:
        """As a trace's header records it."""
        entries = len(self.tokens) - 1
        return {
            "entries": entries,
            "bytes": self.nbytes,
            "bits": round(self.bits, 4),
            "sha256": self.head.sha256[:16],
        }


def save(
    path: Path, spec: ModelSpec, fingerprint: str, tokens: list[int], kv: Tensor, level: str = "middle"
) -> SavedCache:
    """Write a new file with the cache of `tokens`; return what reading the file gives.

    kv: float [L, 2, H_kv, n, D], of all tokens but the last. Raises SavedCacheError if the file is there already, cannot be
    written, or would hold numbers that are not finite.
    """
    if not bool(torch.isfinite(kv).all()):
        raise SavedCacheError(
            f"The cache holds numbers that are not finite, so nothing is saved to {path}: try float32."
        )
    layers, _, heads, entries, width = kv.shape
    shape = CacheShape(layers, entries, heads * width)
    flat = kv.detach().float().cpu().transpose(2, 3).reshape(layers, 2, entries, heads * width).numpy()
    with np.errstate(over="ignore", invalid="ignore"):  # asked for in the next line
        codes = quantise_deltas(flat, shape, level)
    if not bool(np.isfinite(codes.largest).all()):
        raise SavedCacheError(
            f"The cache holds numbers or differences above {_MOST:.2g}, the largest that a file takes, so nothing is saved to "
            f"{path}: try another prompt."
        )
    streams = [_Stream.of(x, most) for x, most in _symbols(codes, shape, level)]
    parts = [np.array(tokens, "<i4").tobytes(), to_bfloat16_bits(codes.largest).astype("<u2").tobytes()]
    parts += [x for stream in streams for x in stream.parts()]
    body = b"".join(parts)
    head = CacheFileHeader(
        spec.name,
        fingerprint,
        len(tokens),
        level,
        [x.split for x in streams],
        [len(x.deflated) for x in streams],
        [len(x.coded.words) for x in streams],
        hashlib.sha256(body).hexdigest(),
    )
    text = json.dumps(asdict(head)).encode()
    _write(path, MAGIC + struct.pack("<I", len(text)) + text + body)
    return _build_saved_cache(
        head, tokens, codes, shape, (heads, width), len(MAGIC) + 4 + len(text) + len(body)
    )


def load(path: Path, spec: ModelSpec, fingerprint: str, context: int) -> SavedCache:
    """Load the cache of this model from a file. `context`: the model's longest context.

    Raises SavedCacheError if the file holds no such cache.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head, begun = _parse_header(file.read(len(MAGIC) + 4 + HEAD_BYTES), path)
            _same_model(head, spec, fingerprint, context, path)
            shape = CacheShape(spec.n_layers, head.tokens - 1, spec.n_kv_heads * spec.head_dim, head.group)
            sizes = _part_sizes(head, shape, path)
            if size != begun + sum(sizes):
                wrong = "cut short" if size < begun + sum(sizes) else "longer than it says"
                raise SavedCacheError(
                    f"{path} is {wrong}: {size} bytes instead of {begun + sum(sizes)}; save it again."
                )
            file.seek(begun)
            body = file.read(sum(sizes))
    except OSError as error:
        raise SavedCacheError(f"The cache {path} cannot be read: {error.strerror or error}.") from None
    damaged = SavedCacheError(f"{path} is damaged: what it holds is not what was saved; save it again.")
    if hashlib.sha256(body).hexdigest() != head.sha256:
        raise damaged
    ends = np.cumsum(sizes)
    parts = [body[end - size : end] for size, end in zip(sizes, ends.tolist(), strict=True)]
    tokens = np.frombuffer(parts[0], "<i4")
    largest = from_bfloat16_bits(np.frombuffer(parts[1], "<u2")).reshape(shape.layers, 2, shape.entries)
    foreign = (tokens < 0).any() or (tokens >= spec.vocab).any()
    if foreign or not np.isfinite(largest).all() or (largest < 0).any():
        raise damaged
    try:
        coded = [
            _read_stream(parts[2 + 3 * i : 5 + 3 * i], head.splits[i], shape, i, head.level) for i in (0, 1)
        ]
        codes = CacheCodes(coded[0], coded[1], largest)
        with np.errstate(over="ignore", invalid="ignore"):
            cache = _build_saved_cache(
                head, tokens.tolist(), codes, shape, (spec.n_kv_heads, spec.head_dim), size
            )
            finite = bool(np.isfinite(cache.kv.numpy()).all())
    except EntropyError:
        raise damaged from None
    except MemoryError:
        due = spec.kv_bytes(shape.entries, 4) >> 20
        raise SavedCacheError(
            f"{path} holds {head.tokens} tokens, whose keys and values take {due} MiB, and about three times as much on the "
            "way: there is not so much memory; free some, or save a shorter prompt."
        ) from None
    if not finite:
        raise damaged
    return cache


def _build_saved_cache(
    head: CacheFileHeader,
    tokens: list[int],
    codes: CacheCodes,
    shape: CacheShape,
    heads: tuple[int, int],
    size: int,
) -> SavedCache:
    x = dequantise_deltas(codes, shape, head.level).reshape(shape.layers, 2, shape.entries, *heads)
    # numpy says of memory that it cannot have: MemoryError
    kv = torch.from_numpy(np.ascontiguousarray(x.swapaxes(2, 3)))
    return SavedCache(tokens, kv, size, 8 * size / kv.numel(), head)


def _write(path: Path, data: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    begun = False
    try:
        for taken in (path, partial):
            if taken.exists():
                raise SavedCacheError(f"{taken} exists already: choose another name, or move it away.")
        with partial.open("xb") as file:
            begun = True
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    except BaseException as error:
        if begun:
            with contextlib.suppress(OSError):
                partial.unlink()
        if not isinstance(error, OSError):
            raise
        raise SavedCacheError(f"The cache cannot be saved to {path}: {error.strerror or error}.") from None


# ---- the head


def _parse_header(data: bytes, path: Path) -> tuple[CacheFileHeader, int]:
    """The head, and where the parts begin; every field has its type and range."""
    foreign = SavedCacheError(f"{path} is no cache that decodescope cache save wrote.")
    if data[: len(MAGIC)] != MAGIC or len(data) < len(MAGIC) + 4:
        raise foreign
    length = struct.unpack("<I", data[len(MAGIC) : len(MAGIC) + 4])[0]
    text = data[len(MAGIC) + 4 : len(MAGIC) + 4 + length]
    if length > HEAD_BYTES or len(text) < length:
        raise SavedCacheError(
            f"{path} is cut short, or its head is longer than {HEAD_BYTES} bytes; save it again."
        )
    try:
        fields = parse(text, OWN)
    except TraceError as error:
        raise SavedCacheError(f"{path} cannot be read: {error}; save it again.") from None
    if set(fields) != set(CacheFileHeader.__dataclass_fields__):
        raise foreign
    head = CacheFileHeader(**fields)
    wholes = [head.tokens, head.group, *_as_list(head.tables), *_as_list(head.words)]
    texts = [head.model, head.fingerprint, head.level, head.sha256, *_as_list(head.splits)]
    pairs = all(len(_as_list(x)) == 2 for x in (head.tables, head.words, head.splits))
    if (
        not pairs
        or not all(type(x) is int and 0 <= x < 1 << 40 for x in wholes)
        or not all(type(x) is str for x in texts)
    ):
        raise foreign
    if head.level not in LEVELS or not set(head.splits) <= set(_SPLITS) or not 1 <= head.group <= 1 << 16:
        raise foreign
    return head, len(MAGIC) + 4 + length


def _as_list(x: Any) -> list[Any]:
    return x if isinstance(x, list) else []


def _same_model(head: CacheFileHeader, spec: ModelSpec, fingerprint: str, context: int, path: Path) -> None:
    if head.fingerprint != fingerprint:
        theirs = f"{format_value(head.model)} ({format_value(head.fingerprint)})"
        raise SavedCacheError(
            f"{path} is of the model {theirs}, and here is {spec.name} ({fingerprint}): load that model."
        )
    if not 2 <= head.tokens < context:
        raise SavedCacheError(
            f"{path} holds {head.tokens} tokens, and {spec.name} reads 2 to {context - 1} of a prompt."
        )


def _part_sizes(head: CacheFileHeader, shape: CacheShape, path: Path) -> list[int]:
    """Bytes of the parts, in their order; the head's figures are checked against the limits that the model's shape sets."""
    sizes = [4 * head.tokens, 2 * shape.layers * 2 * shape.entries]
    for i, count in enumerate(_symbol_counts(shape)):
        contexts = shape.layers * 2 * (shape.channels if head.splits[i] == "channel" else 1)
        most = 2 * contexts * _alphabet_size(i, head.level, shape.layers)  # bytes of the frequencies
        if head.words[i] > count or head.tables[i] > most + 1024:  # a symbol takes 16 bits at most
            raise SavedCacheError(
                f"{path} is damaged: its head says more than its model's cache can hold; save it again."
            )
        sizes += [head.tables[i], 8 * lane_count(count), 4 * head.words[i]]
    return sizes


# ---- anchors and differences


def _symbol_counts(shape: CacheShape) -> tuple[int, int]:
    """Numbers of the anchors, and of the differences."""
    each = shape.layers * 2 * shape.channels
    return each * shape.anchors, each * shape.differences


def _alphabet_size(stream: int, level: str, layers: int) -> int:
    """How many symbols there are, for anchors (0) or differences (1)."""
    return 2 * (ANCHOR if stream == 0 else int(difference_steps(level, layers).max())) + 1


def _symbols(codes: CacheCodes, shape: CacheShape, level: str) -> list[tuple[np.ndarray, int]]:
    """Anchors and differences, uint8 [2 L, T, C], with the number of symbols."""
    both = (codes.anchors, codes.differences)
    return [
        (x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), _alphabet_size(i, level, shape.layers))
        for i, x in enumerate(both)
    ]


def _contexts(layers: int, tokens: int, channels: int, split: str) -> np.ndarray:
    """[2 layers * tokens * channels], in the smallest type that holds them: the frequency table of each symbol."""
    layer = np.arange(2 * layers)[:, None, None]
    each = layer * channels + np.arange(channels) if split == "channel" else layer
    each = each.astype(np.min_scalar_type(2 * layers * channels))
    return np.broadcast_to(each, (2 * layers, tokens, channels)).ravel()


@dataclass(frozen=True)
class _Stream:
    """Anchors or differences, coded.

    split: what shares a frequency table; deflated: the tables; bits: the information in the symbols under them.
    """

    split: str
    deflated: bytes
    coded: CodedSymbols

    @classmethod
    def of(cls, symbols: np.ndarray, most: int) -> _Stream:
        """Coded by the frequencies of layers or those of channels, whichever makes the smaller file."""
        layers, tokens, channels = symbols.shape
        options = []
        for split in _SPLITS:
            contexts = _contexts(layers // 2, tokens, channels, split)
            counts = np.zeros((layers * (channels if split == "channel" else 1), most), np.int64)
            np.add.at(counts, (contexts, symbols.ravel()), 1)
            table = symbol_frequencies(counts)
            deflated = zlib.compress(table.astype("<u2").tobytes(), 9)
            options.append((8 * len(deflated) + information(counts), split, contexts, table, deflated))
        _, split, contexts, table, deflated = min(options, key=lambda x: x[0])
        return cls(split, deflated, encode_symbols(symbols.ravel(), contexts, table))

    def parts(self) -> list[bytes]:
        """The parts as the file holds them."""
        return [
            self.deflated,
            self.coded.states.astype("<u8").tobytes(),
            self.coded.words.astype("<u4").tobytes(),
        ]


def _read_stream(parts: list[bytes], split: str, shape: CacheShape, stream: int, level: str) -> np.ndarray:
    """uint8 [L, 2, T, C]: the anchors (stream 0) or the differences (1). Raises EntropyError."""
    tokens, most = (shape.anchors, shape.differences)[stream], _alphabet_size(stream, level, shape.layers)
    contexts = _contexts(shape.layers, tokens, shape.channels, split)
    rows = shape.layers * 2 * (shape.channels if split == "channel" else 1)
    inflate = zlib.decompressobj()
    try:
        table = inflate.decompress(parts[0], 2 * rows * most)
    except zlib.error:
        raise EntropyError from None
    if len(table) != 2 * rows * most:
        raise EntropyError
    coded = CodedSymbols(
        np.frombuffer(parts[1], "<u8").astype(np.uint64), np.frombuffer(parts[2], "<u4").astype(np.uint32)
    )
    symbols = decode_symbols(coded, contexts, np.frombuffer(table, "<u2").reshape(rows, most))
    return symbols.reshape(shape.layers, 2, tokens, shape.channels)
