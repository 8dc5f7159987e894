"""Chapter 5, heads: the token that a head guesses, and the value of a chain of heads."""

from __future__ import annotations

from ..exercise import Exercise

shift = Exercise(
    "How many places behind the token that was read last is the guess of head k = 2?",
    4,
    [
        (
            2,
            "That is the place of the first head, k = 0: the place directly behind the last token is the root's, and known.",
        ),
        (3, "Count the root as well: it is between the last token that was read and the first guess."),
        (5, "The heads are counted from 0, so k = 2 is the third one."),
    ],
    because="The root is one behind, head 0 guesses two behind, head 1 three, head 2 four.",
    otherwise="Count: the root is one behind the last token that was read, head 0 guesses the token after it, and so on.",
)
chain = Exercise(
    "How many tokens does a step write on average?",
    1 + 0.28 + 0.28 * 0.19 + 0.28 * 0.19 * 0.15,
    [
        (0.28 + 0.28 * 0.19 + 0.28 * 0.19 * 0.15, "The target adds a token of its own in every step."),
        (
            1 + 0.28 + 0.19 + 0.15,
            "The second guess is only looked at if the first was kept: multiply along the chain.",
        ),
        (
            1 + 0.28 * 0.19 * 0.15,
            "That counts steps in which all three are kept. One or two kept guesses are written, too.",
        ),
    ],
    because="Each guess counts as often as it and all before it are kept, and the target adds one.",
    otherwise="Add up: one for the target's own token, and for each guess the product of the rates on the way to it.",
)
