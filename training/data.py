"""Token ids of the corpus by split and kind, and training windows mixed from them in fixed shares.

A chat document is never cut: its question and its answer share one window, or it waits for a longer window. Plain text (code,
documentation, stories) is cut where a window ends and goes on in a later one, so that no window has padding. Documents that
share a window can see each other; <|end|> separates them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

END = 0
USER = 2
ASSISTANT = 3
SYSTEM = 4
ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "training"
TOKENIZER = ROOT / "assets" / "models" / "lab" / "tokenizer.json"
CORPUS, TOKENS = BUILD / "corpus.jsonl", BUILD / "tokens.npz"
PIECE = 2048  # plain documents are shuffled in pieces of so many tokens
LANES = 4  # so many pieces of a plain kind are open at a time: neighbouring windows come from different files


@dataclass(frozen=True)
class CorpusText:
    """The documents of one kind and split: ids uint16 [n] in a row, where each document ends, and their bytes."""

    ids: np.ndarray
    ends: np.ndarray  # int64 [documents]
    size: int  # bytes of UTF-8
    chat: bool

    @property
    def bounds(self) -> np.ndarray:
        """int64 [documents, 2]: start and end of every document."""
        return np.stack((np.concatenate(([0], self.ends[:-1])), self.ends), 1)

    @property
    def weight(self) -> float:
        """Its weight relative to other texts of its group."""
        return float(len(self.ids))

    def streams(self, kind: str, share: float, lengths: Sequence[int], seed: int) -> list[TextSource]:
        """Where a mixer takes it from, `share` of all tokens in sum."""
        parts = units_by_length(self, lengths) if self.chat else cut_units(self)
        shares = [share * float((units[:, 1] - units[:, 0]).sum()) / len(self.ids) for _, units, _ in parts]
        return [
            Stream(f"{kind}/{name}", self.chat, largest, part, seed, self.ids, units)
            for part, (name, units, largest) in zip(shares, parts, strict=True)
        ]


@dataclass(frozen=True)
class GeneratedText:
    """Documents of one kind that are made when they are read, each only once.

    `make(r, split, window)` writes one for a window of so many tokens; a document that does not fit is drawn again. Windows
    below `least` tokens have none, if there are others.
    """

    make: Callable[[Random, str, int], str]
    chat: bool
    split: str = "train"
    least: int = 0
    weight: float = 1.0

    def first_documents(self, length: int, count: int) -> np.ndarray:
        """uint16 [n]: its first documents for windows of `length` tokens, `count` windows of them."""
        spring, parts = self.streams("first", 1.0, [length], 0)[0], []
        while sum(map(len, parts)) < length * count:
            parts.append(spring.take(length + 1))
        return np.concatenate(parts)

    def streams(self, kind: str, share: float, lengths: Sequence[int], seed: int) -> list[TextSource]:
        """Where a mixer takes it from, `share` of all tokens in sum; those of every longer window have half as much."""
        some = [length for length in sorted(lengths) if length >= self.least] or lengths
        parts = {length: 0.5**i for i, length in enumerate(some)}
        whole = sum(parts.values())
        return [
            GeneratedSource(
                f"{kind}/{length}", self.chat, length + 1, share * part / whole, seed, self.make, self.split
            )
            for length, part in parts.items()
        ]


def encode_documents(
    documents: Iterable[dict], tokenizer: str | None = None
) -> dict[tuple[str, str], CorpusText]:
    """(split, kind) -> text. In documents with "chat" the special tokens count, in others they are plain characters.

    tokenizer: the text of a tokenizer.json; that of `lab` without one
    """
    grouped: dict[tuple[str, str], list[dict]] = {}
    for d in documents:
        grouped.setdefault((d["split"], d["kind"]), []).append(d)
    out = {}
    for key, some in grouped.items():
        is_chat = bool(some[0].get("chat"))
        if any(bool(d.get("chat")) != is_chat for d in some):
            raise ValueError(
                f"Some documents of the kind {key[1]!r} are chats and some are not: give them two kinds."
            )
        parts = []
        for at in range(0, len(some), 2000):
            coded = load_tokenizer(is_chat, tokenizer).encode_batch([d["text"] for d in some[at : at + 2000]])
            parts += [np.array([*c.ids, END], dtype=np.uint16) for c in coded]
        out[key] = CorpusText(
            np.concatenate(parts),
            np.cumsum([len(p) for p in parts]),
            sum(len(d["text"].encode()) for d in some),
            is_chat,
        )
    return out


def write(texts: dict[tuple[str, str], CorpusText], file: BinaryIO, stamp: int = 0) -> None:
    """Write the texts' arrays, and the stamp of their corpus."""
    arrays: dict[str, Any] = {"stamp": np.array(stamp)}
    for (split, kind), text in texts.items():
        arrays |= {
            f"{split}/{kind}/ids": text.ids,
            f"{split}/{kind}/ends": text.ends,
            f"{split}/{kind}/about": np.array([text.size, text.chat]),
        }
    np.savez(file, **arrays)


