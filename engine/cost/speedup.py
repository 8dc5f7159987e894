"""When drafting pays: expected tokens a cycle and speedup, from acceptance and cost ratios. Pure arithmetic.

`alpha` is the probability that a drafted token is accepted, taken as independent of its place; gamma tokens are drafted
a cycle. Source: Leviathan et al., Fast Inference from Transformers via Speculative Decoding, arXiv 2211.17192,
section 3; the verification and overhead terms are ours, since verifying gamma + 1 tokens is not free.
"""

from __future__ import annotations

from collections.abc import Sequence


def expected_tokens(alpha: float, gamma: int) -> float:
    """Tokens emitted per cycle: (1 - alpha^(gamma + 1)) / (1 - alpha), the target's own token included."""
    return float(gamma + 1) if alpha == 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)


def expected_tree_tokens(parents: Sequence[int], accept: Sequence[float]) -> float:
    """Tokens emitted per cycle by a tree: 1 + the sum over nodes of P(every node on its path is accepted).

    parents: per node, -1 the root; accept: per node, P(it is accepted | its parent was). Siblings exclude each other.
    """
    reached: list[float] = []
    for parent, chance in zip(parents, accept, strict=True):
        reached.append(chance if parent < 0 else reached[parent] * chance)
    return 1.0 + sum(reached)


def speedup(alpha: float, gamma: int, draft: float, verify: float = 1.0, overhead: float = 0.0) -> float:
    """Tokens per unit of time, over one token per target pass: E / (gamma * draft + verify + overhead).

    All three in target passes of one token: `draft` one drafted token, `verify` the pass over gamma + 1 tokens
    (`roofline.verify_curve`; 1 is the paper's ideal), `overhead` what the machine adds to a cycle. Below 1: a loss.
    """
    return expected_tokens(alpha, gamma) / (gamma * draft + verify + overhead)


def flop_factor(alpha: float, gamma: int, draft_flops: float) -> float:
    """FLOPs per emitted token, over plain decoding: (gamma * draft_flops + gamma + 1) / E; `draft_flops` is the ratio
    of one drafted token's FLOPs to one target token's."""
    return (gamma * draft_flops + gamma + 1) / expected_tokens(alpha, gamma)


def measured_speedup(emitted: int, base_us: float, spent_us: float) -> float:
    """Speedup from counts, no independence assumed: `emitted` tokens in `spent_us` (drafting, verifying, overhead),
    where one plain step takes `base_us`."""
    return emitted * base_us / spent_us
