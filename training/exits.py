"""Train the exits of a frozen model, and write them into its folder, `assets/models/<model>/heads/exits/`.

    python -m decodescope.training.exits
    python -m decodescope.training.exits --tokens 2 --into out
    python -m decodescope.training.exits --model lab-mdm --adapter cloze --tokens 0.8

The last command reads the masks of cloze questions (cloze.py), by the model with that adapter.

Every exit gets a norm and a map of low rank of its own, through which the model's unembedding reads the state that enters a
layer. The model itself stays as it is, bit for bit. The exits learn to say what the whole model says (self-distillation, as
FastBERT's, arXiv:2004.02178), by the divergence of its distribution from the exit's, on windows of the training text. The exits
take turns, one a step, as LayerSkip's do (arXiv:2404.16710).

Then, per exit, logistic regression finds the `meta` classifier of CALM (arXiv:2207.07061, section 3.5): is the exit's best
token that of the whole model? Both answers have the same total weight.

At the end it prints, on held-out text and per exit: how often its best token is the whole model's, before and after; the same
for the divergence; and how well the classifier separates the two cases (the chance that it is surer of an exit that agrees than
of one that does not).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from decodescope.engine.model.heads.base import unit_rms_norm
from decodescope.engine.model.heads.exits import ExitHeads
from decodescope.engine.model.heads.files import write_head

from . import cloze
from .data import held_out_windows, training_stream
from .heads import LENGTH, MODELS, ROWS, WINDOWS, fit, load_weights, windows_of
from .judge import JudgeExamples, fit_judge
from .net import MASK, Net
from .specdec import shuffle_batches

RANK = 16
JUDGED = 20_000  # places of training text that the classifiers learn from


def new_head(net: Net, rank: int = RANK) -> ExitHeads:
    """Exits that read as the model's last norm and unembedding do: the untrained starting point."""
    head = ExitHeads(d=net.shape.width, n_layers=net.shape.layers, rank=rank)
    with torch.no_grad():
        head.norm.copy_(net.model.norm.weight.expand_as(head.norm))
    return head


@torch.no_grad()
def layer_states(net: Net, ids: Tensor) -> list[Tensor]:
    """float [B T, d] each: the inputs of layer 1, 2, ... and the output of the last, for ids int64 [B, T].

    For a model that reads both sides they are taken only at the masks, and there are so many rows.
    """
    with torch.autocast("cpu", torch.bfloat16):
        return [
            (x.flatten(0, 1) if net.shape.causal else x[ids == MASK]).float() for x in net.states(ids)[1:]
        ]


def exit_divergence(net: Net, head: ExitHeads, x: Tensor, layer: int, law: Tensor) -> Tensor:
    """Mean KL(law || exit) in nats over n places, for the exit in front of `layer`.

    `law` [n, V] has log-probabilities; x float [n, d] enters the layer.
    """
    return F.kl_div(net.unembed(head(x, layer)).log_softmax(-1), law, log_target=True, reduction="batchmean")


