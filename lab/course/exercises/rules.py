"""Chapter 6, rules: how often a guess is kept, and the distribution that its replacement is drawn from."""

from __future__ import annotations

from collections.abc import Sequence

from ..exercise import Exercise, same_function

kept = Exercise(
    "How often is a guess kept?",
    0.7,
    [
        (
            0.4 / 0.7,
            "That is how often a guess of the first token is kept; the second one is guessed too, and always kept.",
        ),
        (
            0.4 + 0.6 * 0.3,
            "Add up min(p, q) over the tokens: a guess of a token comes with q and is kept with min(1, p / q).",
        ),
        (0.5, "Not a matter of luck alone: add up q times min(1, p / q) over both tokens."),
        (
            0.7 * 0.4 + 0.3 * 0.6,
            "That is how often two independent draws agree. The test keeps more than that.",
        ),
    ],
    because="min(0.7, 0.4) + min(0.3, 0.6): the share in which both distributions agree.",
    otherwise="Each token is guessed with q and kept with min(1, p / q): add up the products.",
)


def _residual(p: Sequence[float], q: Sequence[float]) -> list[float]:
    """norm(max(p - q, 0))."""
    rest = [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]
    return [x / sum(rest) for x in rest]


residual = Exercise(
    "What is the token drawn from?",
    _residual,
    [
        (
            lambda p, q: list(p),
            "Then what the draft likes too well comes too often: that is the rule of the beginning.",
        ),
        (
            lambda p, q: [max(a - b, 0.0) for a, b in zip(p, q, strict=True)],
            "Those are the right shares. They do not add up to one yet.",
        ),
        (
            lambda p, q: [
                abs(a - b) / sum(abs(c - d) for c, d in zip(p, q, strict=True))
                for a, b in zip(p, q, strict=True)
            ],
            "Where q is larger than p nothing is missing: such a token must not come here.",
        ),
        (
            lambda p, q: _residual(q, p),
            "Turned round: what is missing is what the target wants and the draft did not bring.",
        ),
    ],
    same=same_function(
        ([0.4, 0.6], [0.7, 0.3]), ([0.5, 0.3, 0.2], [0.2, 0.2, 0.6]), ([0.1, 0.2, 0.7], [0.6, 0.1, 0.3])
    ),
    because="What the test lets through is min(p, q); the rest of p is drawn from, made to add up to one.",
    otherwise="It has to be zero where q is larger than p, and add up to one.",
)
