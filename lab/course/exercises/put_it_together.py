"""Chapter 13, put it together: the tree of two copied branches, and the value of a drafter."""

from __future__ import annotations

from ..exercise import Exercise

parents = Exercise(
    "What are the parents of the nodes?",
    [-1, 0, 1, 1],
    [
        (
            [-1, 0, 1, -1, 3, 4],
            "5 and 7 are in both: where the branches begin alike they share their nodes.",
        ),
        ([-1, 0, 1, 2], "That is a chain: 8 follows 7, not 9."),
        ([0, 1, 2, 2], "Nodes are counted from 0, and the root is -1."),
        ([-1, 0, 1, 0], "8 follows 7, which is node 1."),
    ],
    because="5 hangs on the root, 7 on 5, and both 9 and 8 on 7.",
    otherwise="Number the nodes 5, 7, 9, 8 from 0 on, and write for each the number of the node before it.",
)
worth = Exercise(
    "How much faster is it?",
    1.4 / 1.15,
    [
        (1.4, "That is tokens per step. A step costs more than a plain pass."),
        (1.4 / 1.05, "The drafter's own time counts too."),
        (1.4 - 0.15, "Divide: the step takes 1.15 times as long and writes 1.4 times as much."),
        (1.15 / 1.4, "Turned round: that is the time of a token, in plain passes."),
    ],
    because="1.4 tokens for 1.15 plain passes.",
    otherwise="Tokens of a step, divided by what the step costs in plain passes.",
)
