"""Train the trigram layers of a frozen model, and write them into its folder, `assets/models/<model>/heads/trigrams/`.

    python -m decodescope.training.trigrams --tokens 0.8

The first layers of the model learn to read a token and its two neighbours alone (SkipBERT, Wang et al. 2022). A map of low rank
on each of their matrices is all that learns; the layers above, and the model itself, stay as they are, bit for bit.

There are two losses, on questions of the cloze adapter (cloze.py): the divergence of the distribution at the mask from the
whole model's, and the squared distance of the states that enter the first layer that reads the text, in units of their mean
square. The engine's own decoder runs everything, so what is trained is what runs.

At the end it prints, on held-out questions and with the layers as they were and as they are: how often the likeliest token at
the mask is the whole model's, the divergence in nats, and how often the likeliest of the question's labels is the right one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.files import write_head
from decodescope.engine.model.heads.trigrams import TrigramLayers
from decodescope.engine.model.layers.partial_pass import Skip
from decodescope.engine.session.load import fingerprint, load

from . import cloze
from .heads import MODELS, fit
from .net import MASK

WEIGHT = 0.3  # of the distance of states, relative to the divergence
HELD_OUT = 100  # questions of each sort


def new_head(decoder: Decoder, layer: int, rank: int) -> TrigramLayers:
    """Maps that change nothing yet."""
    s = decoder.spec
    return TrigramLayers(s.d_model, layer, rank, s.d_ff, s.n_heads, s.n_kv_heads, s.head_dim)


def trigrams(ids: Tensor) -> Tensor:
    """int64 [B T, 3]: each token of ids [B, T] between its neighbours; at an end it replaces the missing neighbour."""
    left, right = (torch.cat(x, 1) for x in ((ids[:, :1], ids[:, :-1]), (ids[:, 1:], ids[:, -1:])))
    return torch.stack([left, ids, right], -1).flatten(0, 1)


def layer_inputs(decoder: Decoder, ids: Tensor, layer: int) -> Tensor:
    """float [B, T, d]: what enters `layer` where the layers below see trigrams alone."""
    alone = trigrams(ids)
    places = torch.arange(3).expand(len(alone), 3)
    return decoder.states_before(Feed(alone, places, highest=2), None, layer)[:, 1].view(*ids.shape, -1)


def mask_logits(
    decoder: Decoder, ids: Tensor, layer: int, states: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(logits [B, V] at the one mask of each row of ids [B, T], inputs of `layer` [B, T, d]); states: replace these inputs."""
    if states is None:
        feed = Feed(ids, torch.arange(ids.shape[1]).expand(*ids.shape), highest=ids.shape[1] - 1)
        states = decoder.states_before(feed, None, layer)
    below = frozenset(range(layer))
    feed = Feed(ids, torch.arange(ids.shape[1]).expand(*ids.shape), highest=ids.shape[1] - 1, states=states)
    return decoder.forward(feed, None, skip=Skip(below, below))[ids == MASK], states


def losses(decoder: Decoder, head: TrigramLayers, ids: Tensor) -> tuple[Tensor, Tensor]:
    """(divergence in nats, relative squared distance of the states) of a batch of questions, int64 [B, T]."""
    layer = head.shape["layer"]
    with torch.no_grad():
        law, due = mask_logits(decoder, ids, layer)
    said, entered = mask_logits(decoder, ids, layer, layer_inputs(head.apply_to(decoder), ids, layer))
    nats = F.kl_div(said.log_softmax(-1), law.log_softmax(-1), log_target=True, reduction="batchmean")
    return nats, (entered - due).square().mean() / due.square().mean()


