"""Chapter 8, leaving early: the cost of a draft by the first layers, and the cost per token."""

from __future__ import annotations

from ..exercise import Exercise

saved = Exercise(
    "What does the step cost, as a share of four plain passes?",
    (4 * 2 + 6) / (4 * 8),
    [
        (4 * 2 / (4 * 8), "That is the draft alone. The check has to run too."),
        (1.0, "The check runs once for all four, not once for each."),
        (
            (4 * 2 + 8) / (4 * 8),
            "The check begins behind the two layers that have run: their states were kept.",
        ),
        (14, "That is the cost in layers. Divide by what four plain passes cost."),
    ],
    because="Four times two layers, once six: 14 of 32.",
    otherwise="Count layers: what the draft runs for each token, what the check runs once, and what four plain passes run.",
)
tokens = Exercise(
    "How many layer passes are paid per token written?",
    (4 * 2 + 6) / 3,
    [
        (14 / 2, "The target adds a token of its own in every step."),
        (14 / 4, "Two of the four guesses were thrown away."),
        (14 / 5, "Two were kept, of four; with the target's own token that makes three."),
        (8, "That is plain decoding: one pass of eight layers for each token."),
    ],
    because="14 layer passes for three tokens: less than the eight of plain decoding.",
    otherwise="The step costs what the last answer counted; divide by the tokens that it writes.",
)
