"""Chapter 15, a canvas: the value of slots drawn at once, and the places that a rule commits."""

from __future__ import annotations

from math import factorial

from ..exercise import Exercise, same_function

shuffled = Exercise(
    "How likely do n slots that are drawn at once hold each of n names once?",
    lambda n: factorial(n) / n**n,
    [
        (lambda n: 1 / n**n, "That is the chance of one order. How many orders are there?"),
        (
            lambda n: 1 / factorial(n),
            "So likely is one order if each slot knows what the others drew. Here none knows.",
        ),
        (
            lambda n: 1,
            "That is what one place a pass gives. Drawn at once, two slots may take the same name.",
        ),
        (
            lambda n: 1 / n,
            "That is the chance of one name in one slot. There are n slots, and many right orders.",
        ),
    ],
    same=same_function((2,), (3,), (4,), (5,)),
    because="There are n! orders; for each of them, every slot draws its name with the chance 1 / n.",
    otherwise="Count the orders that are right, and multiply by the chance that the slots draw one of them.",
)
committed = Exercise(
    "How many places does the factor rule commit?",
    3,
    [
        (2, "So many reach a bar of 0.9. The rule asks less of each place if there are few."),
        (4, "The fourth: (4 + 1) · (1 - 0.7) = 1.5, which is not below 1."),
        (1, "That is the least it commits. Try n = 2: (2 + 1) · (1 - 0.93) = 0.21."),
        (0, "The surest place is committed in any case, or the text would never end."),
    ],
    because="(3 + 1) · (1 - 0.86) = 0.56 is below 1, and (4 + 1) · (1 - 0.7) = 1.5 is not.",
    otherwise="For each n take the n-th confidence c: is (n + 1) (1 - c) below 1? The largest such n counts.",
)