def train(
    decoder: Decoder,
    head: TrigramLayers,
    batches: Iterator[Tensor],
    steps: int,
    lr: float,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """AdamW over `steps` batches of questions, int64 [B, T], each with one mask a row."""
    optimizer = torch.optim.AdamW(head.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.0)

    def loss() -> Tensor:
        nats, distance = losses(decoder, head, next(batches))
        return nats + WEIGHT * distance

    fit(head, optimizer, loss, steps, lr, say)


@torch.no_grad()
def measure(
    decoder: Decoder,
    head: TrigramLayers | None,
    asked: Sequence[cloze.LabelQuestion],
    by: cloze.LabelQuestions,
) -> dict[str, float]:
    """Figures over questions.

    `agrees`: the share whose likeliest token is the whole model's; `diverges`, nats; `right`: the share whose likeliest label
    is the right one. head: None for the layers as they are, in the whole text.
    """
    layer, told = (0, decoder) if head is None else (head.shape["layer"], head.apply_to(decoder))
    agrees = 0.0
    nats = 0.0
    right = 0
    for _, some in groupby(sorted(asked, key=lambda q: len(by.ids(q))), key=lambda q: len(by.ids(q))):
        group = list(some)
        ids = torch.tensor([by.ids(q) for q in group])
        law, _ = mask_logits(decoder, ids, layer)
        said = law if head is None else mask_logits(decoder, ids, layer, layer_inputs(told, ids, layer))[0]
        agrees += float((said.argmax(-1) == law.argmax(-1)).sum())
        nats += float((law.softmax(-1) * (law.log_softmax(-1) - said.log_softmax(-1))).sum())
        for q, row in zip(group, said.tolist(), strict=True):
            right += max(q.labels, key=lambda label: row[by.token(label)]) == q.answer  # called at once
    return {"agrees": agrees / len(asked), "diverges": nats / len(asked), "right": right / len(asked)}


def main(words: Sequence[str] | None = None) -> None:
    """Train, measure, and keep the layers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--layer", type=int, default=2, help="the first one that reads the text")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--tokens", type=float, default=1.0, help="training tokens in millions")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--into", type=Path, help="folder in which trigrams/ is written; by default the model's heads/"
    )
    args = parser.parse_args(words)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    folder = MODELS / "lab-mdm"
    decoder = load("lab-mdm+cloze", "float32", "cpu").decoder.to()
    head, r = new_head(decoder, args.layer, args.rank).requires_grad_(True), Random(args.seed + 1)
    source, by = cloze.LabelQuestions("train", args.seed + 1, 3000), cloze.LabelQuestions("valid", 0, 200)
    asked = [
        q
        for sort in cloze.LABELS
        for q in (by.ask(sort, r) for _ in range(HELD_OUT))
        if len(by.ids(q)) <= cloze.LONGEST
    ]
    before = measure(decoder, head, asked, by)
    steps = int(args.tokens * 1e6) // cloze.BATCH
    print(f"{sum(p.numel() for p in head.parameters()):,} parameters; {steps} steps", flush=True)
    train(
        decoder,
        head,
        iter(lambda: source.batch(r)[0], None),
        steps,
        args.lr,
        say=lambda line: print(line, flush=True),
    )
    after, whole = measure(decoder, head, asked, by), measure(decoder, None, asked, by)
    print("| first layers | agrees | nats | right |\n|---|---|---|---|")
    for name, x in (
        ("in the whole text", whole),
        ("of trigrams, as they were", before),
        ("of trigrams, trained", after),
    ):
        print(f"| {name} | {x['agrees']:.1%} | {x['diverges']:.3f} | {x['right']:.1%} |")
    head.made_for = fingerprint(folder, "cloze")
    shares = {"whole": whole, "before": before, "after": after}
    notes: dict[str, Any] = {
        "held_out": {name: {k: round(v, 4) for k, v in x.items()} for name, x in shares.items()}
    }
    notes["made_with"] = {k: vars(args)[k] for k in ("layer", "rank", "tokens", "lr", "seed")}
    write_head(head, (args.into or folder / "heads") / head.kind, notes)


if __name__ == "__main__":
    main()
