"""Train a judge on a frozen model, and write it into its folder, `assets/models/<model>/heads/judge/`.

    python -m decodescope.training.judge
    python -m decodescope.training.judge --tasks 2000 --into out

The judge is one linear map on the model's final feature of a token: is it right (Bachmann et al. 2025, arXiv:2501.19309)? It
learns from the answers of the training tasks. A third of them stay as they are.

In a third one token is replaced by another that the model itself finds likely there, with at least a fifth of its favourite's
probability: right up to that token, and nothing is learnt behind it. In a third one token is replaced by an unlikely one, below
a twentieth of that: wrong from there to the end of the answer. Replacements are drawn by the square root of the model's
distribution, so that they are not mere noise. Right and wrong tokens have the same total weight; logistic regression by L-BFGS
finds the weights.

At the end it prints, for held-out tasks and several thresholds, the share of right tokens that the judge spares, and of the
wrong tokens themselves. It must not spare as many of one as of the other.

The paper labels answers of models by hand, about 30 thousand tokens; this is its recipe on tasks that know their own answers.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.model.heads.files import write_head
from decodescope.engine.model.heads.judge import JudgeHead

from .data import END, answer_mask
from .heads import MODELS, ROWS
from .net import Net

LENGTH = 256  # tokens of a conversation at most
LIKELY = 0.2  # of the model's likeliest token, what a right replacement has at least
UNLIKELY = 0.05  # of the same, what a wrong one has less than
THRESHOLDS = (0.3, 0.5, 0.7, 0.9, 0.97)


@dataclass
class JudgeExamples:
    """States float [n, d] of n judged tokens, whether each is right, bool [n], and whether it was put in, bool [n]."""

    states: Tensor
    right: Tensor
    put: Tensor


def conversations(split: str, count: int, seed: int) -> Tensor:
    """int64 [count or fewer, LENGTH]: random conversations of the corpus's tasks, short enough ones, filled up with <|end|>."""
    from .data import load

    found = []
    for text in load(split).values():
        if text.chat:
            found += [text.ids[start:end] for start, end in text.bounds if end - start <= LENGTH]
    order = np.random.default_rng(seed).permutation(len(found))[:count]
    rows = np.full((len(order), LENGTH), END, dtype=np.int64)
    for row, i in zip(rows, order, strict=True):
        row[: len(found[i])] = found[i]
    return torch.from_numpy(rows)


def replace_token(law: Tensor, token: int, right: bool, draw: torch.Generator) -> int | None:
    """Draw another token than `token`, by the square root of `law` [V], among the likely or the unlikely ones.

    None: there is none.
    """
    top = law.max()
    fits = (law >= LIKELY * top) if right else (law < UNLIKELY * top)
    fits[token] = False
    weights = law.sqrt() * fits
    return int(torch.multinomial(weights, 1, generator=draw)) if weights.sum() > 0 else None


