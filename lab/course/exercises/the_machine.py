"""Chapter 11, the machine: the gain of a draft, and the ridge of the roofline."""

from __future__ import annotations

from decodescope.engine.cost.speedup import expected_tokens, speedup

from ..exercise import Exercise

gain = Exercise(
    "How much faster than plain decoding?",
    speedup(0.8, 4, 0.05),
    [
        (
            expected_tokens(0.8, 4),
            "Those are the tokens of a step. The step also costs more than one plain pass.",
        ),
        (
            expected_tokens(0.8, 3) / 1.2,
            "The target adds a token of its own behind the guesses: the power is n + 1.",
        ),
        (4 * 0.8 / 1.2, "A guess counts only if all before it were kept: powers of 0.8, not four times 0.8."),
        ((1 + 4 * 0.8) / 1.2, "A guess counts only if all before it were kept; its share is a power of 0.8."),
        (expected_tokens(0.8, 4) / 1.05, "Four tokens are drafted, each for a twentieth."),
    ],
    because="(1 - 0.8^5) / (1 - 0.8) tokens for 4 * 0.05 + 1 passes.",
    otherwise="Tokens of a step, by the formula, divided by what the step costs: four drafted tokens and a check.",
)
bend = Exercise(
    "Up to how many tokens does it wait for memory?",
    100,
    [
        (200, "A weight of two bytes is two operations for each token: one operation per byte and token."),
        (50, "One operation per byte and token: the ratio of the machine is the answer."),
        (0.01, "Turned round: operations per second over bytes per second."),
    ],
    because="100 operations per byte, and each token of the pass is worth one per byte.",
    otherwise="n tokens are 2 n operations for the two bytes of a weight. When is that as much as the machine's own ratio?",
)