def read(file: BinaryIO | Path, split: str | None = None) -> dict[tuple[str, str], CorpusText]:
    """(split, kind) -> text of a file that `write` wrote; those of one split where one is given."""
    with np.load(file) as arrays:
        keys = [(k.split("/")[0], k.split("/")[1]) for k in sorted(arrays) if k.endswith("/ids")]
        return {
            (s, k): CorpusText(
                arrays[f"{s}/{k}/ids"],
                arrays[f"{s}/{k}/ends"],
                int(arrays[f"{s}/{k}/about"][0]),
                bool(arrays[f"{s}/{k}/about"][1]),
            )
            for s, k in keys
            if split in (None, s)
        }


def save(texts: dict[tuple[str, str], CorpusText], path: Path = TOKENS, stamp: int = 0) -> None:
    """Write the texts whole under this process's own name, then in one move. `stamp` identifies their corpus."""
    partial = path.with_suffix(f".{os.getpid()}.partial")
    with open(partial, "wb") as f:
        write(texts, f, stamp)
    partial.rename(path)


def load(split: str, file: Path = TOKENS) -> dict[str, CorpusText]:
    """Kind -> text of a split; encodes the corpus first where that was not done since it was built."""
    if file == TOKENS and CORPUS.exists() and (stamp := CORPUS.stat().st_mtime_ns) != read_stamp(file):
        with open(CORPUS, encoding="utf-8") as f:
            save(encode_documents(json.loads(line) for line in f), stamp=stamp)
    if not file.exists():
        raise FileNotFoundError(
            f"There is no {file}: build the corpus first, with python -m decodescope.training.corpus."
        )
    return {kind: text for (_, kind), text in read(file, split).items()}


def read_stamp(file: Path) -> int | None:
    """The stamp that `file` was saved with; None where there is no such file."""
    if not file.exists():
        return None
    with np.load(file) as arrays:
        return int(arrays["stamp"]) if "stamp" in arrays else 0


def shares(texts: Mapping[str, CorpusText | GeneratedText], mixture: dict[str, float]) -> dict[str, float]:
    """Kind -> share of the tokens. `mixture` names kinds, "tasks" for all other chats and "stories" for all other text.

    Within "tasks" every kind has the same share of the tokens; within "stories" it is that of the corpus.
    """
    raw = {}
    for group, kinds in groups(texts, mixture).items():
        weight = {k: 1.0 if group == "tasks" else texts[k].weight for k in kinds}
        raw |= {k: mixture.get(group, 0.0) * w / sum(weight.values()) for k, w in weight.items()}
    return {k: share / sum(raw.values()) for k, share in raw.items() if share > 0}


def groups(
    texts: Mapping[str, CorpusText | GeneratedText], mixture: dict[str, float]
) -> dict[str, list[str]]:
    """Name in `mixture` -> the kinds that it names."""
    out: dict[str, list[str]] = {}
    for kind, text in texts.items():
        group = "tasks" if text.chat else "stories"
        out.setdefault(kind if kind in mixture else group, []).append(kind)
    return out


