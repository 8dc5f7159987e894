"""Labels: mentions that were written side by side, a count and then each by itself, and which of them stand."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .threads import Strand, ThreadTree

_COUNT = re.compile(r"\s*(\d{1,4})")


@dataclass
class Mention:
    """A mention of a label, from 1 on. thread: that wrote it;  text: the first line of that, without blanks around it
    p:       of each token that the thread wrote, its end included, the model's probability before the sampler, in doubles
    logp:    nats, of all of them;  dropped: "duplicate" where another label has the same text with a higher logp
    """

    label: int
    index: int
    thread: int
    text: str
    p: list[float]
    logp: float
    dropped: str = ""


@dataclass
class Labels:
    """What a run wrote of each label. threads: that wrote the counts;  counts: as read from these, 0 where none can be read"""

    names: list[str]
    threads: list[int]
    counts: list[int]
    mentions: list[Mention] = field(default_factory=list)


def count_in(text: str) -> int | None:
    """The number that a text begins with; None: it begins with none."""
    number = _COUNT.match(text)
    return None if number is None else int(number[1])


def mention_in(text: str) -> str:
    """The mention that a thread's text is."""
    return next(iter(text.strip().splitlines()), "").strip()


def settle(mentions: list[Mention]) -> None:
    """Drop what another label has with a higher probability: of labels with the same text the one that gives it the highest
    logp keeps all of its own, of equal ones the first."""
    best: dict[str, Mention] = {}
    for one in mentions:
        if one.text not in best or one.logp > best[one.text].logp:
            best[one.text] = one
    for one in mentions:
        one.dropped = "duplicate" if best[one.text].label != one.label else ""


def check_labels(labels: Labels, tree: ThreadTree, text: Callable[[list[int]], str] | None) -> Iterator[str]:  # noqa: C901
    """What is wrong with the labels of a run whose threads are `tree`; text: of ids, None where the trace does not show it."""
    every = tree.strands
    if not len(labels.names) == len(labels.threads) == len(labels.counts):
        yield "its labels have not one thread and one count each"
        return
    if not all(0 <= x < len(every) for x in (*labels.threads, *(one.thread for one in labels.mentions))):
        yield "its labels name a thread that there is not"
        return
    due = [
        (i, j, child)
        for i, number in enumerate(labels.threads)
        for j, child in enumerate(_children(every[number]), 1)
    ]
    if [(x.label, x.index, x.thread) for x in labels.mentions] != [
        (i, j, child.number) for i, j, child in due
    ]:
        yield "its mentions are not those whose threads began behind the counts"
        return
    for name, number, count in zip(labels.names, labels.threads, labels.counts, strict=True):
        said = None if text is None else text(every[number].tokens)
        if said is not None and count != (count_in(said) or 0):
            yield f"of the label {name[:40]!r} it read the count {count}, but its thread wrote {said[:40]!r}"
        if len(_children(every[number])) > count:
            yield f"of the label {name[:40]!r} more mentions were written than the {count} that it counted"
    for one, (_, _, child) in zip(labels.mentions, due, strict=True):
        where = f"mention {one.index} of label {one.label}"
        if len(one.p) != len(child.tokens) or not all(0 < p <= 1 + 1e-9 for p in one.p):
            yield f"{where} has not one probability for each of its {len(child.tokens)} tokens"
        elif abs(one.logp - sum(map(math.log, one.p))) > 1e-9 * max(1.0, abs(one.logp)):
            yield f"{where} has logp = {one.logp:.6g}, which is not that of its tokens"
        stopped = child.why == "stop_token" and bool(child.tokens) and child.tokens[-1] in tree.stops
        said = None if text is None else text(child.tokens[: len(child.tokens) - stopped])
        if said is not None and one.text != mention_in(said):
            yield f"{where} is called {one.text[:40]!r}, but its thread wrote {said[:60]!r}"
    again = [Mention(x.label, x.index, x.thread, x.text, x.p, x.logp) for x in labels.mentions]
    settle(again)
    for one, other in zip(labels.mentions, again, strict=True):
        if one.dropped != other.dropped:
            where = f"mention {one.index} of label {one.label}"
            yield f"{where} is {one.dropped or 'kept'}, and by the probabilities it is {other.dropped or 'kept'}"


def _children(strand: Strand) -> list[Strand]:
    return [child for at in sorted(strand.children) for child in strand.children[at]]
