"""Train the past-future heads of a frozen model, and write them into its folder, `assets/models/<model>/heads/past_future/`.

    python -m decodescope.training.past_future
    python -m decodescope.training.past_future --model lab-mdm --adapter cloze --tokens 0.2

In front of every layer a small net learns to imitate the layers above: from the state there it predicts the mean of the states
that they will compute from it, at unit mean square each. The loss is one less their cosine (after Liao et al. 2021), on windows
of the training text or, for a model with the cloze adapter, at the masks of its questions.

Then, per exit, logistic regression finds the classifier on the mean of the states until then and on the imitation: is the
exit's best token that of the whole model? A state is read through the trained exits (exits.py) where the adapter's are there,
else through the last norm. Both answers have the same total weight. The model itself stays as it is, bit for bit.

At the end it prints, on held-out text and per exit: the cosine of the imitation and what came, before (the state itself) and
after; how often the exit's best token is the whole model's; and how well a classifier separates the two cases (the chance that
it is surer of an exit that agrees than of one that does not). The classifier sees the state of the exit alone, the past alone,
or both sides.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.checkpoint.folder import read_json
from decodescope.engine.model.heads.base import unit_rms_norm
from decodescope.engine.model.heads.exits import ExitHeads
from decodescope.engine.model.heads.files import load_head, write_head
from decodescope.engine.model.heads.past_future import PastFutureHeads

from .data import held_out_windows, training_stream
from .exits import add_cloze_adapter, layer_states, likeliest_tokens, ranking_accuracy
from .heads import LENGTH, MODELS, ROWS, WINDOWS, fit, windows_of
from .judge import JudgeExamples, fit_judge
from .net import Net
from .specdec import shuffle_batches

RANK = 8
Reading = Callable[[Tensor, int], Tensor]  # states [n, d] that enter a layer -> features for the unembedding


def side_means(found: Sequence[Tensor], layer: int) -> tuple[Tensor, Tensor]:
    """The means [n, d] of the states up to the one that enters `layer`, and of those behind it, at unit mean square each.

    found: as `exits.layer_states`.
    """
    unit = torch.stack([unit_rms_norm(x) for x in found])
    return unit[:layer].mean(0), unit[layer:].mean(0)


def imitation_loss(head: PastFutureHeads, found: Sequence[Tensor], layer: int) -> Tensor:
    """One less the mean cosine between the net's imitation and the actual mean."""
    return 1 - F.cosine_similarity(head(found[layer - 1], layer), side_means(found, layer)[1], dim=-1).mean()


