"""Edits: a draft whose tokens are tagged all at once, pass by pass; how tags are applied, and the check of what came of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..values.limits import TraceError

TAGS = ("keep", "delete", "replace", "insert")
KEEP, DELETE, REPLACE, INSERT = range(4)
Why = Literal["fixed", "again", "rounds", "empty"]


@dataclass
class Tagged:
    """One pass over a draft. A place is the end of the prompt, before the first token, or a token.

    tokens: the draft that it read
    p:     of each place the probabilities of keep, delete, replace, and keep with a token inserted behind
    words: of each place the tokens that would replace it, and follow it
    tags:  what was done, 0 to 3 in that order
    """

    tokens: list[int]
    p: list[list[float]]
    words: list[list[int]]
    tags: list[int]


@dataclass
class Edits:
    """A draft, and the passes that edited it.

    given: whether the draft stood in the settings; else the model wrote it, all places in one pass
    room:  tokens that it may have at most; what goes beyond is cut off
    end:   the token that ends it, which no pass changes; None: it goes on behind it
    passes: what each one read and did
    why:   why there are no more: the last one changed nothing, it is "fixed"; it gave a text "again" that an earlier one had
           read; so many "rounds" are allowed; or it left nothing, "empty", where the text goes on, so that it was not applied
    """

    given: bool
    room: int
    end: int | None = None
    passes: list[Tagged] = field(default_factory=list)
    why: Why = "fixed"

    @property
    def ids(self) -> list[int]:
        """The ids that it tells of."""
        return [
            x for one in self.passes for x in (*one.tokens, *(word for pair in one.words for word in pair))
        ]


def tagged(p: Sequence[Sequence[float]], sure: float) -> list[int]:
    """The tag of each place: that of the likeliest edit, the first of equals, where it is likelier than keep and at least
    `sure`; else keep."""
    best = [max((DELETE, REPLACE, INSERT), key=row.__getitem__) for row in p]
    return [
        tag if row[tag] > row[KEEP] and row[tag] >= sure else KEEP for tag, row in zip(best, p, strict=True)
    ]


def applied(tokens: Sequence[int], tags: Sequence[int], words: Sequence[Sequence[int]]) -> list[int]:
    """What the tags, of the place before the first token and of each token, make of a draft, all at once."""
    kept: list[list[int]] = [[], *([x] for x in tokens)]
    parts = (
        [] if tag == DELETE else [instead] if tag == REPLACE else [*here, behind] if tag == INSERT else here
        for here, tag, (instead, behind) in zip(kept, tags, words, strict=True)
    )
    return [x for part in parts for x in part]


def after(edits: Edits, seen: Sequence[Sequence[int]], rounds: int) -> tuple[list[int], Why | None]:
    """The draft behind the last pass, and why it is the last, if it is. seen: the drafts that all passes have read."""
    last = edits.passes[-1]
    text = applied(last.tokens, last.tags, last.words)[: edits.room]
    if text == last.tokens:
        return text, "fixed"
    if not text and edits.end is None:
        return last.tokens, "empty"
    return text, "again" if text in seen else "rounds" if len(seen) >= rounds else None


def consistent_edits(edits: Edits | None, vocab: int) -> None:
    """What must agree inside the record, if there is one. Raises TraceError."""
    if edits is None:
        return
    if not edits.passes:
        raise TraceError("edits has no pass")
    if any(not 0 <= x < vocab for x in (*edits.ids, *([] if edits.end is None else [edits.end]))):
        raise TraceError(f"edits holds an id outside the vocabulary of {vocab:,}")
    for one in edits.passes:
        n = len(one.tokens) + 1
        if not len(one.p) == len(one.words) == len(one.tags) == n or any(len(x) != 2 for x in one.words):
            raise TraceError(f"edits has not probabilities, two words and a tag for each of {n} places")
        if any(not 0 <= x < len(TAGS) for x in one.tags) or any(len(row) != len(TAGS) for row in one.p):
            raise TraceError(f"edits knows the tags 0 to {len(TAGS) - 1}")
        if not all(
            math.isfinite(x) and abs(sum(row) - 1) < 1e-4 and min(row) >= 0 for row in one.p for x in row
        ):
            raise TraceError("edits holds probabilities that do not sum to 1")


def check_edits(edits: Edits, emitted: list[int], knobs: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the edits of a step that emitted these tokens, by a strategy with these knobs."""
    sure, rounds = knobs.get("sure"), knobs.get("rounds")
    if not isinstance(sure, int | float) or type(rounds) is not int:
        yield "the header's strategy lacks the knobs from which edits follow"
        return
    seen: list[list[int]] = []
    text: list[int] = edits.passes[0].tokens
    why: Why | None = None
    for number, one in enumerate(edits.passes):
        if why is not None:
            yield f"its pass {number} goes on where the edits had ended ({why})"
        if one.tokens != text:
            yield f"its pass {number} reads {one.tokens}, and the tags before it give {text}"
        if one.p[0][DELETE] or one.p[0][REPLACE]:
            yield f"its pass {number} would change the prompt"
        due = tagged(one.p, sure)
        if one.tags != due:
            yield f"its pass {number} has the tags {one.tags}, and the probabilities give {due}"
        seen.append(one.tokens)
        text, why = after(Edits(edits.given, edits.room, edits.end, [one]), seen, rounds)
    if why != edits.why:
        yield f"it says that its edits ended by {edits.why!r}, and {why!r} follows"
    whole = text if edits.end is None else [*text, edits.end]
    if not emitted or emitted != whole[: len(emitted)]:
        yield f"it emitted {emitted}, and its edits give {whole}"