@torch.no_grad()
def alter_answers(
    net: Net, ids: Tensor, marks: Tensor, draw: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """(ids, labels, put) of conversations int64 [B, T] with answers at `marks`, some with a token replaced.

    labels: 1 right, 0 wrong, -1 nothing to learn; put: bool [B, T], the replacements.
    """
    laws = net(ids).float().softmax(-1)
    ids = ids.clone()
    labels = torch.where(marks, 1, -1)
    put = torch.zeros_like(marks)
    for row in range(len(ids)):
        kind, places = int(torch.randint(3, (), generator=draw)), marks[row].nonzero()[:, 0]
        places = places[places > 0]
        if kind == 0 or not len(places):
            continue
        at = int(places[torch.randint(len(places), (), generator=draw)])
        token = replace_token(laws[row, at - 1], int(ids[row, at]), kind == 1, draw)
        if token is None:
            continue
        ids[row, at], put[row, at] = token, True
        behind = marks[row].clone()
        behind[: at + 1] = False
        if kind == 1:
            labels[row, behind] = -1
        else:
            ends = (marks[row, at:].long() == 0).nonzero()
            stop = at + int(ends[0, 0]) if len(ends) else ids.shape[1]
            labels[
                row, behind
            ] = -1  # a later answer of the conversation follows a wrong one: neither right nor wrong
            labels[row, at:stop] = 0
    return ids, labels, put


@torch.no_grad()
def examples(net: Net, rows: Tensor, seed: int) -> JudgeExamples:
    """What the judge learns from conversations int64 [N, T]."""
    draw, parts = torch.Generator().manual_seed(seed), []
    length = (torch.arange(rows.shape[1]) * (rows != END)).amax(
        1
    ) + 2  # without what fills up, but for the closing <|end|>
    order = length.argsort()
    for part, most in zip(rows[order].split(ROWS), length[order].split(ROWS), strict=True):
        part = part[:, : int(most.max())]
        ids, labels, put = alter_answers(net, part, answer_mask(part), draw)
        here = labels >= 0
        parts.append((token_features(net, ids)[here], labels[here] == 1, put[here]))
    return JudgeExamples(*(torch.cat(x) for x in zip(*parts, strict=True)))


def token_features(net: Net, ids: Tensor) -> Tensor:
    """float [B, T, d]: the final features of the tokens of ids int64 [B, T]; the model has read each of them by then."""
    return net.model.norm(net.states(ids)[-1]).float()


def fit_judge(found: JudgeExamples, decay: float = 1e-3) -> JudgeHead:
    """Fit the judge that separates right from wrong best; right and wrong have the same total weight.

    decay: of its weights, for states at unit variance.
    """
    mean, scale = found.states.mean(0), found.states.std(0).clamp(min=1e-6)
    x, y = (found.states - mean) / scale, found.right.float()
    each = torch.where(found.right, 0.5 / y.mean().clamp(min=1e-6), 0.5 / (1 - y.mean()).clamp(min=1e-6))
    w = torch.zeros(x.shape[1] + 1, requires_grad=True)
    optimizer = torch.optim.LBFGS([w], max_iter=200, history_size=20, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        said = x @ w[1:] + w[0]
        made = F.binary_cross_entropy_with_logits(said, y, each) + decay * w[1:].square().sum()
        made.backward()
        return made

    optimizer.step(loss)
    head, w = JudgeHead(x.shape[1]), w.detach()
    with torch.no_grad():
        head.says.weight.copy_((w[1:] / scale)[None])
        head.says.bias.copy_(w[:1] - (w[1:] * mean / scale).sum())
    return head.requires_grad_(False)


@torch.no_grad()
def spared_shares(head: JudgeHead, found: JudgeExamples) -> list[tuple[float, ...]]:
    """Per threshold: it, and the share that the judge spares of right tokens, of right and of wrong ones that were put in."""
    j, put = head.right_probability(found.states), found.put
    groups = (found.right, found.right & put, ~found.right & put)
    return [(t, *(float((j[x] > t).float().mean()) for x in groups)) for t in THRESHOLDS]


def main(words: Sequence[str] | None = None) -> None:
    """Make examples, fit, measure, and keep the judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="lab", help="a folder of assets/models")
    parser.add_argument("--tasks", type=int, default=1500, help="conversations to learn from")
    parser.add_argument("--unseen", type=int, default=400, help="held-out conversations to measure it on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: as torch finds it")
    parser.add_argument(
        "--into", type=Path, help="folder in which judge/ is written; by default the model's heads/"
    )
    args = parser.parse_args(words)
    if args.threads:
        torch.set_num_threads(args.threads)

    from decodescope.engine.session.load import fingerprint

    folder = MODELS / args.model
    net = Net.from_folder(folder).requires_grad_(False)
    found = examples(net, conversations("train", args.tasks, args.seed), args.seed + 1)
    print(f"{len(found.states):,} tokens, {float(found.right.float().mean()):.0%} of them right", flush=True)
    head = fit_judge(found)
    unseen = examples(net, conversations("valid", args.unseen, args.seed + 2), args.seed + 3)
    table = spared_shares(head, unseen)
    print("| threshold | right tokens | right, put in | wrong, put in |\n|---|---|---|---|")
    for t, *shares in table:
        print(f"| {t} | " + " | ".join(f"{x:.0%}" for x in shares) + " |")
    head.made_for = fingerprint(folder)
    notes = {
        "judged": [[round(x, 4) for x in row] for row in table],
        "made_with": {"tasks": args.tasks, "seed": args.seed},
    }
    write_head(head, (args.into or folder / "heads") / head.kind, notes)


if __name__ == "__main__":
    main()
