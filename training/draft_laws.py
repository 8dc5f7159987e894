"""Scylla's laws of draft models: how acceptance grows with a draft's training tokens and with its size.

    python -m decodescope.training.draft_laws --threads 1
    python -m decodescope.training.draft_laws points 1:1.90 2:1.71 4:1.38 8:0.94        any other factor, for example batch size

Yan et al. 2025, arXiv:2505.07858: acceptance, or speed, is log-linear in each of three factors, `y = a log10 x + b`: tokens of
training, capacity of the draft, sequences decoded at once. Each model has its own constants. The form and the headline, an
acceptance 1.5 to 2.2 higher than EAGLE-2's, are in the abstract.

Here drafts of 1, 2 and 4 layers begin at random weights and are taught by forward KL on the same windows of the corpus
(`objectives.py`). Every pair of size and tokens has a training of its own, and its rate falls to nothing. The figure is tau on
the target's own held-out text, drawn and greedily.

A law is useful where it predicts a point that it has not seen. So each point is left out once, the line is fitted through the
others, and the error is reported. Finished results are kept in `--out`; the same command goes on after a stop.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path

import torch

from .data import BUILD
from .heads import MODELS
from .net import Net, NetShape, count_weights
from .objectives import GOALS, measure, read_target, teach, text_of, unseen_texts

BASE = NetShape(layers=2, width=128, heads=4, kv_heads=2, head_width=32, inner=384)
LAYERS, TOKENS = (1, 2, 4), (0.05, 0.1, 0.2, 0.4)  # of the drafts; millions
SHOWN = "tau drawn"


@dataclass(frozen=True)
class LogLaw:
    """y = a log10 x + b."""

    a: float
    b: float

    @classmethod
    def fit(cls, points: Sequence[tuple[float, float]]) -> LogLaw:
        """The least squares through points (x, y), x > 0. ValueError for fewer than two different x."""
        if len({x for x, _ in points}) < 2 or min(x for x, _ in points) <= 0:
            raise ValueError(f"A line needs two different places above 0, not {[x for x, _ in points]}.")
        logs = torch.tensor([[math.log10(x), 1.0] for x, _ in points], dtype=torch.float64)
        solved = torch.linalg.lstsq(
            logs, torch.tensor([[y] for _, y in points], dtype=torch.float64)
        ).solution
        return cls(float(solved[0]), float(solved[1]))

    def predict(self, x: float) -> float:
        """What it foretells."""
        return self.a * math.log10(x) + self.b


def unseen_errors(points: Sequence[tuple[float, float]]) -> list[float]:
    """For every point: the prediction by the law of all other points, minus the measured value.

    ValueError for fewer than three.
    """
    return [LogLaw.fit([*points[:i], *points[i + 1 :]]).predict(x) - y for i, (x, y) in enumerate(points)]


def law_row(name: str, points: Sequence[tuple[float, float]]) -> str:
    """A row: the law, its largest and mean error on points that it has not seen, and whether the points rise or fall."""
    law = LogLaw.fit(points)
    errors = [abs(x) for x in unseen_errors(points)]
    ys = [y for _, y in sorted(points)]
    steps = [b - a for a, b in pairwise(ys)]
    if min(steps) > 0:
        course = "rises"
    elif max(steps) < 0:
        course = "falls"
    else:
        course = "neither"
    fitted = f"{law.a:+.3f} log10 x {law.b:+.3f}"
    return f"| {name} | {fitted} | {sum(errors) / len(errors):.3f} | {max(errors):.3f} | {course} |"


def table(found: dict[str, dict[str, float]]) -> str:
    """Markdown: tau of every draft, and the laws through them. Size counts weights outside the embedding."""
    kept = {tuple(map(float, key.split("/"))): x[SHOWN] for key, x in found.items()}
    layers, tokens = (sorted({key[i] for key in kept}) for i in (0, 1))
    rows = [f"| layers | {' | '.join(f'{x:g} M tokens' for x in tokens)} |", "|---" * (len(tokens) + 1) + "|"]
    rows += [
        f"| {n:g} | {' | '.join(f'{kept[n, x]:.3f}' for x in tokens if (n, x) in kept)} |" for n in layers
    ]
    rows += ["", "| law of | fit | error unseen, mean | largest | tau |", "|---|---|---|---|---|"]
    rows += [
        law_row(f"tokens, {n:g} layers", [(x * 1e6, kept[n, x]) for x in tokens if (n, x) in kept])
        for n in layers
    ]
    rows += [
        law_row(f"size, {x:g} M tokens", [(body_size(int(n)), kept[n, x]) for n in layers if (n, x) in kept])
        for x in tokens
    ]
    return "\n".join(rows)


def body_size(layers: int) -> int:
    """Weights of a draft outside its embedding."""
    return count_weights(Net(replace(BASE, layers=layers))) - BASE.vocabulary * BASE.width


def main(words: Sequence[str] | None = None) -> None:
    """Train every draft, and print the table; or fit a line through points."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "points", nargs="*", metavar="points X:Y", help="lay a line through these instead, three or more"
    )
    parser.add_argument("--target", default="lab", help="a folder of assets/models")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--out", type=Path, default=BUILD / "draft_laws.json", help="file of what was measured"
    )
    args = parser.parse_args(words)
    if args.points:
        try:
            print(
                law_row(
                    "x", [(float(x), float(y)) for x, y in (point.split(":") for point in args.points[1:])]
                )
            )
        except ValueError as error:
            parser.error(f"points are three or more pairs X:Y of numbers, X above 0 ({error})")
        return
    torch.set_num_threads(args.threads)
    target = Net.from_folder(MODELS / args.target).requires_grad_(False)
    unseen = unseen_texts(target)
    text = read_target(target, text_of(target, MODELS / args.target, TOKENS[-1], own=False))
    found = json.loads(args.out.read_text()) if args.out.exists() else {}
    for layers, tokens in product(LAYERS, TOKENS):
        key, began = f"{layers}/{tokens}", time.time()
        if key in found:
            continue
        torch.manual_seed(0)
        draft = Net(replace(BASE, layers=layers))
        teach(GOALS["fkl"], target, draft, text, int(tokens * 1e6), rates=(0.006, 0.008))
        found[key] = measure(target, draft, unseen)
        args.out.write_text(json.dumps(found, indent=2) + "\n")
        print(f"{key}: {found[key]}, {time.time() - began:.0f} s", flush=True)
    print(table(found))


if __name__ == "__main__":
    main()
