"""Train SpecDec++'s acceptance head on a frozen draft model, and write it into that model's folder, `heads/specdec/`.

    python -m decodescope.training.specdec
    python -m decodescope.training.specdec --target lab --draft lab-draft --text 0.4
    python -m decodescope.training.specdec --threshold-only      # of the head that is there already; some minutes

The head reads the draft model's last state after a token and gives the probability that the target accepts that token (Huang et
al. 2024, arXiv:2405.19715, section 3.3; Kaffaljidhmah2/SpecDec_pp, specdec_pp/train.py). The target first writes text of its
own at temperature 1. At each of its places a token y is drawn from the draft's distribution q there, with the label min(1, p(y)
/ q(y)), the chance that it is accepted.

The draft model then reads a text in which each token is the drawn one, or, with probability 0.15, the target's own. The head
learns from the drawn ones, by cross-entropy with the soft label, in which refusals weigh 6 times. So its output is no share
accepted, but label / (label + 6 (1 - label)): the table of calibration at the end has a column that undoes the weight.

At the end a threshold h is chosen for this head and these two models, and kept in its config.json. The schedule `specdec_pp`
takes it where its knob is auto. A low h ends nearly every draft at its least length; here the paper's example, 0.3, does so.
The chosen h is the least of GRID whose drafts write nearly as many tokens a pass as those of the fixed length that
`draft_model` has, on prompts of unseen tasks and texts (`correctness.py`), greedily.

The sizes are those of the paper's code, the number of tokens is ours. It takes some minutes on two CPU cores, most of them for
the target's text. Where this package is not installed, put a folder on PYTHONPATH in which `decodescope` is a link to the
checkout.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from decodescope.engine import Method, Session
from decodescope.engine.model.heads.drafting.specdec import AcceptanceHead
from decodescope.engine.model.heads.files import load_head, write_head
from decodescope.engine.session.load import Model, fingerprint, load
from decodescope.engine.trace.records.phases import is_deciding_pass

from .heads import MODELS, ROWS, UNSEEN, fit, load_texts, load_weights
from .net import Net

BLOCKS = 3
GRID = (0.1, 0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)  # thresholds that are tried
NEARLY = 0.98  # share of the tokens a pass of a fixed length that is enough
ASKED, WRITTEN = 2, 32  # prompts of each kind on which a threshold is chosen, and tokens behind each
MIXED = 0.15  # share of the target's own tokens in what the draft model reads
WEIGHT = 6.0  # of a refusal
BINS = 10  # of the table of calibration


@dataclass
class AcceptanceExamples:
    """The head's training data, for texts of T tokens.

    states: float [B, T - 1, d], the draft model's after each token but the first; labels: float [B, T - 1], the chance that the
    target accepts that token; drawn: bool [B, T - 1], whether it was drawn from the draft, so that the label is its own
    """

    states: Tensor
    labels: Tensor
    drawn: Tensor


def final_states(net: Net, ids: Tensor) -> Tensor:
    """float [B, T, d]: the states after the final norm, for ids int64 [B, T]."""
    return net.model.norm(net.states(ids)[-1]).float()


def next_distribution(net: Net, ids: Tensor) -> Tensor:
    """float [B, T, V]: the distribution of the token after each place of ids int64 [B, T]."""
    return net(ids).float().softmax(-1)


@torch.no_grad()
def examples(
    target: Net, draft: Net, ids: Tensor, draw: torch.Generator, mixed: float = MIXED
) -> AcceptanceExamples:
    """Tokens drawn from the draft at each place of the target's text ids int64 [B, T], and the draft's states for them.

    mixed: share of places at which it reads the target's token instead.
    """
    # both [B, T - 1, V], of the tokens from the second on
    p = next_distribution(target, ids)[:, :-1]
    q = next_distribution(draft, ids)[:, :-1]
    y = torch.multinomial(q.flatten(0, 1), 1, generator=draw).view(len(ids), -1, 1)
    labels = (p.gather(2, y) / q.gather(2, y)).clamp(max=1)[:, :, 0]
    drawn = torch.rand(labels.shape, generator=draw, device=ids.device) >= mixed
    told = torch.where(drawn, y[:, :, 0], ids[:, 1:])
    return AcceptanceExamples(final_states(draft, torch.cat([ids[:, :1], told], 1))[:, 1:], labels, drawn)


def loss_of(head: AcceptanceHead, found: AcceptanceExamples, weight: float = WEIGHT) -> Tensor:
    """Mean cross-entropy with the soft labels, a refusal weighing `weight`, over the drawn tokens."""
    refused, accepted = F.log_softmax(head(found.states).float(), -1).unbind(-1)
    each = -(found.labels * accepted + weight * (1 - found.labels) * refused)
    return (each * found.drawn).sum() / found.drawn.sum()


def new_head(draft: Net, blocks: int = BLOCKS) -> AcceptanceHead:
    """A fresh head for the draft model, with its blocks drawn independently; its output is one half."""
    head = AcceptanceHead(d=draft.shape.width, blocks=blocks)
    for block in head.blocks:
        cast(nn.Linear, block).reset_parameters()
    return head


def train(
    target: Net,
    draft: Net,
    head: AcceptanceHead,
    batches: Iterator[Tensor],
    steps: int,
    lr: float = 1e-3,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """AdamW over `steps` batches of the target's text, int64 [B, T]; both models stay as they are."""
    for net in (target, draft):
        net.requires_grad_(False)
    optimizer = torch.optim.AdamW(head.requires_grad_(True).parameters(), lr=lr, weight_decay=0.01)
    draw = None

    def loss() -> Tensor:
        nonlocal draw
        ids = next(batches)
        draw = draw or torch.Generator(ids.device).manual_seed(seed)
        return loss_of(head, examples(target, draft, ids, draw))

    fit(head, optimizer, loss, steps, lr, say)


