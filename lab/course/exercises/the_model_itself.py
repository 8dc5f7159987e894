"""Chapter 18, the model itself: what a cut head removes, why blocks are judged together, and the cost of a short prompt."""

from __future__ import annotations

from ..exercise import Exercise

cached = Exercise(
    "What share of the layer's cache is left?",
    0.5,
    [
        (
            1 / 3,
            "Two of six query heads are left, but keys and values are cached. Who still reads those of each KV head?",
        ),
        (1, "Nobody reads KV head 0 any more, so its keys and values go as well."),
        (
            2 / 3,
            "KV head 1 lost one of its three readers. It must keep all of its entries for the other two.",
        ),
        (0, "Query heads 3 and 5 still read KV head 1."),
    ],
    because="KV head 0 has no reader left and goes; KV head 1 has two, and keeps everything.",
    otherwise="A KV head goes as a whole, and only when all query heads that read it are gone.",
)
planned = Exercise(
    "Which plan has the least sum, and which is the best?",
    ["a3,a6", "a2,a6"],
    [
        (
            ["a2,a6", "a3,a6"],
            "The other way round: first the one with the least sum, then the one that costs least together.",
        ),
        (
            ["a3,a6", "a3,a6"],
            "The sum of a3 and a6 is the least. But together they cost 0.16: is there nothing cheaper?",
        ),
        (["a2,a6", "a2,a6"], "a2 and a6 together are the best. Their sum is 0.13: is there no smaller one?"),
        (["a2,a3", "a2,a6"], "0.10 and 0.07 is the largest of the three sums."),
    ],
    because="0.07 + 0.03 is the least sum, and yet 0.14 is less than 0.16.",
    otherwise="Two texts in a list, the smaller number first in each. Add up for the one; the other is given.",
)
price = Exercise(
    "What share of reading all of it do both together take?",
    0.7 + 1 / 13,
    [
        (0.7, "Somebody had to look: the scorer reads all 100 tokens first."),
        (0.5 + 1 / 13, "Half of what may go is left out, not half of all: 40 tokens stay in any case."),
        (0.3 + 1 / 13, "30 tokens are left out. The large model reads the others."),
        (0.7 + 0.7 / 13, "The scorer reads the tokens that are left out as well: that is how it knows."),
    ],
    because="70 tokens by the large model, and a hundred thirteenths by the scorer: 77.7 of 100.",
    otherwise="Tokens that the large model reads, and a thirteenth of those that the scorer reads, of 100.",
)
