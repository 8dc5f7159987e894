"""Hypotheses: several texts behind one prompt, extended by one token per step, and the choice of their best extensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.decoding.bases.state import State
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.details.declarations import (
    DetailColumn,
    Figure,
    NodeOutcome,
    Sentence,
    TreeForm,
)
from decodescope.engine.trace.details.shapes import TreeDetail

SAYS = [
    Sentence("the text, of all that were written", where="emitted >= 1"),
    Sentence("no hypothesis goes on", given={"open": 0}),
    Sentence("1 hypothesis kept, the text comes at the end", given={"open": 1}),
    Sentence("{open} hypotheses kept, the text comes at the end"),
]
WORTH = [Sentence("{score:2} nats")]
EXACT = [Sentence("{score:3} nats")]
KEPT = NodeOutcome("open")
ENDED = NodeOutcome("ended", [Sentence("ended")])
LEFT = NodeOutcome("left", [Sentence("left")], "The next best were left:", level="decisions")
SO_FAR = Figure("so far", "score before, nats", [Sentence("{before(score):3}")])
TOGETHER = Figure("together", "score, nats", [Sentence("{score:3}")])
FIGURES = [
    SO_FAR,
    Figure("this token", "ln p", [Sentence("{score - before(score):3}")]),
    Figure("", "p", [Sentence("{exp(score - before(score)):p}")]),
    TOGETHER,
]
COLUMNS = [
    DetailColumn("token", "token", "summary"),
    DetailColumn("score", "number", "summary"),
    DetailColumn("outcome", "text", "summary"),
]
BEST_STAY = (
    "Every hypothesis is extended by every token; the best sums of log-probabilities stay. Nothing is drawn."
)
LARGEST_STAY = "The texts with the largest sums of log-probabilities stay; nothing is drawn."
UNNAMED = Sentence("no extension of it was among the next best")
BRIEFLY = [Sentence("{own:2}, kept {bar:2}")]

HYPOTHESES = TreeForm(
    title="Beams kept",
    noun="hypothesis",
    nouns="hypotheses",
    says=SAYS,
    columns=COLUMNS,
    outcomes={"kept": KEPT, "ended": ENDED, "left": LEFT},
    number="score",
    worth=WORTH,
    exact=EXACT,
    figures=FIGURES,
    card=[Sentence(BEST_STAY)],
    lines=[Sentence(LARGEST_STAY)],
    rule="beam search",
    best_first="score",
    why=[
        Sentence("its best extension had {own:2} nats, the last that was kept {bar:2} nats"),
        Sentence("its best extension had {own:2} nats"),
        UNNAMED,
    ],
    briefly=BRIEFLY,
    settles_at_end=True,
    batch=True,
    check="beam_search",
)

Hypothesis = tuple[list[int], float]  # tokens behind the prompt, and their total log-probability
Ending = tuple[int, list[int], float]  # (index of the extended hypothesis, tokens, total)
Extension = tuple[int, int, float]  # (index of the hypothesis, the new token, total with it)


def read_hypotheses(s: State, texts: list[list[int]]) -> Tensor:
    """float [B, V]: the logits behind each text. One pass reads the last token of all texts, which is then committed."""
    device, written = s.target.decoder.device, len(texts[0])
    roots = [text[-1] if text else s.tokens[-1] for text in texts]
    position = len(s.tokens) - 1 + written
    places = torch.full((len(roots), 1), position, device=device)
    return s.target.forward(Feed(torch.tensor(roots, device=device)[:, None], places, highest=position))[:, 0]


@dataclass
class ExtensionChoice:
    """The extensions that go on, best first; those that ended before the last of them; and the next best, dropped ones."""

    alive: list[Extension] = field(default_factory=list)
    ended: list[Ending] = field(default_factory=list)
    pruned: list[Extension] = field(default_factory=list)


def hypotheses_record(
    name: str,
    kept: Sequence[Extension],
    ended: Sequence[Extension],
    left: Sequence[Extension] = (),
    last: str = "left",
    **more: list[Any],
) -> TreeDetail:
    """The trace record of a step's hypotheses: those that go on, those that ended, and those that were dropped.

    last: the outcome of these;  more: further columns
    """
    rows = [*kept, *ended, *left]
    words = ["kept"] * len(kept) + ["ended"] * len(ended) + [last] * len(left)
    columns: dict[str, list[Any]] = {"token": [row[1] for row in rows], "score": [row[2] for row in rows]}
    columns |= {"outcome": words, **more}
    return TreeDetail(name, [row[0] for row in rows], columns, earlier=True)


def choose_extensions(
    s: State, texts: list[list[int]], scores: Tensor, width: int, worth: Tensor | None = None
) -> ExtensionChoice:
    """Choose the best `width` extensions that go on, of all extensions by `scores` (float64 [B, V], sums of log-probabilities).

    An extension that ends a text counts if it is better than the last of them. worth: the ranking value, if it is not the
    score.

    With n stop ids, at most n extensions of each text end it, so enough of the best width * (n + 1) go on. With stop texts any
    token may end a text. Then further extensions are considered until there are enough.
    """
    rank = (scores if worth is None else worth).flatten()
    count = min(width * (1 + max(1, len(s.stop.tokens))), len(rank))
    while True:
        best = rank.topk(count).indices
        choice = _split_extensions(
            s, texts, best.tolist(), scores.flatten()[best].tolist(), scores.shape[1], width
        )
        if len(choice.alive) == width or count == len(rank):
            return choice
        count = min(2 * count, len(rank))


def _split_extensions(
    s: State, texts: list[list[int]], best: list[int], scores: list[float], vocab: int, width: int
) -> ExtensionChoice:
    choice = ExtensionChoice()
    for flat, score in zip(best, scores, strict=True):
        parent, token = divmod(flat, vocab)
        if len(choice.alive) == width:
            choice.pruned.append((parent, token, score))
        elif s.stop.find_stop(texts[parent], [token]) is not None:
            choice.ended.append((parent, [*texts[parent], token], score))
        else:
            choice.alive.append((parent, token, score))
    return choice
