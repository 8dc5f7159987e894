"""Chapter 16, a smaller model: how much of a judged block stays, and when asking the small model first pays."""

from __future__ import annotations

from ..exercise import Exercise

stays = Exercise(
    "How many tokens of the block stay?",
    3,
    [
        (1, "The second one is above the bar, but it is what the large model would have written itself."),
        (2, "That counts the losses below the bar. What else keeps a token?"),
        (4, "The last one is above the bar, and not the large model's choice."),
        (0, "The first one is below the bar: it stays, whatever the large model would have written."),
    ],
    because="a token goes if its loss is above the bar and another one is likelier; that holds for the fourth alone.",
    otherwise="Is the loss above 5, and the token not the large model's choice? The first such one goes, and all behind it.",
)
worth = Exercise(
    "How often at least must the small model's answer be good enough?",
    0.1,
    [
        (0.9, "That is how often the large one may be asked. The question is about the others."),
        (0.5, "c + P · C < C: divide by C, and put in c / C."),
        (10, "A share, between 0 and 1: c / C, not C / c."),
    ],
    because="c + P · C < C means 1 - P > c / C: the answers that are kept must be more than a tenth.",
    otherwise="Solve c + P · C < C for 1 - P, the share of answers that are kept.",
)
