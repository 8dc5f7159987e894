"""Hyperfitting: an adapter trained on a few texts until it knows them by heart.

Carlsson et al. 2025, arXiv:2412.04318. A model is tuned on few sequences, over and over, until its training loss is near 0. Its
loss on other text goes up and its distributions become sharp; the authors find that its greedy text repeats less than before.

Two things differ from the paper. It trains all weights of a model of billions on 2,000 sequences of 256 tokens; here low-rank
deltas of a model of 12 million learn some dozens of 128. And so small a model may simply repeat what it has learnt. So the card
shows how much of its greedy text occurs in its training sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .adapter_training import OPENINGS, AdapterTraining, repetition_figures, write_greedily
from .data import held_out_windows, load
from .lowrank import enable_deltas
from .net import Net

LENGTH = 128  # tokens of a sequence
SHARE = 4  # so many of the command's texts for one of them
BATCH = 8  # sequences a step
GRAM = 8  # tokens of a stretch that counts as being of the sequences


def ngram_overlap(text: Sequence[int], others: Sequence[Sequence[int]], n: int = GRAM) -> tuple[float, int]:
    """The share of a text's n-grams that occur in the others, and the tokens of its longest stretch that does."""
    known = {gram for other in others for gram in ngrams(other, n)}
    matches = (SequenceMatcher(None, text, other, autojunk=False).find_longest_match() for other in others)
    mine = ngrams(text, n)
    return sum(x in known for x in mine) / max(1, len(mine)), max(x.size for x in matches)


def ngrams(text: Sequence[int], n: int) -> list[tuple[int, ...]]:
    """Every n tokens in a row."""
    return [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]


class HyperfitAdapter(AdapterTraining):
    """The adapter as adapters.py trains it."""

    only = ("q_proj", "v_proj", "o_proj", "down_proj")
    rank = 8
    lr = 6e-3
    length = LENGTH + 1

    def __init__(self, net: Net, seed: int, texts: int) -> None:
        super().__init__(net, seed, texts)
        self.known: Tensor | None = None  # the sequences
        self.order: list[int] = []

    def gather(self) -> str:
        """The sequences: beginnings of plain documents of the training text."""
        texts = [x for x in load("train").values() if not x.chat]
        documents = [
            x.ids[start : start + self.length]
            for x in texts
            for start, end in x.bounds
            if end - start >= self.length
        ]
        order = np.random.default_rng(self.seed).permutation(len(documents))[: max(1, self.texts // SHARE)]
        self.known = torch.from_numpy(np.stack([documents[i] for i in order]).astype(np.int64))
        return f"{len(self.known)} sequences"

    def nats_of(self, rows: Tensor) -> Tensor:
        """Nats a token of rows int64 [B, T]."""
        return F.cross_entropy(self.net(rows[:, :-1]).float().flatten(0, 1), rows[:, 1:].flatten())

    def loss(self) -> Tensor:
        """Of the next sequences; when all were read they come again in another order."""
        assert self.known is not None, "there is nothing to learn from before it is gathered"
        if len(self.order) < BATCH:
            self.order += torch.randperm(len(self.known), generator=self.draw).tolist()
        some, self.order = self.order[:BATCH], self.order[BATCH:]
        loss = self.nats_of(self.known[some])
        self.count(len(some) * (self.length - 1), known=loss)
        return loss

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Figures with the adapter and without it.

        They are nats of its sequences, entropy on unseen text and nats of unseen text. For its own greedy text they are how
        much is repeated, how many kinds of token it has, and how much of it occurs in the sequences.
        """
        assert self.known is not None
        windows, known = held_out_windows(LENGTH, 64), self.known.tolist()
        figures: dict[str, Any] = {"sequences": len(known), "prompts": OPENINGS}
        for name, on in (("base", False), ("adapted", True)):
            enable_deltas(self.head, on)
            laws = [self.net(rows).float().log_softmax(2) for rows in windows.split(16)]
            nats = [float(self.nats_of(rows)) for rows in self.known.split(BATCH)]
            written = write_greedily(self.net, self.seed + 2)
            shares, longest = zip(*(ngram_overlap(text, known) for text in written), strict=True)
            figures.setdefault("nats of the sequences", {})[name] = round(float(np.mean(nats)), 4)
            entropy = np.mean([float(-(x.exp() * x).sum(2).mean()) for x in laws])
            figures.setdefault("entropy in nats", {})[name] = round(float(entropy), 4)
            figures.setdefault("greedy text", {})[name] = repetition_figures(written) | {
                f"{GRAM}-grams of the sequences": round(float(np.mean(shares)), 4),
                "longest stretch of the sequences": max(longest),
            }
        return figures | {"nats": self.nats()}
