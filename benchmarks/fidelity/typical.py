"""Typical acceptance beside Medusa's or Hydra's own: the same tree, the same logits, step by step.

    python benchmarks/fidelity/typical.py CHECKOUT        # of FasterDecoding/Medusa or zankner/Hydra

We decode with the shipped Medusa heads under `typical`; each step's tree and logits go to their `evaluate_posterior` as well,
in their layout: one row per path, padded. Compared are the path and the token after it, which their `generate_candidates` takes
as the likeliest at the path's end. Theirs without a limit of its own (Medusa's) reads the padding too: where token 0 passes the
bound in the padding of a path, it believes that path longer than it is; such steps are counted apart.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import Any

import torch
from official import Code, Texts, candidates, main, outcomes, parser, told

from decodescope.engine import Method
from decodescope.engine.decoding.bases.drafter import DraftOutcome

EPSILON, DELTA = 0.09, 0.3


def compare(args: argparse.Namespace) -> None:
    """Decode, ask both, and print."""
    code = Code(args.checkout, "medusa/model/utils.py", "hydra/model/utils.py")
    hydra = code.place.startswith("hydra")
    (evaluate,) = code.take("evaluate_posterior", torch=torch)
    texts, rows = Texts(args), []
    for temperature in (0.0, 0.5, 0.8, 1.2):
        count: Counter[str] = Counter()
        names = {"drafter": "medusa", "acceptance": "typical", "sampler": ["temperature"]}
        knobs = {
            "temperature": {"temperature": temperature},
            "acceptance": {"epsilon": EPSILON, "delta": DELTA},
        }
        for session in texts.sessions(Method.from_names(names, knobs)):
            for outcome in outcomes(session):
                if outcome.draft.tokens:
                    count.update(asked(evaluate, outcome, temperature, hydra))
        cells = ("accepted", "path", "token", "padding", "other")
        rows.append([temperature, count["steps"], *(count[x] for x in cells)])
    told(
        code,
        ("temperature", "steps", "tokens accepted", "same path", "same token", "padding read", "otherwise"),
        rows,
    )


def asked(evaluate: Any, outcome: DraftOutcome, temperature: float, hydra: bool) -> Counter[str]:
    """One step: whether theirs comes to the same."""
    verdict = outcome.verdict
    rows, tokens, lengths = candidates(outcome.draft, outcome.root, 0)
    logits = outcome.logits[rows]
    limits = [torch.tensor(lengths)] if hydra else []
    best, accepted = evaluate(logits, tokens, temperature, EPSILON, DELTA, *limits)
    path = [row - 1 for row in rows[int(best), 1 : int(accepted) + 1].tolist()]
    beyond = -2 in path  # the padding counted as accepted
    same = path == verdict.path
    return Counter(
        steps=1,
        accepted=len(verdict.path),
        path=same,
        token=same and int(logits[int(best), int(accepted)].argmax()) == verdict.token,
        padding=beyond,
        other=not same and not beyond,
    )


if __name__ == "__main__":
    sys.exit(main(compare, parser(__doc__)))
