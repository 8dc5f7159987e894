"""Chapter 12, debug a drafter: what was never looked at, and the probability that a guess is kept."""

from __future__ import annotations

from ..exercise import Exercise

wasted = Exercise(
    "How many tokens were never looked at?",
    3,
    [
        (4, "The second was looked at: that is how one knows that it is wrong."),
        (1, "That is how many were kept."),
        (2, "Those are the ones that were looked at."),
        (5, "The first was looked at and kept, the second looked at and rejected."),
    ],
    because="What comes after a rejected token follows a text that will not be written.",
    otherwise="Walk along the draft: it is looked at up to the first token that is rejected.",
)
chance = Exercise(
    "How likely is a guess to be kept?",
    0.2 + 0.3 + 0.2,
    [
        (
            0.5 * 0.2 + 0.3 * 0.3 + 0.2 * 0.5,
            "That is how often two independent draws agree. The test keeps more.",
        ),
        (0.2 / 0.5, "That is how often a guess of the first token is kept. There are three."),
        (1.0, "Only if both distributions were the same."),
        (0.3, "That is the share in which they differ."),
    ],
    because="The smaller of both, token by token: 0.2 + 0.3 + 0.2.",
    otherwise="Add up min(p, q) over the tokens.",
)
