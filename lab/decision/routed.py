"""Routed: what decided which of two models writes, each number beside the threshold that it was held against."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from decodescope.engine.trace import Header, Step
from decodescope.engine.trace.details.answered import Candidates, mean_entropy, mean_logp
from decodescope.engine.trace.details.switched import Block, Switch
from decodescope.engine.trace.encoding.forks import method_at

from .tallies import Row, Tally

Text = Callable[[Sequence[int]], str]

MEANS = {
    "votes": (
        "votes",
        "The answer with the most votes is kept where they are at least tau: the part of all that agree.",
    ),
    "likelihood": (
        "p of a token",
        "The answer is kept where its tokens have at least tau, in the geometric mean.",
    ),
    "weights": (
        "votes of references",
        "Labelled references vote for the answer or against it; it is kept at tau or more.",
    ),
    "expected": (
        "price it is worth",
        "The small model is asked where what it saves is tau times its price or more.",
    ),
}
BITS = "−bits of a token", "The answer is kept where its laws have at most tau bits on average."
STANDS = {1: "the answer is likelier", 0: "they are alike", -1: "the answer is less likely"}


def judged(switch: Switch, block: Block, text: Text) -> Tally:
    """A block that the small model wrote, as the large one judged it."""
    n = len(block.tokens)
    says = (
        f"{block.kept} of {n} tokens of the small model stay"
        if n
        else "the large model wrote, nothing was there to judge"
    )
    card = Tally("A block judged", says, "ln p, large model", "at least")
    for k, (token, loss, choice) in enumerate(zip(block.tokens, block.loss, block.choice, strict=True)):
        own = token == choice
        if k < block.kept:
            word = "stays, the large model's choice too" if own else "stays"
        else:
            word = "taken back" if k == block.kept else "behind it"
        card.rows.append(
            Row(text([token]), -loss, None if own or k > block.kept else -block.bar, k < block.kept, word)
        )
    words = f"The small model writes until its largest probability is below tau, {switch.tau:g}"
    card.lines.append(
        words + (f": it gave a place up at {block.sure[-1]:.3f}." if len(block.sure) > n else ".")
    )
    card.lines.append(
        "The large one reads the block in one pass, and takes back from the first token that is too unlikely."
    )
    return _caught(card, switch, "small")


def turn(header: Header, step: Step, text: Text) -> Tally | None:
    """Whose turn it is behind a token, by the entropies of its writer; None: nothing of that was recorded."""
    s = step.switch
    if s is None or s.block is not None:
        return None
    least = (method_at(header, step.step).get("router") or {}).get("stay", 0)
    free, mean = s.stay >= least, s.score if s.mean is None else s.mean
    card = Tally(
        "Which model writes", f"by the {s.wrote} model, the {s.next} one goes on", "bits, mean", "tau"
    )
    word = f"the {s.next} model goes on" + ("" if free else f": {s.stay} of at least {least} in a row")
    card.rows.append(Row(text(step.emitted), mean, s.tau if free else None, s.next == "large", word))
    bits = "" if s.score is None else f", of a law of {s.score:.2f} bits"
    card.lines.append(f"The {s.wrote} model wrote this token{bits}.")
    card.lines.append(
        "Where its last laws have tau bits or less on average the small model writes, else the large one."
    )
    return _caught(card, s, s.wrote)


def _caught(card: Tally, switch: Switch, who: str) -> Tally:
    if switch.caught:
        card.lines.append(
            f"Before that the {who} model read {switch.caught} tokens that it had not seen: that is paid too."
        )
    return card


def _alone(record: Candidates, k: int) -> float | None:
    """What an answer that was not chosen has by itself of what decides."""
    if record.votes:
        return record.votes[k]
    if record.above:
        return math.exp(mean_logp(record.answers[k])) if record.by == "likelihood" else None
    return -mean_entropy(record.answers, k)


def answered(record: Candidates, text: Text) -> Tally:
    """The answers of the small model, and whether one of them was kept."""
    says = "an answer of the small model kept" if record.kept else "the large model answered"
    number, rule = MEANS.get(record.by, BITS)
    card, sign = Tally("Answers of the small model", says, number, "tau"), 1 if record.above else -1
    for k, one in enumerate(record.answers):
        chosen = k == record.chosen
        alone = sign * record.score if chosen else _alone(record, k)
        word = f"form {one.form + 1}" if len(record.answers) > 1 else ""
        fate = ("kept" if record.kept else "not kept") if chosen else ""
        end = "" if one.ended else "cut at the limit"
        row = Row(
            text(one.tokens), alone, sign * record.tau if chosen else None, not chosen or record.kept, ""
        )
        row.word = ", ".join(filter(None, (fate, word, end)))
        card.rows.append(row)
    if not record.answers:
        card.rows.append(
            Row("not asked", record.score, record.tau, record.score >= record.tau, "the large model at once")
        )
    for k, other in enumerate(record.compared, 1):
        name = f"reference {k}, {'right' if other.right else 'wrong'}"
        card.rows.append(Row(name, other.weight, None, other.weight > 0, STANDS[other.judged]))
    card.lines.append(rule)
    if record.bet is not None:
        bet = record.bet
        price = bet.small / bet.large
        card.lines.append(
            f"Before any answer: {bet.wrong:.3f} that the small model is wrong, at {price:.3f} of the price."
        )
    asked = "" if record.kept else ", and the large model's come on top"
    card.lines.append(f"The small model's passes had {record.rows} rows{asked}.")
    return card