def train(
    net: Net,
    head: ExitHeads,
    batches: Iterator[Tensor],
    steps: int,
    lr: float = 3e-3,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """AdamW over `steps` batches of text, int64 [B, T]; exit 1, 2, ... in turns."""
    maps = [p.requires_grad_(True) for p in (head.norm, head.down, head.up)]
    optimizer = torch.optim.AdamW(maps, lr=lr, betas=(0.9, 0.99), weight_decay=0.0)
    step = 0

    def loss() -> Tensor:
        nonlocal step
        ids, layer = next(batches), 1 + step % (net.shape.layers - 1)
        step += 1
        found = layer_states(net, ids)
        law = net.unembed(net.model.norm(found[-1])).log_softmax(-1)
        return exit_divergence(net, head, found[layer - 1], layer, law)

    fit(head, optimizer, loss, steps, lr, say)


@torch.no_grad()
def fit_classifiers(net: Net, head: ExitHeads, batches: Iterator[Tensor], count: int) -> None:
    """Give the exits their classifiers, from `count` places of text or a few more."""
    parts, seen = list[list[Tensor]](), 0
    while seen < count:
        parts.append(layer_states(net, next(batches)))
        seen += len(parts[-1][0])
    found = [torch.cat(x) for x in zip(*parts, strict=True)]
    best = likeliest_tokens(net, net.model.norm(found[-1]))
    for layer, x in enumerate(found[:-1], 1):
        agrees = likeliest_tokens(net, head(x, layer)) == best
        with torch.enable_grad():
            says = fit_judge(JudgeExamples(unit_rms_norm(x), agrees, torch.zeros_like(agrees))).says
        head.sure[layer - 1], head.bias[layer - 1] = says.weight[0], says.bias[0]


def likeliest_tokens(net: Net, feature: Tensor) -> Tensor:
    """int64 [n]: the likeliest tokens of features [n, d]."""
    return torch.cat([net.unembed(x).argmax(-1) for x in feature.split(4096)])


def ranking_accuracy(score: Tensor, right: Tensor) -> float:
    """The chance that a right place has a larger score than a wrong one, for float [n] and bool [n]; 0.5: pure chance."""
    order = score.double().argsort().argsort().double() + 1
    n, m = int(right.sum()), int((~right).sum())
    return float((order[right].sum() - n * (n + 1) / 2) / max(n * m, 1))


@torch.no_grad()
def measure(net: Net, head: ExitHeads, windows: Tensor | Sequence[Tensor]) -> list[dict[str, float]]:
    """Figures of each exit on windows int64 [N, T], or several such.

    `agrees`: the share of places at which its best token is the whole model's; `diverges`, in nats; `tells`: the ranking
    accuracy of its classifier, see `ranking_accuracy`.
    """
    rows: list[dict[str, list[Tensor]]] = [
        {"agrees": [], "diverges": [], "meta": []} for _ in range(net.shape.layers - 1)
    ]
    for part in windows.split(ROWS) if isinstance(windows, Tensor) else windows:
        found = layer_states(net, part)
        whole = net.unembed(net.model.norm(found[-1]))
        best, law = whole.argmax(-1), whole.log_softmax(-1)
        for layer, x in enumerate(found[:-1], 1):
            said = net.unembed(head(x, layer)).log_softmax(-1)
            row = rows[layer - 1]
            row["agrees"].append(said.argmax(-1) == best)
            row["diverges"].append((law.exp() * (law - said)).sum(-1))
            row["meta"].append(head.confidence(x, layer))
    out = []
    for row in rows:
        agrees, diverges, meta = (torch.cat(row[x]) for x in ("agrees", "diverges", "meta"))
        tells = ranking_accuracy(meta, agrees)
        out.append(
            {
                "agrees": float(agrees.double().mean()),
                "diverges": float(diverges.double().mean()),
                "tells": tells,
            }
        )
    return out


def add_cloze_adapter(net: Net, adapter: Path, seed: int) -> tuple[Iterator[Tensor], list[Tensor]]:
    """Put the cloze adapter of that folder around the net; batches of questions int64 [B, T] without end, and held-out ones."""
    part = cloze.ClozeAdapter(net, seed, 0)
    part.load(load_file(adapter / "model.safetensors"))
    part.head.requires_grad_(False)

    def batches(split: str, stories: int) -> Iterator[Tensor]:
        source, chance = cloze.LabelQuestions(split, seed + 1, stories), Random(seed + 1)
        while True:
            yield source.batch(chance)[0]

    return batches("train", 3000), list(islice(batches("valid", 200), 60))


def main(words: Sequence[str] | None = None) -> None:
    """Train, fit the classifiers, measure, and keep the exits."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="lab", help="a folder of assets/models")
    parser.add_argument(
        "--adapter", choices=("cloze",), help="that the model has; its questions are the text"
    )
    parser.add_argument("--from", dest="source", type=Path, help="folder of exits/: go on with these")
    parser.add_argument("--tokens", type=float, default=1.0, help="training tokens in millions")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--into", type=Path, help="folder in which exits/ is written; by default the model's heads/"
    )
    args = parser.parse_args(words)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    from decodescope.engine.session.load import fingerprint

    folder = MODELS / args.model
    net = Net.from_folder(folder).requires_grad_(False)
    held_out: Tensor | list[Tensor]
    if args.adapter:
        head = new_head(net)
        steps = int(args.tokens * 1e6) // cloze.BATCH
        judge = JUDGED // 5
        text, held_out = add_cloze_adapter(net, folder / "adapters" / args.adapter, args.seed)
    else:
        held_out, judge = held_out_windows(LENGTH, 64), JUDGED
        count = max(ROWS, int(args.tokens * 1e6) // LENGTH)
        corpus = windows_of(training_stream(), count, args.seed + 1)
        head = new_head(net)
        text = shuffle_batches(corpus, args.seed + 2, "cpu", WINDOWS)
        steps = count // WINDOWS
    print(f"{sum(p.numel() for p in head.parameters()):,} parameters; {steps} steps", flush=True)
    before = measure(net, head, held_out)
    earlier = {"from": load_weights(head, args.source)} if args.source else {}
    train(net, head, text, steps, args.lr, say=lambda line: print(line, flush=True))
    fit_classifiers(net, head, text, judge)
    after = measure(net, head, held_out)
    table = [
        {
            "layer": i,
            **{k: round(x, 4) for k, x in new.items()},
            "agrees_before": round(old["agrees"], 4),
            "diverges_before": round(old["diverges"], 4),
        }
        for i, (old, new) in enumerate(zip(before, after, strict=True), 1)
    ]
    print(
        "| exit in front of | agrees before | after | nats before | after | classifier |\n|---|---|---|---|---|---|"
    )
    for row in table:
        print(
            f"| {row['layer']} | {row['agrees_before']:.1%} | {row['agrees']:.1%} | {row['diverges_before']:.2f} | "
            f"{row['diverges']:.2f} | {row['tells']:.3f} |"
        )
    head.made_for = fingerprint(folder, args.adapter or "")
    notes: dict[str, Any] = {
        "held_out": table,
        "made_with": {k: vars(args)[k] for k in ("adapter", "tokens", "lr", "seed")} | earlier,
    }
    write_head(head, (args.into or folder / "heads") / head.kind, notes)


if __name__ == "__main__":
    main()