def undo_weight(a: Tensor, weight: float = WEIGHT) -> Tensor:
    """The acceptance probability that a head trained with `weight` means by a."""
    return weight * a / (weight * a + 1 - a)


@dataclass
class AcceptanceCalibration:
    """A head's output on unseen text, compared with the true values.

    rows: (from, to, tokens, mean output, the same without the weight, mean label) of every bin that has tokens
    loss: of the head;  constant: of the best head with a constant output
    """

    rows: list[tuple[float, float, int, float, float, float]]
    loss: float
    constant: float

    def table(self) -> str:
        """As text."""
        lines = ["| head says | tokens | mean | without the weight | accepted |", "|---|---|---|---|---|"]
        lines += [
            f"| {a:.1f} to {b:.1f} | {n:,} | {x:.3f} | {y:.3f} | {z:.3f} |" for a, b, n, x, y, z in self.rows
        ]
        return "\n".join([*lines, f"loss {self.loss:.4f}; always the same answer: {self.constant:.4f}"])


@torch.no_grad()
def measure_calibration(
    target: Net, draft: Net, head: AcceptanceHead, windows: Tensor, seed: int = 0, weight: float = WEIGHT
) -> AcceptanceCalibration:
    """Of the head on windows int64 [N, T] of the target's text."""
    draw = torch.Generator(windows.device).manual_seed(seed)
    said, labels = list[Tensor](), list[Tensor]()
    for part in windows.split(ROWS):
        found = examples(target, draft, part, draw)
        said.append(head.acceptance_probability(found.states)[found.drawn].double())
        labels.append(found.labels[found.drawn].double())
    a, true = torch.cat(said), torch.cat(labels)
    place = (a * BINS).long().clamp(max=BINS - 1)
    rows = []
    for i in range(BINS):
        here = place == i
        if here.any():
            means = (a[here].mean(), undo_weight(a[here], weight).mean(), true[here].mean())
            rows.append((i / BINS, (i + 1) / BINS, int(here.sum()), *(float(x) for x in means)))
    mean = true.mean()
    same = mean / (mean + weight * (1 - mean))  # what minimises the loss of one answer for all
    return AcceptanceCalibration(
        rows, _entropy(a, true, weight), _entropy(same.expand_as(true), true, weight)
    )


def _entropy(a: Tensor, labels: Tensor, weight: float) -> float:
    a = a.clamp(1e-12, 1 - 1e-12)
    return float(-(labels * a.log() + weight * (1 - labels) * (1 - a).log()).mean())


@dataclass
class ThresholdChoice:
    """A threshold, and the measurements behind it.

    (h, tokens a pass, drafted a pass) of each that was tried; `fixed`: the length that they are compared with, and the same
    figures for it.
    """

    threshold: float
    tried: list[tuple[float, float, float]]
    fixed: tuple[int, float, float]

    def notes(self) -> dict[str, object]:
        """What its file records in addition to the threshold."""
        return {"thresholds": [list(row) for row in self.tried], "fixed": list(self.fixed)}


def drafting_figures(
    target: Model, draft: Model, prompts: Sequence[Sequence[int]], method: Method, new: int
) -> tuple[float, float]:
    """Tokens and drafted tokens a pass of the target, over texts of `new` tokens behind the prompts."""
    tokens = guesses = passes = 0
    for prompt in prompts:
        session = Session(
            target, method, list(prompt), models={"draft": draft}, max_new_tokens=new, level="summary"
        )
        for step in session.stream():
            tokens += len(step.emitted)
            guesses += step.drafted
            passes += sum(map(is_deciding_pass, step.passes))
    return round(tokens / passes, 4), round(guesses / passes, 4)


