"""Train the filter of Learn2PD on `lab-mdm`, and write it into the model's folder, `heads/learn2pd/`.

    python -m decodescope.training.learn2pd
    python -m decodescope.training.learn2pd --prompts 3000 --into out

It follows the authors (Bao et al. 2025, arXiv:2509.25188; ims-kdks/Learning-to-Parallel-Decoding, generate_training_data.py and
train.ipynb). The model writes a reference, one place a pass. Then it writes again, and in every pass exactly the candidates are
committed that are the reference's tokens. If there are none, the reference's own token at the surest place is committed; the
authors copy the whole block there.

Each pass is an example: the confidences of the block's places, 1 where a token is committed or there is no place, and for each
open place whether its candidate was right. AdamW on all examples at once, until the loss on a tenth of the prompts rises. At
the end it prints figures on other prompts: false positives, and passes, rows and right answers with the filter, the cut, both
and neither, decoded by the engine.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from copy import deepcopy
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine import Method, Session, load
from decodescope.engine.bench.questions.parallel_tasks import LENGTHS, LISTS, is_right_text, make_questions
from decodescope.engine.model.heads.files import write_head
from decodescope.engine.model.heads.learn2pd import ParallelFilter
from decodescope.engine.session.load import fingerprint

from .infill import NAME
from .infill_data import InfillSource
from .net import MASK, Net
from .train import MODELS

BLOCK, HIDDEN = 32, 32  # the authors' sizes: 2,112 numbers
CANVASES = (8, 8, 12, 16, 32)  # places of a canvas, drawn for each prompt
ACCEPT = 0.96
SEED, UNSEEN = 9_000_000, 9_500_000  # of prompts to learn from, and to measure on


@torch.no_grad()
def candidates(net: Net, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest token at every place of ids int64 [B, T], the mask token left out, and its probability, float [B, T]."""
    logits = net(ids).float()
    logits[..., MASK] = -torch.inf
    sure, token = logits.softmax(2).max(2)
    return token, sure


def reference_texts(net: Net, ids: Tensor) -> Tensor:
    """int64 [B, T]: the texts that fill all masks of ids [B, T], the surest place first, one a pass."""
    while bool((ids == MASK).any()):
        token, sure = candidates(net, ids)
        at = sure.masked_fill(ids != MASK, -1).argmax(1, keepdim=True)
        ids = torch.where((ids == MASK).gather(1, at), ids.scatter(1, at, token.gather(1, at)), ids)
    return ids


def oracle(net: Net, ids: Tensor, wanted: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor, Tensor]]]:
    """What an oracle that knows the texts `wanted` [B, T] writes into the masks of ids int64 [B, T].

    For every pass it also returns the confidences, float [B, T], 1 at places that are committed, and which places are open and
    which candidates right, bool [B, T].
    """
    passes = []
    while bool((ids == MASK).any()):
        open, (token, sure) = ids == MASK, candidates(net, ids)
        right = open & (token == wanted)
        passes.append((sure.masked_fill(~open, 1.0), open, right))
        stuck = open.any(1, keepdim=True) & ~right.any(1, keepdim=True)
        surest = F.one_hot(sure.masked_fill(~open, -1).argmax(1), ids.shape[1]).bool()
        ids = torch.where(right | (stuck & surest), wanted, ids)
    return ids, passes


def examples(net: Net, source: InfillSource, count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Confidences float [N, BLOCK], open places and right candidates bool [N, BLOCK], of the passes over `count` prompts."""
    chance, asked = Random(seed), make_questions(LISTS, -(-count // len(LISTS)), seed)
    coded = [(chance.choice(CANVASES), source.tokenizer.encode(q.prompt).ids) for q in asked]
    parts = []
    for (canvas, length), some in groupby(sorted(coded, key=shape), key=shape):
        ids = F.pad(torch.tensor([x for _, x in some]), (0, canvas), value=MASK)
        text = reference_texts(net, ids)
        again, passes = oracle(net, ids, text)
        assert torch.equal(again, text), "an oracle writes the reference"
        for sure, open, right in passes:
            here = open.any(1)
            blocks = [(x[here, length:], fill) for x, fill in ((sure, 1.0), (open, False), (right, False))]
            parts.append(tuple(F.pad(x, (0, BLOCK - canvas), value=fill) for x, fill in blocks))
    sure, open, right = (torch.cat(x) for x in zip(*parts, strict=True))
    return sure, open, right


def shape(prompt: tuple[int, list[int]]) -> tuple[int, int]:
    """Places of the canvas, and tokens before it."""
    return prompt[0], len(prompt[1])


def loss_of(head: ParallelFilter, data: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Binary cross entropy at the open places."""
    sure, open, right = data
    return F.binary_cross_entropy_with_logits(head(sure)[open], right[open].float())


def fit_filter(
    width: int, train: tuple[Tensor, ...], valid: tuple[Tensor, ...], steps: int, seed: int
) -> ParallelFilter:
    """The filter with the least loss on `valid` during `steps` steps on all examples."""
    torch.manual_seed(seed)
    head = ParallelFilter(width, BLOCK, HIDDEN)
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.003)
    best = deepcopy(head)
    least = float("inf")
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(head, train).backward()  # type: ignore[arg-type]
        optimizer.step()
        if step % 20 == 0:
            with torch.no_grad():
                now = float(loss_of(head, valid))  # type: ignore[arg-type]
            if now < least:
                best, least = deepcopy(head), now
            if step % 400 == 0:
                print(f"step {step} held out {now:.4f}, least {least:.4f}", flush=True)
    return best.requires_grad_(False)


