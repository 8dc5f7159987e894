"""CLLM: an adapter that lets Jacobi decoding jump, trained on the model's own Jacobi trajectories.

Kou et al. 2024, arXiv:2403.00835. A block of n guesses is solved by fixed-point iteration. The adapter learns to map every
state of that iteration straight to its fixed point, and to stay the model that it was.

One pass reads a text [L] together with guesses for its last G places. A guess sees the text before its block and the guesses of
its block. So all blocks of a text take an iteration at once, in collecting, in training and in measuring.

Two things differ from the paper. The second loss takes the frozen model's own distribution as labels, where the authors smooth
their teacher's tokens by 0.1. Smoothing alone costs up to -ln 0.9 = 0.105 nats a token, and the model is to stay what it is. So
that loss is also taken on the training text, not only on the model's greedy text, which says little of all else. And a first
state is drawn again each time that it is trained on, which needs no pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .adapter_training import AdapterTraining, counted_lengths, logits_of, masked_states, sample_beginnings
from .data import load
from .lowrank import enable_deltas
from .net import Net

# tokens: before the text that the model writes, of that text, of a block
PROMPT = 96
NEW = 96
BLOCK = 16
WINDOWS, ROWS = 8, 64  # texts a step, and texts that are written or iterated together
TEXTS = 320  # written for training
KEEP = 10.0  # weight of staying the model
HELD_OUT = 48  # texts for measuring
MENDED = 0.5  # share of texts of a step in which wrong guesses are corrected


def mask(prompt: int, new: int, block: int) -> Tensor:
    """bool [L + G, L + G], L = prompt + new, G = new: the text is causal.

    A guess sees the text before its block, and the guesses of its block up to itself.
    """
    length = prompt + new
    seen = torch.zeros(length + new, length + new, dtype=torch.bool)
    seen[:length, :length] = torch.ones(length, length, dtype=torch.bool).tril()
    place = torch.arange(new)
    first = place // block * block
    seen[length:, :length] = torch.arange(length) < (prompt + first)[:, None]
    seen[length:, length:] = (first[:, None] == first) & (place <= place[:, None])
    return seen


@dataclass
class Trajectories:
    """Texts and the Jacobi trajectories that reach them.

    texts:   int64 [N, L], prompt and greedy text;  counted: int64 [N], tokens of the latter that are used
    points:  int16 [J, N, G], the states of the iteration, the first guesses first
    solved:  int64 [N, G / n], the first point whose guesses are the text's (J where none is)
    """

    texts: Tensor
    counted: Tensor
    points: Tensor
    solved: Tensor


@torch.no_grad()
def collect_trajectories(
    net: Net, prompts: Tensor, seed: int, block: int = BLOCK, new: int = NEW
) -> Trajectories:
    """The model's greedy text after each prompt [N, P], and how Jacobi reaches it block by block from tokens of the prompt."""
    draw = torch.Generator().manual_seed(seed)
    made = []
    size = prompts.shape[1]
    seen = mask(size, new, block)
    length = size + new
    for part in prompts.split(ROWS):
        texts = net.write(part, new, 0.0)
        places = torch.arange(length)
        _, kv = masked_states(net, texts, places, seen[:length, :length])
        points = [draw_guesses(texts[:, :size], new, draw)]
        for _ in range(block - 1):
            after = likeliest_tokens(net, masked_states(net, points[-1], places[size:], seen[length:], kv)[0])
            after = torch.cat((texts[:, size : size + 1], after[:, :-1]), 1)
            first = torch.arange(0, new, block)
            after[:, first] = texts[:, size:][:, first]  # of the text before it, which is fixed
            points.append(after)
        made.append((texts, counted_lengths(texts[:, size:]), torch.stack(points).to(torch.int16)))
    texts, counted = (torch.cat([x[i] for x in made]) for i in (0, 1))
    points = torch.cat([x[2] for x in made], 1)
    right = (points.long() == texts[:, size:]).unflatten(2, (-1, block)).all(3)  # [J, N, blocks]
    solved = torch.where(right.any(0), right.int().argmax(0), len(points))
    return Trajectories(texts, counted, points, solved)


def draw_guesses(prompts: Tensor, new: int, draw: torch.Generator) -> Tensor:
    """int64 [N, new]: tokens of each prompt [N, P], drawn with replacement."""
    return prompts.gather(1, torch.randint(prompts.shape[1], (len(prompts), new), generator=draw))


def likeliest_tokens(net: Net, features: Tensor) -> Tensor:
    """int64 [B, T]: the likeliest next token of each row."""
    return logits_of(net, features).argmax(2)


