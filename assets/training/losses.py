"""What training makes small: the next token's loss, early exits' loss, and a draft's distance from its target.

Axes: B windows, T tokens, V vocabulary, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from data import answers
from net import Net
from torch import Tensor

DIVERGENCES = ("fkl", "rkl", "jsd", "tvd")


@dataclass(frozen=True)
class Objective:
    """Which losses count how much.

    `exits` and `dropout` are LayerSkip's (2404.16710, section 4.1): in every step one layer below the last, drawn evenly,
    also predicts the next token through the last norm and the unembedding, and layers are left out, the later the more
    often. The paper sums over all layers; one a step, on a quarter of the windows, has the same mean and costs little.
    `divergence` is one of DistillSpec's (2310.08461, table 1), on the corpus and on the draft's own text.
    """

    answers: float = 2.0  # weight of an answer's tokens beside 1 of all others
    exits: float = 0.0  # weight of the last exit's loss; below it falls with the depth
    dropout: float = 0.0  # the last layer's chance to be left out, by window
    divergence: str = "fkl"
    distil: float = 0.0  # share of the divergence from the teacher in the loss
    on_policy: float = 0.0  # share of the windows that the draft writes itself, from a prompt of the corpus on

    def __post_init__(self) -> None:
        if self.divergence not in DIVERGENCES:
            raise ValueError(f"The divergence {self.divergence!r} is not known: choose one of {', '.join(DIVERGENCES)}.")


def dropout_rates(layers: int, most: float) -> Tensor:
    """float [L]: the chance of every layer to be left out; 0 for the first, `most` for the last, exponential between."""
    return most * (2 ** (torch.arange(layers) / max(1, layers - 1)) - 1)


def kept(rates: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """float [L, B]: 1 where a layer works on a window, 0 where it is left out."""
    return (torch.rand(len(rates), count, generator=generator) >= rates[:, None]).float()


def divergence(name: str, p: Tensor, q: Tensor) -> Tensor:
    """float [...]: the distance of the draft from its target at every position, for log-probabilities p, q [..., V].

    fkl is KL(p || q), rkl KL(q || p), jsd the mean of both to the middle, tvd half the sum of |p - q|: the chance that a
    drafted token is rejected.
    """
    if name == "tvd":
        return (p.exp() - q.exp()).abs().sum(-1) / 2
    if name == "jsd":
        middle = torch.logaddexp(p, q) - 0.6931471805599453
        return ((p.exp() * (p - middle)).sum(-1) + (q.exp() * (q - middle)).sum(-1)) / 2
    a, b = (p, q) if name == "fkl" else (q, p)
    return (a.exp() * (a - b)).sum(-1)


def token_loss(logits: Tensor, rows: Tensor) -> Tensor:
    """float [B, T]: nats of every token after the first, for logits [B, T, V] and rows int64 [B, T + 1]."""
    return F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten(), reduction="none").view(len(rows), -1)


def loss_of(net: Net, rows: Tensor, weights: Tensor, exit_at: Tensor, keep: Tensor | None, wanted: Tensor | None,
            objective: Objective) -> tuple[Tensor, Tensor]:
    """The loss of a batch, and three figures to report: nats a token, nats an answer's token, nats a token at the exit.

    rows int64 [B, T + 1]; weights float [B, T] of the tokens' own loss; exit_at int64 [] the exit's layer, from 0; keep
    float [L, B] the layers that work; wanted float [B, T, V] the teacher's log-probabilities.
    """
    with torch.autocast(rows.device.type, torch.bfloat16):
        states = net.states(rows[:, :-1], keep=keep)
        logits = net.head(states[-1])
    nats = token_loss(logits, rows)  # [B, T]
    loss = (nats * weights).sum() / weights.sum().clamp(min=1)
    if wanted is not None:
        distance = divergence(objective.divergence, wanted, logits.float().log_softmax(2))
        loss = (1 - objective.distil) * loss + objective.distil * distance.mean()
    early = nats.new_zeros(())
    if objective.exits:
        some = -(-len(rows) // 4)
        with torch.autocast(rows.device.type, torch.bfloat16):
            # a tensor picks the layer, so that a compiled loss is the same code for all of them
            state = torch.stack([s[:some] for s in states[1:-1]])[exit_at]
            early = token_loss(net.head(state), rows[:some]).mean()
        loss = loss + objective.exits * (exit_at + 1) / (net.shape.layers - 1) * early
    told = answers(rows)[:, 1:]
    figures = torch.stack((nats.mean(), (nats * told).sum() / told.sum().clamp(min=1), early))
    return loss, figures.detach()


@torch.no_grad()
def teacher_of(teacher: Net, rows: Tensor) -> Tensor:
    """float [B, T, V]: the teacher's log-probabilities of every token after the first."""
    with torch.autocast(rows.device.type, torch.bfloat16):
        return teacher(rows[:, :-1]).float().log_softmax(2)


def own_text(net: Net, rows: Tensor, share: float, prompt: float, generator: torch.Generator | None) -> tuple[Tensor, int]:
    """Rows of which the last `share` goes on with the net's own text after its part `prompt`, and how many those are.

    On-policy text (DistillSpec, section 4): what a draft is asked about at decoding time are contexts that it began itself.
    """
    count = round(share * len(rows))
    if not count:
        return rows, 0
    begin = round(prompt * rows.shape[1])
    with torch.autocast(rows.device.type, torch.bfloat16):
        own = net.write(rows[len(rows) - count :, :begin], rows.shape[1] - begin, 1.0, generator)
    return torch.cat((rows[: len(rows) - count], own)), count