@torch.no_grad()
def filter_shares(head: ParallelFilter, data: tuple[Tensor, Tensor, Tensor]) -> dict[str, float]:
    """Of open places: the share that the filter accepts, and the share of these that are wrong."""
    sure, open, right = data
    accepted = open & (head(sure).sigmoid() > ACCEPT)
    return {
        "accepted": float(accepted.sum() / open.sum()),
        "of the right": float((accepted & right).sum() / right.sum()),
        "wrong": float((accepted & ~right).sum() / accepted.sum().clamp(min=1)),
    }


def decode_accuracy(folder: Path, heads: Path, count: int, canvas: int) -> dict[str, dict[str, float]]:
    """Way -> share of right answers, passes and rows a question, over `count` questions of each list task."""
    model, ways = load(folder, heads={ParallelFilter.kind: heads}), {}
    tokenizer = model.tokenizer
    assert tokenizer is not None, f"{folder} has no tokenizer"
    settings: dict[str, dict[str, Any]] = {
        "one a pass": dict(filter_threshold=1.0, cut_after_end=False),
        "cut": dict(filter_threshold=1.0, cut_after_end=True),
        "filter": dict(filter_threshold=ACCEPT, cut_after_end=False),
        "both": dict(filter_threshold=ACCEPT, cut_after_end=True),
    }
    for way, knobs in settings.items():
        method = Method.from_names(
            {"strategy": "masked", "unmasking": "learn2pd"},
            {"strategy": {"block": BLOCK}, "unmasking": {"steps": canvas, **knobs}},
        )
        right = passes = rows = 0
        asked = make_questions(LISTS, count, UNSEEN, LENGTHS)
        for q in asked:
            session = Session(
                model, method, tokenizer.encode(q.prompt), max_new_tokens=canvas, level="summary"
            )
            for step in session.stream():
                passes, rows = passes + len(step.passes), rows + sum(x.tokens for x in step.passes)
            assert session.end is not None
            said = tokenizer.decode([x for x in session.end.tokens if x not in model.stop_tokens])
            right += is_right_text(q, said)
        ways[way] = {
            k: round(x / len(asked), 3) for k, x in (("right", right), ("passes", passes), ("rows", rows))
        }
        print(f"canvas {canvas}, {way}: {ways[way]}", flush=True)
    return ways


def main(words: Sequence[str] | None = None) -> None:
    """Make examples, fit, measure, and keep the filter."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", type=Path, default=MODELS / NAME, metavar="FOLDER")
    parser.add_argument(
        "--prompts", type=int, default=1500, help="to learn from; a tenth of them says when to stop"
    )
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--questions", type=int, default=20, help="of each list task, to measure on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--into", type=Path, help="folder in which learn2pd/ is written; by default the model's heads/"
    )
    args = parser.parse_args(words)
    torch.set_num_threads(1)
    source, net = InfillSource({}), Net.from_folder(str(args.model)).eval().requires_grad_(False)
    train, valid, unseen = (
        examples(net, source, n, seed + args.seed)
        for n, seed in ((args.prompts * 9 // 10, SEED), (args.prompts // 10, SEED + 1), (300, UNSEEN))
    )
    print(f"{len(train[0]):,} passes with {int(train[1].sum()):,} open places", flush=True)
    head = fit_filter(net.shape.width, train, valid, args.steps, args.seed)
    head.made_for = fingerprint(args.model)
    folder = (args.into or args.model / "heads") / head.kind
    numbers = {"prompts": args.prompts, "passes": len(train[0]), "steps": args.steps, "seed": args.seed}
    notes: dict[str, Any] = {"made_with": numbers}
    write_head(head, folder, notes)
    shares = {k: round(x, 4) for k, x in filter_shares(head, unseen).items()}
    notes["measured"] = {
        "accept": ACCEPT,
        "open places of unseen passes": shares,
        **{f"canvas of {n}": decode_accuracy(args.model, folder, args.questions, n) for n in (8, 32)},
    }
    write_head(head, folder, notes)


if __name__ == "__main__":
    main()