def train(
    net: Net,
    head: PastFutureHeads,
    batches: Iterator[Tensor],
    steps: int,
    lr: float = 3e-3,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """AdamW over `steps` batches of text, int64 [B, T]; all exits at once, each independent of the others."""
    maps = [p.requires_grad_(True) for p in (head.down, head.up)]
    optimizer = torch.optim.AdamW(maps, lr=lr, betas=(0.9, 0.99), weight_decay=0.0)

    def loss() -> Tensor:
        found = layer_states(net, next(batches))
        return torch.stack(
            [imitation_loss(head, found, layer) for layer in range(1, net.shape.layers)]
        ).mean()

    fit(head, optimizer, loss, steps, lr, say)


def collect_states(net: Net, batches: Iterator[Tensor], count: int) -> list[Tensor]:
    """`states` of so many places of text or a few more."""
    parts, seen = list[list[Tensor]](), 0
    while seen < count:
        parts.append(layer_states(net, next(batches)))
        seen += len(parts[-1][0])
    return [torch.cat(x) for x in zip(*parts, strict=True)]


def classifier_inputs(head: PastFutureHeads, found: Sequence[Tensor], layer: int) -> dict[str, Tensor]:
    """What a classifier may see at an exit, [n, d] or [n, 2 d]: the state alone, the past alone, or both sides."""
    past = side_means(found, layer)[0]
    return {
        "state": unit_rms_norm(found[layer - 1]),
        "past": past,
        "both": torch.cat([past, head(found[layer - 1], layer)], -1),
    }


def fit_classifiers(
    net: Net, head: PastFutureHeads, found: Sequence[Tensor], reading: Reading
) -> list[dict[str, Any]]:
    """Give the exits their classifiers, and return per exit the ones that see less, for comparison."""
    best, made = likeliest_tokens(net, net.model.norm(found[-1])), []
    for layer in range(1, len(found)):
        with torch.no_grad():
            agrees = likeliest_tokens(net, reading(found[layer - 1], layer)) == best
            told = classifier_inputs(head, found, layer)
        says = {
            name: fit_judge(JudgeExamples(x, agrees, torch.zeros_like(agrees))).says
            for name, x in told.items()
        }
        with torch.no_grad():
            head.past[layer - 1], head.future[layer - 1] = says["both"].weight[0].chunk(2)
            head.bias[layer - 1] = says["both"].bias[0]
        made.append(says)
    return made


@torch.no_grad()
def measure(
    net: Net, head: PastFutureHeads, found: Sequence[Tensor], reading: Reading, made: Sequence[dict[str, Any]]
) -> list[dict[str, float]]:
    """Figures of each exit on held-out states.

    `cosine` compares the imitation with what came, `cosine_before` the state itself; `agrees`; and `tells_state`, `tells_past`,
    `tells` of the three classifiers, see `exits.ranking_accuracy`.
    """
    best, rows = likeliest_tokens(net, net.model.norm(found[-1])), []
    for layer, says in enumerate(made, 1):
        came = side_means(found, layer)[1]
        agrees = likeliest_tokens(net, reading(found[layer - 1], layer)) == best
        row = {
            "cosine_before": float(F.cosine_similarity(unit_rms_norm(found[layer - 1]), came, dim=-1).mean())
        }
        row["cosine"] = 1 - float(imitation_loss(head, found, layer))
        row["agrees"] = float(agrees.double().mean())
        row |= {
            f"tells_{x}": ranking_accuracy(says[x](told)[:, 0], agrees)
            for x, told in classifier_inputs(head, found, layer).items()
        }
        row["tells"] = row.pop("tells_both")
        rows.append(row)
    return rows


def reading_of(net: Net, folder: Path, adapter: str, spec: ModelSpec) -> tuple[Reading, str]:
    """What reads a state, and the name of that: the trained exits that were made for this adapter, or the last norm."""
    from decodescope.engine.session.load import fingerprint

    home = folder / "heads" / "exits"
    config = read_json(home, "config.json") if adapter else None
    if config is None or config.get("target") != fingerprint(folder, adapter):
        return (lambda x, layer: net.model.norm(x)), "none"
    exits = load_head(home, spec, "exits")
    assert isinstance(exits, ExitHeads)
    return exits, "exits"


def main(words: Sequence[str] | None = None) -> None:
    """Train, fit the classifiers, measure, and keep the heads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="lab", help="a folder of assets/models")
    parser.add_argument(
        "--adapter", choices=("cloze",), help="that the model has; its questions are the text"
    )
    parser.add_argument("--tokens", type=float, default=0.06, help="training tokens in millions")
    parser.add_argument(
        "--judged", type=int, default=5000, help="places of training text that the classifiers learn from"
    )
    parser.add_argument("--rank", type=int, default=RANK)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--into", type=Path, help="folder in which past_future/ is written; by default the model's heads/"
    )
    args = parser.parse_args(words)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    from decodescope.engine.session.load import describe, fingerprint

    folder = MODELS / args.model
    net = Net.from_folder(folder).requires_grad_(False)
    head = PastFutureHeads(d=net.shape.width, n_layers=net.shape.layers, rank=args.rank)
    if args.adapter:
        text, held_out = add_cloze_adapter(net, folder / "adapters" / args.adapter, args.seed)
        steps, judge = int(args.tokens * 1e6) // 1536, args.judged // 3
    else:
        held_out = [*held_out_windows(LENGTH, 16).split(ROWS)]
        corpus = windows_of(training_stream(), max(ROWS, int(args.tokens * 1e6) // LENGTH), args.seed + 1)
        text = shuffle_batches(corpus, args.seed + 2, "cpu", WINDOWS)
        steps = len(corpus) // WINDOWS
        judge = args.judged
    reading, how = reading_of(net, folder, args.adapter or "", describe(folder, args.model))
    print(
        f"{sum(p.numel() for p in head.parameters()):,} parameters; {steps} steps; states read by {how}",
        flush=True,
    )
    train(net, head, text, steps, args.lr, say=lambda line: print(line, flush=True))
    made = fit_classifiers(net, head, collect_states(net, text, judge), reading)
    unseen = [torch.cat(x) for x in zip(*(layer_states(net, part) for part in held_out), strict=True)]
    table = [
        {"layer": i, **{k: round(x, 4) for k, x in row.items()}}
        for i, row in enumerate(measure(net, head, unseen, reading, made), 1)
    ]
    print("| exit in front of | cosine, the state | imitated | agrees | state tells | past | both |")
    print("|---|---|---|---|---|---|---|")
    for row in table:
        print(
            f"| {row['layer']} | {row['cosine_before']:.3f} | {row['cosine']:.3f} | {row['agrees']:.1%} | "
            f"{row['tells_state']:.3f} | {row['tells_past']:.3f} | {row['tells']:.3f} |"
        )
    head.made_for = fingerprint(folder, args.adapter or "")
    settings = {k: vars(args)[k] for k in ("adapter", "tokens", "judged", "lr", "seed")}
    notes: dict[str, Any] = {"held_out": table, "made_with": settings, "read_by": how}
    write_head(head, (args.into or folder / "heads") / head.kind, notes)


if __name__ == "__main__":
    main()