def choose_threshold(
    target: Model, draft: Model, prompts: Sequence[Sequence[int]], new: int = WRITTEN
) -> ThresholdChoice:
    """The least threshold of GRID whose drafts write NEARLY as many tokens a pass as drafts of a fixed length.

    The last one where none does. Thresholds after the first that is enough are not tried.
    """
    parts: dict[str, str] = {"drafter": "draft_model"}
    plain = Method.from_names(parts)
    fixed = (
        int(plain.drafter.knobs()["max_draft_tokens"]),
        *drafting_figures(target, draft, prompts, plain, new),
    )
    tried = list[tuple[float, float, float]]()
    for h in GRID:
        method = Method.from_names({**parts, "schedule": "specdec_pp"}, {"schedule": {"threshold": h}})
        tried.append((h, *drafting_figures(target, draft, prompts, method, new)))
        print(f"h = {h:g}: {tried[-1][1]:.2f} tokens and {tried[-1][2]:.2f} drafted ones a pass", flush=True)
        if tried[-1][1] >= NEARLY * fixed[1]:
            break
    print(f"threshold {tried[-1][0]:g}; {fixed[1]:.2f} tokens a pass with drafts of {fixed[0]}", flush=True)
    return ThresholdChoice(tried[-1][0], tried, fixed)


def calibrate(target: str, draft: str, folder: Path, each: int, seed: int) -> None:
    """Choose the threshold of the head in `folder`, and keep it in its config."""
    from .correctness import prompts

    big = load(str(MODELS / target), "float32", "cpu")
    small = load(str(MODELS / draft), "float32", "cpu", {"specdec": folder})
    found = choose_threshold(big, small, [ids for _, ids in prompts(big, "valid", each, seed)])
    head, config = load_head(folder, small.spec, "specdec"), json.loads((folder / "config.json").read_text())
    head.threshold = found.threshold
    kept = {
        name: x for name, x in config.items() if name not in ("kind", "shape", "target", "rates", "threshold")
    }
    write_head(head, folder, {**kept, **found.notes()})


def shuffle_batches(rows: np.ndarray, seed: int, device: str, size: int = ROWS) -> Iterator[Tensor]:
    """Batches int64 [size, T] without end: all rows in random order, then again in another."""
    r = np.random.default_rng(seed)
    while True:
        order = r.permutation(len(rows))
        for at in range(0, len(rows) - size + 1, size):
            yield torch.from_numpy(rows[order[at : at + size]].astype(np.int64)).to(device)


def main(words: Sequence[str] | None = None) -> None:
    """Write text, train, measure, and keep the head."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--target", default="lab", help="a folder of assets/models")
    parser.add_argument("--draft", default="lab-draft", help="a folder of assets/models")
    parser.add_argument("--from", dest="source", type=Path, help="folder of specdec/: go on with this head")
    parser.add_argument(
        "--text", type=float, default=0.2, help="of the target's own text, in millions of tokens"
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--unseen", type=int, default=UNSEEN, help="windows of held-out text to measure on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: as torch finds it")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument(
        "--threshold-only", action="store_true", help="choose the threshold of the head there is"
    )
    parser.add_argument(
        "--asked", type=int, default=ASKED, help="prompts of each kind on which the threshold is chosen"
    )
    parser.add_argument(
        "--into", type=Path, help="folder in which specdec/ is written; by default the draft model's heads/"
    )
    args = parser.parse_args(words)
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    folder = (args.into or MODELS / args.draft / "heads") / AcceptanceHead.kind
    if not args.threshold_only:
        train_head(args, folder)
    calibrate(args.target, args.draft, folder, args.asked, args.seed + 7)


def train_head(args: argparse.Namespace, folder: Path) -> None:
    """Train a head, measure it, and write it without a threshold."""
    target, draft = (
        Net.from_folder(MODELS / x).to(args.device).requires_grad_(False) for x in (args.target, args.draft)
    )
    made_for = fingerprint(MODELS / args.target)
    _, own, held_out = load_texts(target, made_for, args.text, args.seed, args.unseen)

    head = new_head(draft).to(args.device)
    earlier = {"from": load_weights(head, args.source)} if args.source else {}
    steps = max(1, args.epochs * (len(own) // ROWS))
    print(
        f"{sum(p.numel() for p in head.parameters()):,} parameters; {steps} steps of {ROWS} windows",
        flush=True,
    )
    batches = shuffle_batches(own, args.seed + 4, args.device)
    train(
        target, draft, head, batches, steps, args.lr, args.seed + 5, say=lambda text: print(text, flush=True)
    )
    found = measure_calibration(target, draft, head, held_out, args.seed + 6)
    print(found.table())
    head.made_for = made_for
    notes = {
        "draft": fingerprint(MODELS / args.draft),
        "calibration": [[round(x, 5) for x in row] for row in found.rows],
        "loss": round(found.loss, 5),
        "constant": round(found.constant, 5),
        "made_with": {k: v for k, v in vars(args).items() if k in ("text", "epochs", "lr", "seed")} | earlier,
    }
    write_head(head, folder, notes)


if __name__ == "__main__":
    main()