def mean_passes(t: Trajectories, block: int) -> tuple[float, int]:
    """Mean passes that Jacobi needs for a block, and the number of blocks.

    The first guess counts as read once, and the last token of a block need not be guessed right. Only blocks within the counted
    text count; a shorter `block` takes the beginning of each recorded one.
    """
    size, n = t.texts.shape[1] - t.points.shape[2], t.points.shape[2] // t.solved.shape[1]
    right = (t.points.long() == t.texts[:, size:]).unflatten(2, (-1, n))[..., : block - 1].all(3)
    needed = torch.where(right.any(0), right.int().argmax(0), block - 1) + 1  # [N, blocks]
    whole = torch.arange(0, t.points.shape[2], n) + block <= t.counted[:, None]
    return float(needed[whole].float().mean()), int(whole.sum())


class ConsistencyAdapter(AdapterTraining):
    """The adapter as adapters.py trains it."""

    rank = 8

    def __init__(self, net: Net, seed: int, texts: int = TEXTS) -> None:
        super().__init__(net, seed, texts)
        self.length = PROMPT + NEW
        self.seen = mask(PROMPT, NEW, BLOCK)
        self.places = torch.cat((torch.arange(PROMPT + NEW), torch.arange(PROMPT, PROMPT + NEW)))
        self.known: Trajectories | None = None

    def gather(self) -> str:
        """Collect the trajectories of the frozen model."""
        enable_deltas(self.head, False)
        self.known = collect_trajectories(
            self.net, sample_beginnings(load("train"), self.texts, PROMPT, self.seed), self.seed + 1
        )
        enable_deltas(self.head, True)
        return f"the model wrote {len(self.known.texts)} texts"

    def state(self, t: Trajectories, rows: Tensor) -> Tensor:
        """int64 [B, G]: for each block of these texts a random state of its trajectory.

        Every state but the fixed point has an equal chance.

        First states are drawn fresh; in a share of the others some wrong tokens are corrected.
        """
        truth = t.texts[rows, PROMPT:]
        at = (
            torch.rand(t.solved[rows].shape, generator=self.draw) * t.solved[rows].clamp(min=1)
        ).long()  # [B, blocks]
        at = at.repeat_interleave(BLOCK, 1)
        point = t.points[:, rows].long().gather(0, at[None])[0]
        point = torch.where(at == 0, draw_guesses(t.texts[rows, :PROMPT], NEW, self.draw), point)
        mended = torch.rand(len(rows), 1, generator=self.draw) < MENDED
        half = torch.rand(point.shape, generator=self.draw) < 0.5
        return torch.where((at > 0) & mended & half, truth, point)

    def losses(self, texts: Tensor, counted: Tensor, point: Tensor) -> tuple[Tensor, Tensor]:
        """The consistency loss, and the loss to stay the model.

        Consistency: nats of the guesses' distributions against those of the text at the same places, the latter without
        gradient, from the first wrong guess of a block on. The second: nats of the text's distributions against the frozen
        model's.
        """
        length = PROMPT + NEW
        base = self.base_logits(texts)
        features, _ = masked_states(self.net, torch.cat((texts, point), 1), self.places, self.seen)
        text, guessed = logits_of(self.net, features[:, :length]), logits_of(self.net, features[:, length:])
        upto = torch.arange(length) < (PROMPT + counted)[:, None]  # [B, L]
        stay = -(base.softmax(2) * text.log_softmax(2)).sum(2)[upto].mean()

        wrong = (point != texts[:, PROMPT:]).unflatten(1, (-1, BLOCK)).cumsum(2).flatten(
            1
        ) > 0  # the row, or one before it
        inside = (torch.arange(NEW) % BLOCK < BLOCK - 1) & (torch.arange(NEW) < counted[:, None] - 1)
        rows = wrong & inside
        goal = text[:, PROMPT:].detach().softmax(2)
        jump = -(goal * guessed.log_softmax(2)).sum(2)
        return (jump * rows).sum() / rows.sum().clamp(min=1), stay

    def loss(self) -> Tensor:
        """The loss of the next batch."""
        if self.known is None:
            self.gather()
        assert self.known is not None
        rows = torch.randint(len(self.known.texts), (WINDOWS,), generator=self.draw)
        jump, stay = self.losses(
            self.known.texts[rows], self.known.counted[rows], self.state(self.known, rows)
        )
        self.count(WINDOWS * (PROMPT + 2 * NEW), consistency=jump, **{"own text": stay})
        return jump + KEEP * (stay + self.retention_loss())

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Passes a block on prompts of unseen text, each model on its own greedy text, and nats of unseen text; with the
        adapter and without."""
        prompts = sample_beginnings(load("valid"), HELD_OUT, PROMPT, self.seed + 2)
        figures: dict[str, Any] = {"prompts": len(prompts)}
        for name, on in (("base", False), ("adapted", True)):
            enable_deltas(self.head, on)
            made = collect_trajectories(self.net, prompts, self.seed + 3)
            for block in (8, 16):
                mean, blocks = mean_passes(made, block)
                figures.setdefault(f"passes of a block of {block}", {})[name] = round(mean, 3)
                figures.setdefault(f"blocks of {block}", {})[name] = blocks
        return figures | {"nats": self.nats()}
