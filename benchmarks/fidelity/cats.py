"""CATs beside ours: the same scores of exits; at which one does each token leave?

    python benchmarks/fidelity/cats.py CHECKOUT        # of TalSchuster/CATs

Their four functions get what CALM's tests said of every token of the texts, largest probabilities at each exit, and whether its
best token was the whole model's; every second token is calibrated on, and the others are tried. Where scores are equal theirs
draws a number, which is 1 here. Their `interpolation` of a quantile is called `method` in NumPy today.
"""

from __future__ import annotations

import argparse
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
from official import Code, Texts, main, parser, told

from decodescope.engine import Method
from decodescope.engine.bench.calibration.calibrate import CalibrationText
from decodescope.engine.bench.calibration.conformal_exits import PROCEDURES, choose_exits
from decodescope.engine.bench.calibration.scores import exit_scores

NAMES = {"naive": "naive", "static": "static", "independent": "indep", "shared": "shared"}
INF = 1e8


def numbers() -> SimpleNamespace:
    """NumPy as their code calls it, and a chance that is always 1."""

    def quantile(x: Any, share: float, interpolation: str) -> Any:
        return np.quantile(x, share, method=interpolation)

    return SimpleNamespace(
        **{**vars(np), "quantile": quantile, "random": SimpleNamespace(random=lambda: 1.0)}
    )


def compare(args: argparse.Namespace) -> None:
    """Score, ask both, and print."""
    code = Code(args.checkout, "src/conformal.py")
    taken = code.take(*(f"{NAMES[x]}_early_exit" for x in PROCEDURES), np=numbers(), INF=INF)
    texts = Texts(args)
    prompts = [CalibrationText(tuple(x)) for x in texts.prompts]
    scores, agrees = exit_scores(
        texts.model, Method.of("confidence_exit"), prompts, args.new_tokens, args.seed
    )
    known = (scores[::2], agrees[::2])
    tried = scores[1::2]
    rows = []
    for how, theirs in zip(PROCEDURES, taken, strict=True):
        for eps in (0.02, 0.1, 0.3):
            ours = choose_exits(how, tried, *known, eps)
            given = () if how == "naive" else known
            due = [_asked(theirs, x, given, eps) for x in tried]
            same = sum(a == b for a, b in zip(ours.tolist(), due, strict=True))
            rows.append([how, eps, len(due), same, f"{ours.mean():.2f}"])
    told(code, ("procedure", "eps", "tokens", "same exit", "mean exit"), rows)


def _asked(theirs: Any, x: Any, known: Any, eps: float) -> int:
    """At which exit theirs leaves."""
    scores, agrees = known or (None, None)
    return int(theirs(x, scores, None if agrees is None else agrees.astype(int), eps))


if __name__ == "__main__":
    sys.exit(main(compare, parser(__doc__)))
