"""Reasons for settling a place of a canvas, shared by several unmasking rules."""

from __future__ import annotations

from decodescope.engine.trace.details.declarations import CanvasWord, Sentence

SCHEDULED = CanvasWord(
    "•",
    "by schedule",
    [
        Sentence("The schedule settles {count} in this pass: the "),
        Sentence("places in an order drawn by chance", where="order >= 0"),
        Sentence("places with the highest confidence", given={"order": None}),
        Sentence(". This is number {rank}."),
    ],
)
BEST = CanvasWord(
    "▴",
    "the first in rank",
    [Sentence("The surest open place is settled in every pass, whatever its confidence.")],
)
SURE = CanvasWord("●", "reaches its bar", [Sentence("Its confidence reaches the bar.")])
