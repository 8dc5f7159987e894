"""Tally: what a step of a strategy tried by itself, each number beside the threshold that decided, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil

from decodescope.engine.trace import Header, Step
from decodescope.engine.trace.details.edited import DELETE, INSERT, KEEP, REPLACE, TAGS, Edits, Tagged
from decodescope.engine.trace.details.joined import Joint
from decodescope.engine.trace.details.labels import Labels, Mention
from decodescope.engine.trace.details.lines import Infill, Lines, raised
from decodescope.engine.trace.details.searched import Search
from decodescope.engine.trace.details.spans import Spans, ranked
from decodescope.engine.trace.encoding.forks import method_at

from .chosen import chosen, itself
from .details import details
from .drawn import drawn
from .tallies import Row, Tally

Text = Callable[[Sequence[int]], str]

REFUSED = {
    "parse": "the program would not parse",
    "unneeded": "imports what nobody lacks",
    "opens": "opens a block",
    "similar": "like a line beside it",
    "repeated": "stands already",
    "empty": "nothing but blanks",
}
WHY = {
    "fixed": "The last pass changed nothing, so the text is final.",
    "again": "The last pass gave a text that an earlier one had read, so it is final.",
    "rounds": "No more passes are allowed.",
    "empty": "The last pass left nothing, so it was not applied.",
}
ENDED = {
    "solved": "A text passed all tests.",
    "rollouts": "No more texts were allowed.",
    "exhausted": "Nothing was left to try.",
}
BEST = 8  # spans that are listed
NEAR = 0.1  # probability from which an edit that was not made is listed


def tally(header: Header, step: Step, text: Text) -> Tally | None:
    """The tally of a step, None where its strategy keeps no such record. text: of ids"""
    knobs = method_at(header, step.step).get("strategy") or {}
    if (declared := details(header, step, text)) is not None:
        return declared
    if step.joint is not None:
        return joint(step.joint, text)
    if step.lines is not None:
        return lines(step.lines, float(knobs.get("tau", 0)), text)
    if step.edits is not None:
        return edits(step.edits, float(knobs.get("sure", 0)), text)
    if step.drawn is not None:
        return drawn(step.drawn, text)
    if step.spans is not None:
        return spans(step.spans, step.emitted, text, header.prompt.tolist())
    if step.search is not None:
        return search(step.search, text)
    if itself(step):
        return chosen(step, text)
    return None if step.labels is None else labels(step.labels)


def joint(j: Joint, text: Text) -> Tally:
    """Tokens taken together: how many, and which of the texts of that length."""
    says = f"{j.level} {'tokens' if j.level > 1 else 'token'} written at once"
    card = Tally("Tokens taken together", says, "joint p", "threshold")
    for n, best in enumerate(j.best, 1):
        tested = 1 < n <= j.level + 1
        word = (
            "the target's own"
            if n == 1
            else "long enough"
            if n < j.level
            else "written"
            if n == j.level
            else "too unlikely"
        )
        card.rows.append(Row(f"best of {n}", best, j.threshold if tested else None, n <= j.level, word))
    bar = max([j.threshold, *(j.share * x for x in j.joint[:1])])
    total = sum(j.joint)
    before = 0.0
    for k, (ids, both, alone) in enumerate(zip(j.texts, j.joint, j.alone, strict=True)):
        drawn = "" if j.u is None else f", u in {before / total:.3f} to {(before + both) / total:.3f}"
        before += both
        word = f"{'written' if k == j.chosen else 'offered'}, apart {alone:.3f}{drawn}"
        card.rows.append(Row(text(ids), both, bar, True, word))
    card.lines.append(
        "The longest text that reaches the threshold is written; counts of other texts correct the product."
    )
    if j.chosen is not None:
        card.lines.append(
            "The best was taken." if j.u is None else f"u = {j.u:.3f} chose among them by their share."
        )
    return card


def lines(record: Lines, tau: float, text: Text) -> Tally:
    """A round of a text written by lines: the lines that were proposed between others, and the one that came."""
    taken, n = record.inserted, len(record.first)
    says = f"a line inserted before line {taken.at + 1} of {n}" if taken else f"line {n + 1} written"
    card = Tally("A line inserted" if taken else "A line written", says, "lines that gain", "needed")
    card.rows = [_proposed(one, record, tau, text) for one in record.infills]
    if record.written:
        card.rows.append(Row(text(record.written), None, None, True, "written behind all"))
    if record.infills:
        card.lines.append("Lines are proposed before those whose first token the target liked least.")
        card.lines.append(
            f"One comes where two lines behind it, and half of all, gain {tau:g} or more in their mean logit."
        )
    card.lines.append("The text is emitted by the last round: until then a line may come before any other.")
    return card


def _proposed(one: Infill, record: Lines, tau: float, text: Text) -> Row:
    at, score = one.at, record.first[one.at]
    where = f"before line {at + 1}" + ("" if score is None else f" (first logit {score:.2f})")
    kept = one.outcome in ("inserted", "defines")
    if one.after is None or one.outcome not in ("inserted", "less", "score"):
        word = "it defines a name that is lacking" if kept else REFUSED.get(one.outcome, one.outcome)
        return Row(text(one.tokens), None, None, kept, f"{where}: {word}")
    gains, total = raised(record.mean[at:], one.after, tau)[0], sum(x is not None for x in one.after)
    word = {"inserted": "inserted", "less": "another gains more", "score": "too few gain"}[one.outcome]
    more = f", {sum(gains):.2f} in all" if gains else ""
    bar = max(1, min(2, total), ceil(total / 2))
    return Row(text(one.tokens), len(gains), bar, one.outcome != "score", f"{where}: {word}{more}")


def labels(record: Labels) -> Tally:
    """What was written of each label; a mention that two labels have stands under that which gives it more."""
    kept = sum(not x.dropped for x in record.mentions)
    card = Tally(
        "Mentions by label",
        f"{kept} of {len(record.mentions)} mentions stand",
        "ln p",
        "that of another label",
    )
    best: dict[str, dict[int, float]] = {}
    for one in record.mentions:
        own = best.setdefault(one.text, {})
        own[one.label] = max(one.logp, own.get(one.label, one.logp))
    for name, count in zip(record.names, record.counts, strict=True):
        card.rows.append(Row(name, None, None, True, f"counted {count}"))
    for one in record.mentions:
        card.rows.append(_mention(one, record.names[one.label], best[one.text]))
    card.lines.append("Each label's mentions were counted first, and then written each by itself.")
    card.lines.append(
        "Of labels with the same mention the one whose tokens have the highest probability keeps it."
    )
    return card


def _mention(one: Mention, name: str, best: dict[int, float]) -> Row:
    other = max((x for label, x in best.items() if label != one.label), default=None)
    bar = None if other == best[one.label] else other  # of equal ones the first label keeps it
    word = f"mention {one.index}{', dropped' if one.dropped else ''}"
    return Row(f"{name}: {one.text}", best[one.label], bar, not one.dropped, word)


def edits(record: Edits, sure: float, text: Text) -> Tally:
    """The passes that edited a draft: what each changed, and what it nearly did."""
    changed = [sum(tag != KEEP for tag in one.tags) for one in record.passes]
    says = f"a draft of {len(record.passes[0].tokens)} edited in {len(changed)} passes, {sum(changed)} tags"
    card = Tally("Edits of a draft", says, "p", "p of keep, or sure")
    for number, one in enumerate(record.passes, 1):
        card.rows += _edited(number, one, sure, text)
    quiet = sum(len(one.tags) for one in record.passes) - len(card.rows)
    card.lines.append(
        f"A place gets its likeliest edit where that is likelier than keep and at least {sure:g}."
    )
    card.lines.append(
        f"{quiet} more stayed, with less than {NEAR:g} for any edit. {WHY.get(record.why, record.why)}"
    )
    return card


def _edited(number: int, one: Tagged, sure: float, text: Text) -> Iterator[Row]:
    for place, (p, (instead, behind), tag) in enumerate(zip(one.p, one.words, one.tags, strict=True)):
        likely = tag if tag != KEEP else max((DELETE, REPLACE, INSERT), key=p.__getitem__)
        if tag == KEEP and p[likely] < NEAR:
            continue
        here = text([one.tokens[place - 1]]) if place else ""
        there = {DELETE: "", REPLACE: text([instead]), INSERT: here + text([behind])}[likely]
        bar = None if p[likely] == p[KEEP] else max(p[KEEP], sure)
        word = f"pass {number}, place {place}: {TAGS[likely]}{'' if tag != KEEP else ', not made'}"
        yield Row(f"{here}→{there}", p[likely], bar, tag != KEEP, word)


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
