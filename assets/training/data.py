"""Token ids of the corpus: one long training stream, and the held-out documents by kind."""

from __future__ import annotations

import json

import numpy as np
import torch
from corpus import BUILD, ROOT, load
from tokenizers import Tokenizer
from torch import Tensor

END = 0  # <|end|> stands after every document
TOKENIZER = ROOT / "assets" / "models" / "lab" / "tokenizer.json"


def encode() -> None:
    """Write `train.npy` (uint16, all training documents in a row) and `valid.json` (kind, text, ids) once."""
    text, chat = Tokenizer.from_file(str(TOKENIZER)), Tokenizer.from_file(str(TOKENIZER))
    text.encode_special_tokens = True  # "<|user|>" in somebody's source is plain text, in a chat it is the mark
    train, valid, documents = [], [], load()
    for kind, coder in (("chat", chat), (None, text)):
        some = [(i, d) for i, d in enumerate(documents) if (d["kind"] == "chat") == (kind == "chat")]
        for at in range(0, len(some), 2000):
            part = some[at : at + 2000]
            for (i, d), coded in zip(part, coder.encode_batch([d["text"] for _, d in part]), strict=True):
                ids = [*coded.ids, END]
                if d["split"] == "train":
                    train.append((i, np.array(ids, dtype=np.uint16)))
                else:
                    valid.append({"kind": d["kind"], "origin": d["origin"], "text": d["text"], "ids": ids})
    train.sort(key=lambda pair: pair[0])
    (BUILD / "valid.json").write_text(json.dumps(valid))
    np.save(BUILD / "train.npy", np.concatenate([ids for _, ids in train]))


def training_stream() -> np.ndarray:
    """uint16 [n]: the training documents in the corpus's random order, each closed by <|end|>."""
    if not (BUILD / "train.npy").exists():
        encode()
    return np.load(BUILD / "train.npy", mmap_mode="r")


def held_out() -> list[dict]:
    """The held-out documents: kind, origin, text, ids."""
    if not (BUILD / "valid.json").exists():
        encode()
    return json.loads((BUILD / "valid.json").read_text())


def held_out_windows(length: int, count: int, kind: str | None = None) -> Tensor:
    """int64 [count or fewer, length]: windows of the held-out documents in a row, spread evenly."""
    ids = torch.tensor([i for d in held_out() if kind in (None, d["kind"]) for i in d["ids"]])
    windows = ids[: len(ids) // length * length].view(-1, length)
    return windows[:: max(1, len(windows) // count)][:count]


class Windows:
    """The windows of `length` tokens of a stream (uint16 [n]), in seeded order, over again when all were seen."""

    def __init__(self, stream: np.ndarray, length: int, seed: int) -> None:
        self.stream, self.length = stream, length
        self.order = np.random.default_rng(seed).permutation((len(stream) - 1) // length)

    def rows(self, first: int, count: int) -> Tensor:
        """int64 [count, length + 1]: windows `first` to `first + count`, with the token after each."""
        begins = [int(self.order[i % len(self.order)]) * self.length for i in range(first, first + count)]
        return torch.from_numpy(np.stack([self.stream[b : b + self.length + 1] for b in begins]).astype(np.int64))
