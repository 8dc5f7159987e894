"""LUD: an adapter under which rows of padding behind a text foresee its tokens, for the strategy `lexical_units`.

Sun et al. 2024, arXiv:2405.15208; the authors published no more code than a readme. One pass reads texts [L] together with
groups of PADS rows of padding. A group follows a place and sees the text up to there, and itself up to each row. Its rows learn
the tokens after the next one. So a pass trains on many beginnings of a text, each as decoding has it.

Two things differ from the paper. It hides runs of tokens that the model is sure of (lexical units) in the input, and learns at
these places alone. Here all places learn, so that a row gives the chance of a token at any place, as a threshold on
probabilities assumes. And half of the texts are the frozen model's own greedy ones, since their tokens are what decoding
writes. As in the paper, ordinary text is trained on, too: there the model is to stay what it is.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .adapter_training import AdapterTraining, counted_lengths, logits_of, masked_states, sample_beginnings
from .data import load
from .lowrank import enable_deltas
from .net import Net

PAD = 1  # the id of <|pad|>
# tokens: before the text that the model writes, of that text, and rows of padding in a group
PROMPT = 96
NEW = 96
PADS = 4
EVERY = 3  # places from one group to the next
WINDOWS = 6  # of the model's texts, in a step
PLAIN = 3  # windows of the training text, in a step
ROWS = 64  # texts that are written together
KEEP = 6.0  # weight of staying the model
HELD_OUT = 48  # texts for measuring
BARS = (0.9, 0.8, 0.7, 0.6)


def group_places(first: int) -> Tensor:
    """int64 [M]: the places, of a text of PROMPT + NEW tokens, that a group follows; `first` < EVERY shifts them."""
    return torch.arange(PROMPT - 1 + first, PROMPT + NEW - 2, EVERY)


def mask(at: Tensor) -> Tensor:
    """bool [L + M PADS, L + M PADS], L = PROMPT + NEW: the text is causal.

    A row of the group behind at[m] sees the text up to that place, and its group up to itself.
    """
    length, rows = PROMPT + NEW, len(at) * PADS
    seen = torch.zeros(length + rows, length + rows, dtype=torch.bool)
    seen[:length, :length] = torch.ones(length, length, dtype=torch.bool).tril()
    seen[length:, :length] = torch.arange(length) <= at.repeat_interleave(PADS)[:, None]
    group = torch.arange(rows) // PADS
    seen[length:, length:] = (group[:, None] == group) & torch.ones(rows, rows, dtype=torch.bool).tril()
    return seen


def group_logits(net: Net, texts: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of the text [B, L, V], and of the groups' rows [B, M PADS, V], for texts int64 [B, L]."""
    behind = (at[:, None] + torch.arange(1, PADS + 1)).flatten()
    places = torch.cat((torch.arange(texts.shape[1]), behind))
    padding = torch.full((len(texts), len(behind)), PAD)
    features, _ = masked_states(net, torch.cat((texts, padding), 1), places, mask(at))
    return logits_of(net, features[:, : texts.shape[1]]), logits_of(net, features[:, texts.shape[1] :])


def target_places(at: Tensor) -> Tensor:
    """int64 [M PADS]: the place of the token that each row of the groups foresees; it may be behind the text's end."""
    return (at[:, None] + torch.arange(2, PADS + 2)).flatten()


class LexicalUnitsAdapter(AdapterTraining):
    """The adapter as adapters.py trains it."""

    only = ("q_proj", "v_proj", "up_proj", "down_proj")
    rows = (PAD,)
    lr = 3e-3

    def __init__(self, net: Net, seed: int, texts: int) -> None:
        super().__init__(net, seed, texts)
        self.length = PROMPT + NEW
        self.known: tuple[Tensor, Tensor] | None = (
            None  # texts [N, L] and how many of their own tokens count [N]
        )

    def write_texts(self, split: str, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Greedy texts of the net as it is, int64 [count, L], behind beginnings of a split; how many tokens of each count."""
        with torch.no_grad():
            parts = sample_beginnings(load(split), count, PROMPT, seed).split(ROWS)
            texts = torch.cat([self.net.write(part, NEW, 0.0) for part in parts])
        return texts, counted_lengths(texts[:, PROMPT:])

    def gather(self) -> str:
        """Let the frozen model write."""
        enable_deltas(self.head, False)
        self.known = self.write_texts("train", self.texts, self.seed)
        enable_deltas(self.head, True)
        return f"the model wrote {self.texts} texts"

    def losses(self, texts: Tensor, counted: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """Nats of the tokens that the groups behind `at` foresee, and divergence in nats from the frozen model.

        The latter compares the text's distributions with the frozen model's.

        texts: [B, L]; their first `counted` tokens behind the prompt are used.
        """
        base, upto = self.base_logits(texts), PROMPT + counted
        text, rows = group_logits(self.net, texts, at)
        used = torch.arange(texts.shape[1]) < upto[:, None]
        stay = -(base.softmax(2) * text.log_softmax(2)).sum(2)[used].mean()
        place = target_places(at)
        inside = place < upto[:, None]
        truth = texts[:, place.clamp(max=texts.shape[1] - 1)]
        return F.cross_entropy(rows[inside], truth[inside]), stay

    def loss(self) -> Tensor:
        """Of a batch of its own."""
        if self.known is None:
            self.gather()
        assert self.known is not None
        chosen = torch.randint(len(self.known[0]), (WINDOWS,), generator=self.draw)
        texts = torch.cat((self.known[0][chosen], self.window(PLAIN)))
        counted = torch.cat((self.known[1][chosen], torch.full((PLAIN,), NEW)))
        at = group_places(int(torch.randint(EVERY, (), generator=self.draw)))
        ahead, stay = self.losses(texts, counted, at)
        self.count(len(texts) * (self.length + PADS * len(at)), foreseen=ahead, stays=stay)
        return ahead + KEEP * stay

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Figures of the units of its own greedy text behind prompts of unseen text, and nats of unseen text.

        For the units: how long they are at each threshold, and how many of the tokens behind the first are the text's; with the
        adapter and without.
        """
        figures: dict[str, Any] = {"prompts": HELD_OUT, "rows": PADS}
        for name, on in (("base", False), ("adapted", True)):
            enable_deltas(self.head, on)
            texts, counted = self.write_texts("valid", HELD_OUT, self.seed + 2)
            for bar in BARS:
                figures.setdefault(f"units at {bar}", {})[name] = unit_figures(self.net, texts, counted, bar)
        return figures | {"nats": self.nats()}


def unit_figures(net: Net, texts: Tensor, counted: Tensor, bar: float) -> dict[str, float]:
    """Mean length of the unit behind every place of texts [N, L], and the share of its right tokens.

    The share is that of its tokens behind the first that are the text's.

    Only places with PADS + 1 counted tokens behind them count.
    """
    total = extra = right = places = 0
    for first in range(EVERY):
        at = group_places(first)
        p, best = group_logits(net, texts, at)[1].softmax(2).max(2)
        taken = (p >= bar).unflatten(1, (-1, PADS)).cumprod(2).bool()  # [N, M, PADS]
        truth = texts[:, target_places(at).clamp(max=texts.shape[1] - 1)]
        same = (best == truth).unflatten(1, (-1, PADS))
        whole = at + PADS + 2 <= PROMPT + counted[:, None]  # [N, M]
        taken = taken & whole[..., None]
        total, places = total + int(whole.sum()) + int(taken.sum()), places + int(whole.sum())
        extra, right = extra + int(taken.sum()), right + int((taken & same).sum())
    return {"tokens": round(total / max(1, places), 3), "right": round(right / max(1, extra), 3)}
