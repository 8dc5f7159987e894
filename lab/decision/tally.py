"""Tally: what a step of a strategy tried by itself, each number beside the threshold that decided, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from decodescope.engine.trace import Header, Step
from decodescope.engine.trace.details.searched import Search

from .chosen import chosen, itself
from .details import details
from .routed import answered, judged
from .tallies import Row, Tally

Text = Callable[[Sequence[int]], str]

ENDED = {
    "solved": "A text passed all tests.",
    "rollouts": "No more texts were allowed.",
    "exhausted": "Nothing was left to try.",
}


def tally(header: Header, step: Step, text: Text) -> Tally | None:
    """The tally of a step, None where its strategy keeps no such record. text: of ids"""
    if (declared := details(header, step, text)) is not None:
        return declared
    if step.search is not None:
        return search(step.search, text)
    if step.candidates is not None:
        return answered(step.candidates, text)
    if step.switch is not None and step.switch.block is not None:
        return judged(step.switch, step.switch.block, text)
    return chosen(step, text) if itself(step) else None


def search(record: Search, text: Text) -> Tally:
    """A search over texts: each that was completed, with the share of the tests that it passes."""
    rewards = [x.reward for x in record.rollouts]
    best, read = rewards[record.best], sum(x.read for x in record.rollouts)
    says = f"the best of {len(rewards)} {'texts' if len(rewards) > 1 else 'text'} was written"
    card = Tally("A search for a text", says, "tests passed", "the best")
    for number, one in enumerate(record.rollouts):
        begun = f"from its token {len(record.path(one.node))} on, {one.read} tokens read"
        word = (
            "written" if number == record.best else "as good, later" if one.reward == best else "passes fewer"
        )
        card.rows.append(Row(text(one.tokens), one.reward, best, one.reward >= best, f"{word}; {begun}"))
    card.lines.append(
        f"Each is the greedy text behind a new beginning; in all {read} tokens were read. {ENDED[record.why]}"
    )
    return card
