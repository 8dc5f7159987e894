"""Drawn: the texts that a step drew, and which of them becomes the run's, told."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from decodescope.engine.trace.records.events import Drawn

from .tallies import Row, Tally


def drawn(record: Drawn, text: Callable[[Sequence[int]], str]) -> Tally:
    """A card of the texts of a step."""
    if record.by != "last" and record.chosen is not None:
        return _voted(record, record.chosen, text)
    stop = record.first + len(record.texts)
    says = f"text {stop} of {record.of} drawn, " + (
        "the run's text" if record.chosen is not None else "the last is the run's"
    )
    card = Tally("A text drawn", says, "ln p, the model's", "")
    for k, one in enumerate(record.texts):
        fate = "the run's text" if k == record.chosen else "drawn"
        word = ", ".join([fate, f"{len(one.tokens)} tokens", *([] if one.ended else ["cut at the limit"])])
        card.rows.append(Row(text(one.tokens), one.logp, None, True, word))
    if record.bound is not None:
        mass = f"{math.exp(record.bound):.4g}" if record.bound > -300 else f"exp({record.bound:.1f})"
        card.lines.append(f"By all texts so far the grammar has at most {mass} of the model's mass.")
        card.lines.append(
            "A token is weighed by what of its mass may still be allowed behind it, as far as that was read."
        )
    return card


MEANS = {
    "exact": "Texts vote for their equals, so the most frequent one wins.",
    "f1": "Texts vote for each other by the tokens that they have in common, whatever their order.",
    "edit": "Texts vote for each other by the edits between them, as a part of the longer one.",
}


def _voted(record: Drawn, chosen: int, text: Callable[[Sequence[int]], str]) -> Tally:
    """A vote: each text's mean likeness to all, and which of them has most of it."""
    most, n = record.votes[chosen], len(record.texts)
    same = sum(x.tokens == record.texts[chosen].tokens for x in record.texts)
    card = Tally(
        "A vote of texts", f"text {chosen + 1} of {n} has the most votes", "votes", "the most", at=chosen
    )
    for k, (one, vote) in enumerate(zip(record.texts, record.votes, strict=True)):
        equal, alike = vote >= most, one.tokens == record.texts[chosen].tokens
        if k == chosen:
            fate = "the run's text"
        elif alike:
            fate = "the same text"
        elif equal:
            fate = "as many, less likely"
        else:
            fate = "fewer"
        word = f"{fate}, ln p {one.logp:.2f}" + ("" if one.ended else ", cut at the limit")
        card.rows.append(Row(text(one.tokens), vote, most, equal, word))
    card.lines.append(
        f"{MEANS.get(record.by, '')} A text's votes are its mean likeness to all, itself among them.".strip()
    )
    card.lines.append(
        f"{same} of {n} are this text. Of equal votes the likelier text counts, then the one with the first ids."
    )
    return card
