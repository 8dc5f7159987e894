"""Chapter 17, words by a rule: the effect of token-by-token grammar checks on the model's probabilities."""

from __future__ import annotations

from ..exercise import Exercise

weighed = Exercise(
    "How likely is a by the grammar alone?",
    0.9,
    [
        (0.009, "What follows behind a is not looked at: only whether something may follow."),
        (0.1525, "That is the share among allowed texts. A mask knows nothing of it."),
        (0.5, "Both may follow, but they are weighed as the model weighs them."),
    ],
    because="both tokens may follow, nothing is taken out here, and the model gives a 0.9.",
    otherwise="Which of the two tokens does the grammar take out here?",
)
given = Exercise(
    "How likely is a in an allowed text?",
    0.009 / 0.059,
    [
        (0.9, "Of ninety texts in a hundred that begin with a hardly one is allowed."),
        (0.009, "Divide by what all allowed texts have together: 0.9 · 0.01 + 0.1 · 0.5."),
        (
            0.01,
            "That is how often a text that begins with a is allowed. Asked is how often an allowed text begins with a.",
        ),
    ],
    because="0.9 · 0.01 = 0.009 of 0.009 + 0.1 · 0.5 = 0.059.",
    otherwise="p(a) c(a) of p(a) c(a) + p(b) c(b).",
)
early = Exercise(
    "How likely is a in ASAp's next text?",
    0.009 / 0.109,
    [
        (0.1525, "For that c(b) = 0.5 would have to be known, and nothing behind b was read."),
        (0.9, "That was before the first text. c of a is known now: 0.01."),
        (0.01, "0.01 is c(a). Its weight is p(a) c(a), to be divided by the sum of both weights."),
    ],
    because="0.009 of 0.009 + 0.1 · 1: where nobody has looked c is taken for 1.",
    otherwise="p(a) · 0.01 of p(a) · 0.01 + p(b) · 1.",
)