@dataclass
class TextSource:
    """Where a mixer takes one kind of text from, and how far it has read."""

    name: str
    whole: bool  # units are not cut
    largest: int  # tokens of the longest unit that must stay whole
    share: float
    seed: int
    epoch: int = field(default=0, init=False)
    cursor: int = field(default=0, init=False)  # units that were read in this epoch
    offset: int = field(default=0, init=False)  # of the open unit, tokens that were read
    taken: int = field(default=0, init=False)  # tokens read in all

    def open(self) -> np.ndarray:
        """The ids of the unit at `cursor`."""
        raise NotImplementedError

    def close_unit(self) -> None:
        """Close the unit."""
        self.cursor, self.offset = self.cursor + 1, 0

    def take(self, room: int) -> np.ndarray | None:
        """At most `room` ids of the open unit; None if it must stay whole and does not fit."""
        unit = self.open()
        if self.whole and len(unit) > room:
            return None
        part = unit[self.offset : self.offset + room]
        self.offset += len(part)
        self.taken += len(part)
        if self.offset == len(unit):
            self.close_unit()
        return part

    def restore(self, epoch: int, cursor: int, offset: int, taken: int) -> None:
        """Go to the position that `Mixer.state` recorded; if the unit has changed since, to its beginning."""
        self.epoch = epoch
        self.cursor = cursor
        self.taken = taken
        self.offset = offset if offset < len(self.open()) else 0


@dataclass
class Stream(TextSource):
    """The units of text of one kind and size in random order, read again in another order when they are used up."""

    ids: np.ndarray
    units: np.ndarray  # int64 [n, 2]: start and end in ids
    order: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.shuffle()

    def shuffle(self) -> None:
        """The order of this epoch."""
        self.order = np.random.default_rng([self.seed, crc32(self.name.encode()), self.epoch]).permutation(
            len(self.units)
        )

    def open(self) -> np.ndarray:
        """The ids of the unit at `cursor`."""
        start, end = self.units[self.order[self.cursor]]
        return self.ids[start:end]

    def close_unit(self) -> None:
        """Close the unit, and begin the next epoch after the last one."""
        super().close_unit()
        if self.cursor == len(self.units):
            self.cursor, self.epoch = 0, self.epoch + 1
            self.shuffle()

    def restore(self, epoch: int, cursor: int, offset: int, taken: int) -> None:
        """Go to the position that `Mixer.state` recorded; a text that has shrunk since begins again."""
        self.epoch, known = epoch, cursor < len(self.units)
        self.shuffle()
        super().restore(epoch, cursor if known else 0, offset if known else 0, taken)


@dataclass
class GeneratedSource(TextSource):
    """Documents that are made when they are read: the n-th one is the same whenever it is made, and none comes again."""

    make: Callable[[Random, str, int], str]
    split: str
    # the open one, and its ids
    made: tuple[int, np.ndarray] = field(default=(-1, np.zeros(0, np.uint16)), init=False)

    def open(self) -> np.ndarray:
        """The ids of the document at `cursor`."""
        if self.made[0] != self.cursor:
            r = Random(f"{self.seed}/{self.name}/{self.split}/{self.cursor}")
            while (
                len(ids := load_tokenizer(self.whole).encode(self.make(r, self.split, self.largest - 1)).ids)
                >= self.largest
            ):
                pass
            self.made = self.cursor, np.array([*ids, END], dtype=np.uint16)
        return self.made[1]


@cache
def load_tokenizer(chat: bool, text: str | None = None) -> Tokenizer:
    """A tokenizer from the text of a tokenizer.json; that of `lab` without one.

    In a chat the special tokens count, elsewhere they are plain characters.
    """
    tokenizer = Tokenizer.from_str(text or TOKENIZER.read_text(encoding="utf-8"))
    tokenizer.encode_special_tokens = not chat
    return tokenizer


