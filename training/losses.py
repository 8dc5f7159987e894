"""The losses of trainings: the next token's, early exits', and a draft's distance from its target.

They also choose the text: the corpus, what the draft wrote, or what its target wrote.

Axes: B windows, T tokens, V vocabulary, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .data import answer_mask
from .net import Net

DIVERGENCES = ("fkl", "rkl", "jsd", "tvd", "tvd++")


@dataclass(frozen=True)
class Objective:
    """Which losses count how much.

    `exits` and `dropout` are LayerSkip's (2404.16710, section 4.1): in every step one layer below the last, drawn evenly,
    also predicts the next token through the last norm and the unembedding, and layers are left out, the later the more
    often. The paper sums over all layers; one a step, on a quarter of the windows, has the same mean and costs little.
    `divergence` is one of DistillSpec's (2310.08461, table 1) or TVD++ (2403.00858), on the corpus, on the draft's own text and
    on the target's. `target_text` is FastDraft's last stage (2411.11055): text that the target wrote, learnt by heart as the
    corpus is (sequence-level distillation). FastDraft writes it at several temperatures; here one is drawn for each batch.
    """

    answers: float = 2.0  # weight of an answer's tokens, relative to 1 for all others
    questions: float = (
        1.0  # weight of a question's; 0: they are read and not predicted, which saves the unembedding
    )
    exits: float = 0.0  # weight of the last exit's loss; below it falls with the depth
    dropout: float = 0.0  # the last layer's chance to be left out, by window
    divergence: str = "fkl"
    distil: float = 0.0  # share of the divergence from the teacher in the loss
    on_policy: float = (
        0.0  # share of the windows that the draft writes itself, from a prompt of the corpus on
    )
    target_text: float = 0.0  # share of the windows that the target writes, alike
    hottest: float = 1.0  # highest temperature of the target's text, drawn evenly below it, again for each batch; 0: greedy

    def __post_init__(self) -> None:
        if self.divergence not in DIVERGENCES:
            raise ValueError(
                f"The divergence {self.divergence!r} is not known: choose one of {', '.join(DIVERGENCES)}."
            )
        if min(self.on_policy, self.target_text) < 0 or self.on_policy + self.target_text > 1:
            raise ValueError(
                f"on_policy {self.on_policy} and target_text {self.target_text} are shares of the same windows: "
                "choose two from 0 to 1 whose sum is at most 1."
            )
        if not self.questions and (self.needs_target or self.exits):
            raise ValueError(
                "questions is 0, so nothing is predicted there, and teachers and exits are compared everywhere: "
                "give questions a weight above 0, or leave distil, target_text and exits out."
            )
        if self.hottest < 0:
            raise ValueError(
                f"hottest is {self.hottest}, and no temperature is below 0: choose 0 (greedy) or more."
            )

    @property
    def needs_target(self) -> bool:
        """Whether it needs the target."""
        return bool(self.distil or self.target_text)


def dropout_rates(layers: int, most: float) -> Tensor:
    """float [L]: the chance of every layer to be left out; 0 for the first, `most` for the last, exponential between."""
    return most * (2 ** (torch.arange(layers) / max(1, layers - 1)) - 1)


def draw_layer_mask(rates: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """float [L, B]: 1 where a layer works on a window, 0 where it is left out."""
    return (torch.rand(len(rates), count, generator=generator) >= rates[:, None]).float()


def divergence(name: str, p: Tensor, q: Tensor) -> Tensor:
    """float [...]: the distance of the draft from its target at every position, for log-probabilities p, q [..., V].

    fkl is KL(p || q), rkl KL(q || p), jsd the mean of both to the middle, tvd half the sum of |p - q|: the chance that a
    drafted token is rejected. tvd++ has the value of tvd. Instead of its gradient it has the policy gradient by the `advantage`
    of the draft's tokens: that of the mean tvd over the reward's deviation.
    """
    if name == "tvd":
        return (p.exp() - q.exp()).abs().sum(-1) / 2
    if name == "tvd++":
        policy = -(q.detach().exp() * advantage(p, q.detach()) * q).sum(-1)  # - E_{x ~ q}[A(x) log q(x)]
        return divergence("tvd", p, q).detach() + (policy - policy.detach())
    if name == "jsd":
        middle = torch.logaddexp(p, q) - 0.6931471805599453
        return ((p.exp() * (p - middle)).sum(-1) + (q.exp() * (q - middle)).sum(-1)) / 2
    a, b = (p, q) if name == "fkl" else (q, p)
    return (a.exp() * (a - b)).sum(-1)


def advantage(p: Tensor, q: Tensor, least: float = 1e-2) -> Tensor:
    """float [..., V]: (r - mean) / deviation of TVD++'s reward r(x) = 1[q(x) < p(x)], for log-probabilities p, q [..., V].

    Goel et al. (2403.00858, lemma 1): the gradient of tvd is - E_{x ~ q}[r(x) grad log q(x)]. So it is a reward that the draft
    earns by tokens that it gives too little probability. Mean and deviation are of a token drawn from q at a random place of
    the batch, exactly, not of drawn tokens [what the paper takes them over is recalled]. The mean changes no gradient that is
    taken over the whole vocabulary; the deviation makes it longer where little is earned. `least` is the smallest deviation.
    """
    reward = (q < p).to(q.dtype)
    mean = (q.exp() * reward).sum(-1).mean()
    return (reward - mean) / (mean * (1 - mean)).clamp(min=0).sqrt().clamp(min=least)


def token_loss(logits: Tensor, rows: Tensor) -> Tensor:
    """float [B, T]: nats of every token after the first, for logits [B, T, V] and rows int64 [B, T + 1]."""
    return F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten(), reduction="none").view(
        len(rows), -1
    )


def loss_of(
    net: Net,
    rows: Tensor,
    weights: Tensor,
    exit_at: Tensor,
    keep: Tensor | None,
    wanted: Tensor | None,
    objective: Objective,
) -> tuple[Tensor, Tensor]:
    """The loss of a batch, and three figures to report: nats a token, nats an answer's token, nats a token at the exit.

    rows int64 [B, T + 1]; weights float [B, T] of the tokens' own loss; exit_at int64 [] the exit's layer, from 0; keep
    float [L, B] the layers that work; wanted float [B, T, V] the teacher's log-probabilities.
    """
    with torch.autocast(rows.device.type, torch.bfloat16):
        states = net.states(rows[:, :-1], keep=keep)
        # [B, T, V] or [n, V]
        logits = net.head(states[-1] if objective.questions else states[-1][weights > 0])
    if objective.questions:
        nats, said = token_loss(logits, rows), weights.numel()  # [B, T]
    else:
        alone = F.cross_entropy(logits.float(), rows[:, 1:][weights > 0], reduction="none")
        nats, said = weights.new_zeros(weights.shape).masked_scatter(weights > 0, alone), len(alone)
    loss = (nats * weights).sum() / weights.sum().clamp(min=1)
    if wanted is not None:
        distance = divergence(objective.divergence, wanted, logits.float().log_softmax(2))
        loss = (1 - objective.distil) * loss + objective.distil * distance.mean()
    early = nats.new_zeros(())
    if objective.exits:
        some = -(-len(rows) // 4)
        with torch.autocast(rows.device.type, torch.bfloat16):
            # a tensor picks the layer, so that a compiled loss is the same code for all of them
            state = torch.stack([s[:some] for s in states[1:-1]]).index_select(0, exit_at[None])[0]
            early = token_loss(net.head(state), rows[:some]).mean()
        loss = loss + objective.exits * (exit_at + 1) / (net.shape.layers - 1) * early
    told = answer_mask(rows)[:, 1:]
    figures = torch.stack((nats.sum() / said, (nats * told).sum() / told.sum().clamp(min=1), early))
    return loss, figures.detach()


@torch.no_grad()
def teacher_of(teacher: Net, rows: Tensor) -> Tensor:
    """float [B, T, V]: the teacher's log-probabilities of every token after the first."""
    with torch.autocast(rows.device.type, torch.bfloat16):
        return teacher(rows[:, :-1]).float().log_softmax(2)


