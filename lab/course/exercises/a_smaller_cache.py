"""Chapter 14, a smaller cache: the size of a packed number, and how heads share a budget."""

from __future__ import annotations

from ..exercise import Exercise, same_function

packed = Exercise(
    "How many bits does a number take in the end?",
    lambda bits, group, scale: bits + 2 * scale / group,
    [
        (
            lambda bits, group, scale: bits,
            "Those are the integers. What else must be kept, to get a number back from one?",
        ),
        (
            lambda bits, group, scale: bits + scale / group,
            "That is the size of a step. Where does the group begin? Its least number is kept too.",
        ),
        (
            lambda bits, group, scale: bits + 2 * scale,
            "The scale and the least number are kept once for a group, not for each of its numbers.",
        ),
        (
            lambda bits, group, scale: bits / scale,
            "That is a ratio. Add up the bits of a group, and divide by its numbers.",
        ),
    ],
    same=same_function((2, 32, 16), (4, 32, 16), (2, 64, 32), (2, 16, 16)),
    because="Two bits in groups of 32 with halves of 16 bits are three bits a number: the scales are a third of it.",
    otherwise="Count the bits of one group: its numbers, its scale and its least number. Then divide by the group.",
)
caps = Exercise(
    "How many entries does each head get?",
    (3, 1),
    [
        (
            (2, 2),
            "That is the even split. Here the votes of both heads are in one list, and the best four of all win.",
        ),
        ((1, 3), "The other way round: which head has more of the four largest votes?"),
        ((4, 0), "One vote of the second head is among the four largest."),
        ((3, 3), "Together they have four entries to give away."),
    ],
    because="0.5, 0.4, 0.3 and 0.2 are the largest; three of them are the first head's.",
    otherwise="Write all eight votes in one list, take the four largest, and count whose they are.",
)
