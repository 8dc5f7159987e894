"""DITTO: an adapter under which a sentence that was said loses chance with every copy.

Xu et al. 2022, arXiv:2206.02369 (github.com/Jxu-Thu/DITTO, `repetetion_penalty_accum_loss.py`). A text is a sentence behind the
one before it, said again until the window is full. A token of a copy has probability p_n, and in the copy before it p_(n-1):
from the second copy on its loss is -ln(1 - |p_n - gamma p_(n-1)|), with the latter held still.

Two things differ from the paper. Half of its batches learn the training text; here every batch keeps the frozen model's
distributions on it, as the other adapters do. And the paper trains all weights for 10,000 batches, here low-rank deltas learn
from a million tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from decodescope.engine.bench.repetition import sentence_pairs

from .adapter_training import OPENINGS, AdapterTraining, repetition_figures, write_greedily
from .data import TOKENIZER, load
from .lowrank import enable_deltas
from .net import Net

GAMMA = 0.5
COPIED = 6  # texts of copies a step
KEEP = 3.0  # weight of staying the model
LEAST = 1e-6  # of 1 - |p_n - gamma p_(n-1)|
TIMES, ASKED = 8, 96  # copies, and sentences, by which it is measured

Pair = tuple[list[int], list[int]]  # the text before the sentence, the sentence


def shuffle_pairs(split: str, seed: int) -> Iterator[Pair]:
    """Sentences of a split's plain documents, in random order, each behind the one before it."""
    tokenizer, texts = Tokenizer.from_file(str(TOKENIZER)), [x for x in load(split).values() if not x.chat]
    documents = [text.ids[start:end] for text in texts for start, end in text.bounds]
    for i in np.random.default_rng(seed).permutation(len(documents)):
        for before, sentence in sentence_pairs(tokenizer.decode(documents[i].tolist())):
            yield tokenizer.encode(before).ids, tokenizer.encode(f" {sentence}").ids


def repeat_sentences(some: list[Pair], length: int) -> tuple[Tensor, Tensor]:
    """int64 [B, length]: each sentence behind its front, over and over.

    The second tensor has by place the distance to the same token in the copy before, 0 in the front and the first copy.
    """
    rows, back = [], torch.zeros(len(some), length, dtype=torch.long)
    for row, (before, one) in zip(back, some, strict=True):
        rows.append((before + one * (length // len(one) + 1))[:length])
        row[len(before) + len(one) :] = len(one)
    return torch.tensor(rows), back


def token_probabilities(logits: Tensor, ids: Tensor) -> Tensor:
    """float [B, T]: the probability of each token of ids int64 [B, T] where logits [B, T, V] were read; 1 for the first."""
    p = logits[:, :-1].log_softmax(2).gather(2, ids[:, 1:, None])[..., 0].exp()
    return torch.cat((torch.ones_like(p[:, :1]), p), 1)


def copy_penalty(p: Tensor, back: Tensor, gamma: float = GAMMA) -> Tensor:
    """The mean of -ln(1 - |p_n - gamma p_(n-1)|) over the places that have a copy in front."""
    places = torch.arange(p.shape[1])
    wanted = gamma * p.detach().gather(1, (places - back).clamp(min=0))
    nats = -(1 - (p - wanted).abs()).clamp(min=LEAST).log()
    return nats[back > 0].mean()


class DittoAdapter(AdapterTraining):
    """The adapter as adapters.py trains it."""

    only = ("q_proj", "v_proj", "o_proj", "down_proj")
    rank = 8
    lr = 2e-3
    corpus_windows = 4

    def __init__(self, net: Net, seed: int, texts: int) -> None:
        super().__init__(net, seed, texts)
        self.known: list[Pair] = []

    def gather(self) -> str:
        """Collect sentences of the training text; a window holds at least three copies of each."""
        for pair in shuffle_pairs("train", self.seed):
            if len(pair[0]) + 3 * len(pair[1]) <= self.length:
                self.known.append(pair)
            if len(self.known) == 16 * self.texts:
                break
        return f"{len(self.known)} sentences"

    def loss(self) -> Tensor:
        """Of a batch of its own."""
        some = [
            self.known[i] for i in torch.randint(len(self.known), (COPIED,), generator=self.draw).tolist()
        ]
        ids, back = repeat_sentences(some, self.length)
        fades = copy_penalty(token_probabilities(self.net(ids).float(), ids), back)
        stay = self.retention_loss()
        self.count((COPIED + self.corpus_windows) * self.length, fades=fades, stays=stay)
        return fades + KEEP * stay

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """On sentences of unseen text the mean probability of a token by copy, and the ratio of that to the one before;
        how much of its own greedy text is said again; nats of unseen text. With the adapter and without."""
        some = []
        for pair in shuffle_pairs("valid", self.seed):
            if len(pair[0]) + TIMES * len(pair[1]) <= 2 * self.length:
                some.append(pair)
            if len(some) == ASKED:
                break
        figures: dict[str, Any] = {"sentences": len(some), "gamma": GAMMA, "prompts": OPENINGS}
        for name, on in (("base", False), ("adapted", True)):
            enable_deltas(self.head, on)
            curve = np.mean([self.by_copy(pair) for pair in some], 0)
            figures.setdefault("tp", {})[name] = [round(float(x), 4) for x in curve]
            figures.setdefault("ratio", {})[name] = [round(float(x), 3) for x in curve[1:] / curve[:-1]]
            figures.setdefault("greedy text", {})[name] = repetition_figures(
                write_greedily(self.net, self.seed + 2)
            )
        return figures | {"nats": self.nats()}

    def by_copy(self, pair: Pair) -> list[float]:
        """The mean probability of a token of the sentence, copy by copy."""
        before, one = pair
        ids = torch.tensor([before + one * TIMES])
        return (
            token_probabilities(self.net(ids).float(), ids)[0, len(before) :].view(TIMES, -1).mean(1).tolist()
        )