def own_text(
    net: Net, rows: Tensor, share: float, prompt: float, generator: torch.Generator | None
) -> tuple[Tensor, int]:
    """Rows whose last `share` goes on with the net's own text after its part `prompt`, and the number of such rows.

    On-policy text (DistillSpec, section 4): at decoding time a draft reads contexts that it began itself.
    """
    count = round(share * len(rows))
    if not count:
        return rows, 0
    return torch.cat(
        (rows[: len(rows) - count], continue_rows(net, rows[len(rows) - count :], prompt, 1.0, generator))
    ), count


def target_text(
    target: Net,
    rows: Tensor,
    objective: Objective,
    prompt: float,
    chance: torch.Generator,
    generator: torch.Generator | None,
) -> Tensor:
    """Rows; the first `objective.target_text` of them go on with the target's text after their part `prompt`.

    chance: draws the temperature, on the processor; generator: the tokens
    """
    count = round(objective.target_text * len(rows))
    if not count:
        return rows
    heat = objective.hottest * float(torch.rand((), generator=chance))
    return torch.cat((continue_rows(target, rows[:count], prompt, heat, generator), rows[count:]))


def continue_rows(
    net: Net, rows: Tensor, prompt: float, temperature: float, generator: torch.Generator | None
) -> Tensor:
    """int64 as `rows`: their part `prompt`, from the beginning, and what the net writes behind it."""
    begin = max(1, round(prompt * rows.shape[1]))
    with torch.autocast(rows.device.type, torch.bfloat16):
        return net.write(rows[:, :begin], rows.shape[1] - begin, temperature, generator)