class Mixer:
    """Windows in which the kinds have their shares of the tokens; the kind furthest behind always goes next.

    A kind whose next document does not fit is passed over and catches up later. Documents are sorted by the window they need,
    so that long ones do not hold up short ones.
    """

    def __init__(
        self,
        texts: Mapping[str, CorpusText | GeneratedText],
        mixture: dict[str, float],
        lengths: Sequence[int],
        seed: int,
    ) -> None:
        self.streams = [
            source
            for kind, share in shares(texts, mixture).items()
            for source in texts[kind].streams(kind, share, lengths, seed)
        ]
        if all(s.whole for s in self.streams):
            raise ValueError(
                "The mixture has no plain text, and windows are filled up with that: give code, docs or stories."
            )

    def rows(self, length: int, count: int) -> Tensor:
        """int64 [count, length + 1]: the next windows; the last token of each is only predicted."""
        return torch.from_numpy(np.stack([self.row(length + 1) for _ in range(count)]).astype(np.int64))

    def row(self, size: int) -> np.ndarray:
        """uint16 [size]: one window, filled to the end."""
        fitting = [s for s in self.streams if s.largest <= size]
        parts, room = [], size
        while room:
            fitting.sort(key=lambda s: s.taken / s.share)
            part = next(part for stream in fitting if (part := stream.take(room)) is not None)
            parts.append(part)
            room -= len(part)
        return np.concatenate(parts)

    def state(self) -> dict[str, tuple[int, int, int, int, float]]:
        """Position and share of every stream."""
        return {s.name: (s.epoch, s.cursor, s.offset, s.taken, s.share) for s in self.streams}

    def load_state(self, state: dict[str, tuple[int, int, int, int, float]]) -> None:
        """Go on from `state`; streams that it does not know begin from the start.

        If there are such streams, or if shares have changed, no stream has to catch up.
        """
        total = sum(taken for _, _, _, taken, *_ in state.values())
        anew = any(state.get(s.name, ())[4:] != (s.share,) for s in self.streams)
        for s in self.streams:
            epoch, cursor, offset, taken = state.get(s.name, (0, 0, 0, 0))[:4]
            s.restore(epoch, cursor, offset, round(total * s.share) if anew else taken)


def units_by_length(text: CorpusText, lengths: Sequence[int]) -> list[tuple[str, np.ndarray, int]]:
    """Name, units and longest unit by the shortest window that a document fits; documents longer than all are left out."""
    sizes = np.diff(text.bounds, axis=1)[:, 0]
    out = []
    below = 0
    for length in sorted(lengths):
        some = text.bounds[(sizes > below) & (sizes <= length + 1)]
        if len(some):
            out.append((str(length), some, int((some[:, 1] - some[:, 0]).max())))
        below = length + 1
    return out


def cut_units(text: CorpusText) -> list[tuple[str, np.ndarray, int]]:
    """Name, units (documents cut to `PIECE` tokens) and 0, since a piece may be cut again."""
    pieces = np.array(
        [(at, min(at + PIECE, end)) for start, end in text.bounds for at in range(start, end, PIECE)]
    )
    return [(str(i), pieces[i::LANES], 0) for i in range(LANES) if len(pieces[i::LANES])]


def answer_mask(rows: Tensor) -> Tensor:
    """bool, as rows int64 [B, T]: the tokens of an assistant's turn, the closing <|end|> included."""
    return turn_mask(rows, ASSISTANT)


def question_mask(rows: Tensor) -> Tensor:
    """bool, as rows int64 [B, T]: the tokens of a user's turn, the closing <|end|> included."""
    return turn_mask(rows, USER)


def turn_mask(rows: Tensor, mark: int) -> Tensor:
    """bool, as rows int64 [B, T]: the tokens of the turns that `mark` opens, the closing <|end|> included."""
    marks = (rows == END) | (rows == USER) | (rows == ASSISTANT) | (rows == SYSTEM)
    place = torch.arange(rows.shape[1], device=rows.device).expand_as(rows)
    last = torch.where(marks, place, -1).cummax(1).values  # [B, T]: the last mark up to here
    before = torch.cat((last.new_full((len(rows), 1), -1), last[:, :-1]), 1)
    return (before >= 0) & (rows.gather(1, before.clamp(min=0)) == mark)


def windows(
    texts: Mapping[str, CorpusText | GeneratedText], length: int, count: int, kind: str | None = None
) -> Tensor:
    """int64 [count or fewer, length]: windows of the documents of a kind (or all) in a row, spread evenly."""
    ids = np.concatenate(
        [
            t.ids if isinstance(t, CorpusText) else t.first_documents(length, count)
            for k, t in texts.items()
            if kind in (None, k)
        ]
    ).astype(np.int64)
    rows = torch.from_numpy(ids[: len(ids) // length * length]).view(-1, length)
    return rows[:: max(1, len(rows) // count)][:count]


def held_out_windows(length: int, count: int, kind: str | None = None) -> Tensor:
    """int64 [count or fewer, length]: windows of the held-out documents of a kind, or of all."""
    return windows(load("valid"), length, count, kind)


def training_stream(seed: int = 0) -> np.ndarray:
    """uint16 [n]: all training documents in random order, each closed by <|end|>."""
    parts = [t.ids[start:end] for t in load("train").values() for start, end in t.bounds]
    return np.concatenate([parts[i] for i in np.random.default_rng(seed).permutation(len(parts))])
