"""Tally: what a step of a strategy tried by itself, each number beside the threshold that decided, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from decodescope.engine.trace import Header, Step
from decodescope.engine.trace.details.searched import Search
from decodescope.engine.trace.details.spans import Spans, ranked

from .chosen import chosen, itself
from .details import details
from .drawn import drawn
from .routed import answered, judged
from .tallies import Row, Tally

Text = Callable[[Sequence[int]], str]

ENDED = {
    "solved": "A text passed all tests.",
    "rollouts": "No more texts were allowed.",
    "exhausted": "Nothing was left to try.",
}
BEST = 8  # spans that are listed


def tally(header: Header, step: Step, text: Text) -> Tally | None:
    """The tally of a step, None where its strategy keeps no such record. text: of ids"""
    if (declared := details(header, step, text)) is not None:
        return declared
    if step.drawn is not None:
        return drawn(step.drawn, text)
    if step.spans is not None:
        return spans(step.spans, step.emitted, text, header.prompt.tolist())
    if step.search is not None:
        return search(step.search, text)
    if step.candidates is not None:
        return answered(step.candidates, text)
    if step.switch is not None and step.switch.block is not None:
        return judged(step.switch, step.switch.block, text)
    return chosen(step, text) if itself(step) else None


def spans(record: Spans, emitted: Sequence[int], text: Text, prompt: Sequence[int] = ()) -> Tally:
    """The spans of a passage as answers, the best of them, and the one that greedy decoding would write. prompt: whose
    passage it is; without it the others have no text."""
    own, greedy = tuple(record.best), None if record.greedy is None else tuple(record.greedy)
    says = f"{own[1]} of {record.count} tokens, from token {own[0] + 1} on"
    card = Tally("The most probable span", says, "ln p", "ln p of the best")
    for span in listed(record):
        loss = record.loss if span == own else record.greedy_loss if span == greedy else None
        if loss is None and record.losses is not None:
            loss = float(record.losses[span[0], span[1] - 1])
        word = (
            ", ".join(["the answer"] * (span == own) + ["the greedy text"] * (span == greedy))
            or "less probable"
        )
        begin = record.start + span[0]
        there = emitted[: span[1]] if span == own else prompt[begin : begin + span[1]]
        where = text(there) or f"tokens {span[0] + 1} to {sum(span)}"
        word += "" if span == own else f", from token {span[0] + 1} on"
        bar = None if record.normal or loss is None or loss == record.loss else -record.loss
        card.rows.append(Row(where, None if loss is None else -loss, bar, bar is None, word))
    card.lines.append(
        f"Of all spans of the passage the one is written {_least(record.normal)}, its end counted."
    )
    card.lines.append(
        "Greedy decoding leaves the passage."
        if record.gap is None
        else f"Greedy: {record.gap:.3f} nats behind."
    )
    return card


def listed(record: Spans) -> list[tuple[int, int]]:
    """(first, tokens) of the spans that a card lists: the answer, the best, and the greedy one."""
    best = [] if record.losses is None else ranked(record.losses, record.normal, BEST)
    ends = [record.best, *best, *([] if record.greedy is None else [record.greedy])]
    return list(dict.fromkeys((first, count) for first, count in ends))


def _least(normal: bool) -> str:
    return "whose tokens are the most probable on average" if normal else "that is the most probable"


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
