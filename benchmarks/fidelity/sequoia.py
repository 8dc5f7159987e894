"""Sequoia's verdict beside ours: the same tree, the same laws, the same uniforms.

    python benchmarks/fidelity/sequoia.py CHECKOUT        # of Infini-AI-Lab/Sequoia

We decode with the shipped pair of models and the drafter `sequoia` under the rule `lossless`: siblings are drawn without
replacement. Each step goes to their `SpecTree.accept_step` as well, place by place, with the uniforms of our tests. Compared
are the path, and the token after it: theirs is what our uniform for it meets in the law that theirs leaves. Their test is
p > r q where ours is u q < p, and they renormalise q where we keep the laws that siblings were drawn from: the same numbers
but for rounding.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any

import torch
from official import Code, Texts, main, outcomes, parser, told

from decodescope.engine import Method
from decodescope.engine.decoding.bases.drafter import DraftOutcome
from decodescope.engine.decoding.values.chance import invert_cdf
from decodescope.engine.decoding.values.draft import ROOT


def compare(args: argparse.Namespace) -> None:
    """Decode, ask both, and print."""
    (residual,) = Code(args.checkout, "utils.py").take("get_residual", torch=torch)
    code = Code(args.checkout, "Tree/SpecTree.py")
    (step,) = code.take("SpecTree.accept_step", torch=torch, softmax=torch.softmax)
    texts, rows = Texts(args, "lab-draft"), []
    for temperature in (0.5, 0.7, 1.0):
        count: Counter[str] = Counter()
        knobs = {"temperature": {"temperature": temperature}}
        for session in texts.sessions(
            Method.from_names({"drafter": "sequoia", "sampler": ["temperature"]}, knobs)
        ):
            for outcome in outcomes(session):
                if outcome.draft.tokens:
                    count.update(asked(step, residual, outcome, temperature))
        rows.append([temperature, *(count[x] for x in ("steps", "trials", "accepted", "path", "token"))])
    told(code, ("temperature", "steps", "tests", "tokens accepted", "same path", "same token"), rows)


def asked(step: Any, residual: Any, outcome: DraftOutcome, temperature: float) -> Counter[str]:
    """One step: whether theirs comes to the same. Their place 0 is the root, place i + 1 our node i."""
    draft, verdict = outcome.draft, outcome.verdict
    children = [draft.children(place) for place in range(ROOT, len(draft))]
    laws = [None if not kids else draft.law(kids[0]) for kids in children]
    plain = torch.ones(outcome.logits.shape[1])
    uniforms = {x.node: x.u for x in verdict.trials}
    tree = SimpleNamespace(
        ground_truth_len=1,
        temperature=temperature,
        dtype=outcome.logits.dtype,
        residual_graph=residual,
        tokens=torch.tensor([outcome.root, *draft.tokens]),
        Successors=[[node + 1 for node in kids] for kids in children],
        target_logits=torch.softmax(outcome.logits / temperature, -1),
        draft_logits=torch.stack([plain if law is None else law.log() * temperature for law in laws]),
        r=torch.tensor([0.0, *(uniforms.get(node, 0.0) for node in range(len(draft)))], dtype=torch.float64),
    )
    path = list[int]()
    place = 0
    left = None
    while left is None:
        place, left = step(tree, place)
        path += [place - 1] if left is None else []
    assert verdict.u is not None
    token = invert_cdf(left, verdict.u).token
    trials, kept = len(verdict.trials), len(verdict.path)
    return Counter(
        steps=1, trials=trials, accepted=kept, path=path == verdict.path, token=token == verdict.token
    )


if __name__ == "__main__":
    sys.exit(main(compare, parser(__doc__)))
