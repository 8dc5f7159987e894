"""Chapter 3, trees: the value of a node, and which nodes see each other."""

from __future__ import annotations

from ..exercise import Exercise

value = Exercise(
    "How many tokens does a step write on average?",
    1 + 0.6 + 0.36,
    [
        (
            0.6 + 0.36,
            "That is what is kept of the guesses. The target adds a token of its own in every step.",
        ),
        (
            1 + 0.6 + 0.2,
            "Compare the second node's values: 0.6 * 0.6 as a child of the first, 0.2 next to it.",
        ),
        (1 + 0.6 + 0.6, "The second node is only looked at if the first was kept: its value is a product."),
        (1 + 0.6 + 0.36 + 0.2, "Those are three nodes; the tree has two."),
    ],
    because="1 for the target's own token, 0.6 for the first node, and 0.36 is more than 0.2.",
    otherwise="Add up: one for the target's own token, and each node's value, the product of what is on the way to it.",
)
rows = Exercise(
    "How many ones has the mask?",
    1 + 2 + 2 + 3 + 3,
    [
        (5 * 5, "Then every row would see every other, the later ones too."),
        (
            15,
            "That is a chain of five: there each row sees all before it. Here siblings do not see each other.",
        ),
        (6, "Each row also sees itself, and the root."),
        (10, "The root has a row too, and sees itself."),
    ],
    because="Each row has one for itself and one for each ancestor: 1, 2, 2, 3, 3.",
    otherwise="Count row by row: itself, and each of its ancestors up to the root.",
)
