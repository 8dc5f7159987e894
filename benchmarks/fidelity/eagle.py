"""EAGLE's verdict beside ours: the same tree, the same logits, the same uniforms.

    python benchmarks/fidelity/eagle.py CHECKOUT        # of SafeAILab/EAGLE

We decode with the shipped EAGLE head in EAGLE-2's trees under the rule `lossless`. Each step's tree and logits go to their
`evaluate_posterior` as well, in their layout, with the uniforms of our tests in the place of Python's. Compared are the path,
and the token after it: theirs is what our uniform for it meets in the law that theirs leaves, under a greedy sampler the best.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any

import torch
from official import Code, Texts, candidates, main, outcomes, parser, told

from decodescope.engine import Method, Session
from decodescope.engine.decoding.bases.drafter import DraftOutcome
from decodescope.engine.decoding.values.chance import invert_cdf

SAMPLERS: dict[str, tuple[list[str], dict[str, dict[str, Any]]]] = {
    "greedy": (["greedy"], {}),
    "T = 0.7": (["temperature"], {"temperature": {"temperature": 0.7}}),
    "T = 1": (["temperature"], {"temperature": {"temperature": 1.0}}),
    "T = 1, top-k 5": (["top_k", "temperature"], {"top_k": {"k": 5}, "temperature": {"temperature": 1.0}}),
}


def compare(args: argparse.Namespace) -> None:
    """Decode, ask both, and print."""
    code = Code(args.checkout, "eagle/model/utils.py")
    texts, rows = Texts(args), []
    for name, (samplers, knobs) in SAMPLERS.items():
        count: Counter[str] = Counter()
        for session in texts.sessions(Method.from_names({"drafter": "eagle2", "sampler": samplers}, knobs)):
            for outcome in outcomes(session):
                if outcome.draft.tokens:
                    count.update(asked(code, session, outcome))
        rows.append([name, *(count[x] for x in ("steps", "trials", "accepted", "path", "token"))])
    told(code, ("sampler", "steps", "tests", "tokens accepted", "same path", "same token"), rows)


def asked(code: Code, session: Session, outcome: DraftOutcome) -> Counter[str]:
    """One step: whether theirs comes to the same."""
    verdict, sampler = outcome.verdict, session.method.sampler
    # beyond ours: theirs would accept, and differ
    uniforms = iter([x.u for x in verdict.trials] + [0.0] * len(outcome.draft))
    (evaluate,) = code.take(
        "evaluate_posterior", torch=torch, random=SimpleNamespace(random=lambda: next(uniforms))
    )
    rows, tokens, _ = candidates(outcome.draft, outcome.root, -1)
    warp = None if sampler.greedy else lambda _, logits: sampler.warp(logits[0], session.sampler_state)[None]
    best, accepted, left = evaluate(outcome.logits[rows], tokens, warp)
    path = [row - 1 for row in rows[int(best), 1 : int(accepted) + 1].tolist()]
    token = int(left.argmax()) if verdict.u is None else invert_cdf(left, verdict.u).token
    trials, kept = len(verdict.trials), len(verdict.path)
    return Counter(
        steps=1, trials=trials, accepted=kept, path=path == verdict.path, token=token == verdict.token
    )


if __name__ == "__main__":
    sys.exit(main(compare, parser(__doc__)))
