"""Exact-extract: the answer is the most probable of all spans of a passage."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.details.declarations import (
    DetailColumn,
    MatrixForm,
    MatrixMark,
    Outcome,
    Relation,
    Sentence,
    TallyForm,
)
from decodescope.engine.trace.details.shapes import MatrixDetail, TallyDetail
from decodescope.engine.trace.details.spans import BEST, MOST, rank_spans

from .shared.passage import find_passage
from .shared.strategy_text import token_of
from .shared.suffixes import Suffixes

LONGEST = 400  # maximum characters of a marker around a passage
FATE = [
    Sentence("less probable", given={"greedy": False}),
    Sentence("the greedy text", given={"greedy": True}),
    Sentence("from token {begin + 1} on"),
]
WRITTEN = "Of all spans of the passage the one is written {}, its end counted."
SPANS = TallyForm(
    title="The most probable span",
    number="ln p",
    bar="ln p of the best",
    value="-loss",
    says=[Sentence("{own_size} of {length} tokens, from token {own_begin + 1} on")],
    row=[Sentence("{tokens}"), Sentence("tokens {begin + 1} to {begin + size}")],
    outcomes={
        "answer": Outcome(
            True,
            "",
            [Sentence("the answer"), Sentence("the greedy text", given={"greedy": True})],
            [
                Relation("begin == own_begin"),
                Relation("size == own_size"),
                Relation("loss == best"),
                Relation("emitted >= size"),
            ],
        ),
        "equal": Outcome(
            True,
            "",
            [
                Sentence("as probable"),
                Sentence("the greedy text", given={"greedy": True}),
                Sentence("from token {begin + 1} on"),
            ],
            [Relation("loss == best", 1e-5)],
        ),
        "less": Outcome(False, "-best", FATE, [Relation("length_normalization == 0")]),
        "behind": Outcome(True, "", FATE, [Relation("length_normalization == 1")]),
    },
    lines=[
        Sentence(WRITTEN.format("that is the most probable"), given={"length_normalization": False}),
        Sentence(
            WRITTEN.format("whose tokens are the most probable on average"),
            given={"length_normalization": True},
        ),
        Sentence("Greedy decoding leaves the passage.", given={"gap": None}),
        Sentence("Greedy: {gap:3} nats behind."),
    ],
    columns=[
        DetailColumn("begin", "number"),
        DetailColumn("size", "number"),
        DetailColumn("tokens", "tokens"),
        DetailColumn("loss", "number"),
        DetailColumn("greedy", "number"),
        DetailColumn("outcome", "text"),
    ],
    values=[
        DetailColumn("start", "number"),
        DetailColumn("length", "number"),
        DetailColumn("own_begin", "number"),
        DetailColumn("own_size", "number"),
        DetailColumn("best", "number"),
        DetailColumn("gap", "number"),
        DetailColumn("end", "token"),
    ],
    order=["answer", "equal|less|behind*"],
    relations=[
        Relation("size == count(tokens)"),
        Relation("gap == loss - best", given={"greedy": True}),
    ],
    emits="tokens",
    emitting=["answer"],
    closes="end",
    source="start + begin",
    check="spans",
)
LOSSES = MatrixForm(
    title="Spans of a passage",
    caption=[Sentence(", the greedy one {gap:3} nats behind")],
    number="nats",
    label="nats of every span: down where it begins, across how many tokens it has",
    down="first token",
    across="tokens",
    rows=[DetailColumn("token", "token")],
    values=[DetailColumn("gap", "number")],
    side="token",
    judged="value / (1 + length_normalization * column)",
    strong="low",
    reach="column",
    cell=[
        Sentence("“{token}”: "),
        Sentence("token {row}", where="column == 1"),
        Sentence("tokens {row} to {row + column - 1}", where="column != 1"),
        Sentence(" of the passage, {value:3} nats"),
        Sentence(", {judged:3} a token", given={"length_normalization": True}),
        Sentence(", {rank} of {cells:n} spans", where="cells != 1"),
        Sentence(", {rank} of {cells} span", where="cells == 1"),
        Sentence("; the answer", where="answer == 1"),
        Sentence("; the greedy text", where="greedy == 1"),
        Sentence("."),
    ],
    lines=[
        Sentence("The stronger a shade, the likelier."),
        Sentence("Framed: the answer; greedy decoding leaves the passage.", given={"greedy_at": None}),
        Sentence("Framed: the answer, which is the greedy text too.", where="greedy_at == answer_at"),
        Sentence("Framed: the answer; dashed: the greedy text.", where="greedy_at != answer_at"),
        Sentence("Down: where a span begins; across: its tokens."),
    ],
    hover="from token {row}, {token}: {column} tokens, {value:3} nats",
    marks={"answer": MatrixMark("accept", "answer"), "greedy": MatrixMark("reject", "greedy")},
    cells_of="listed_spans",
    at=["begin + 1", "size"],
)


@component
class ExactExtract(Strategy):
    """The answer is the most probable span x_i .. x_j of a passage of the prompt.

    Its probability behind the prompt is that of its tokens and of an end. l(i, j) is the surprise of x_j behind the prompt and
    x_i .. x_{j-1}, L(i, j) their sum over the span, and e(i, j) the surprise of an end behind it. The answer is the argmin over
    all i <= j of

        L(i, j) + e(i, j),     with `length_normalization` divided by the tokens of the span and 1.

    Greedy decoding follows one path through these spans. So if its answer is a span, it is at most as probable. One suffix from
    each i, of at most `max_span_tokens` tokens, holds all spans that begin there: n suffixes are read, not n^2 spans.

    All suffixes share the prompt's entries. One pass has the rows of `suffixes_per_pass` suffixes, one after the other, and
    each row sees its own suffix alone. They are never committed. A passage of n tokens takes 1 + ceil(n / `suffixes_per_pass`)
    passes and 1 + sum_i min(T, n - i) rows. T is `max_span_tokens` or the number of tokens that may still be written. The
    greedy span costs no further pass: the rows give the likeliest token behind each beginning of a span.

    The passage ends before the last `passage_end`, and begins behind the last `passage_start` before that. Without them it
    begins and ends with the prompt. A token partly outside the passage does not belong to it. A span must not hold a token that
    ends texts. An answer ends with `end_token` or, if that is empty, with any of the run's stop tokens: their probabilities are
    summed, and the likeliest is written. If `end_token` does not end the run, the text continues behind it as plain greedy
    decoding. If nothing ends an answer, it is plain greedy decoding from the start.

    Differences from the authors' code, which is for an encoder-decoder: suffixes keep the prompt's entries, so the prompt's end
    replaces the decoder's start. Tokens are taken as they are in the passage, so a word at its head may lack the blank that an
    answer would begin with. `suffixes_per_pass` suffixes are rows of one sequence under a mask; theirs are a batch with
    padding.
    """

    title = "Exact-extract"
    source = "Castel et al. 2022, arXiv:2108.05857; ocastel/exact-extract, src/decoding/exact_extract.py"
    lossless = False
    changes = "the answer is the most probable span of the passage"
    details: ClassVar = {"listed_spans": SPANS, "span_losses": LOSSES}

    passage_start: str = param(
        "",
        lines=True,
        most=LONGEST,
        help="text right before the passage (last occurrence); empty: start of the prompt",
    )
    passage_end: str = param(
        "",
        lines=True,
        most=LONGEST,
        help="text right after the passage (last occurrence); empty: end of the prompt",
    )
    end_token: str = param(
        "", lines=True, most=LONGEST, help="token or id that ends an answer; empty: any stop token of the run"
    )
    max_span_tokens: int = param(16, low=1, high=256, unit="tokens", help="maximum length of an answer span")
    suffixes_per_pass: int = param(
        8, low=1, high=256, unit="suffixes", help="number of suffixes read in one pass"
    )
    length_normalization: bool = param(
        False, help="compare spans by their mean surprise per token instead of the total"
    )

    def begin(self, s: State) -> None:
        s.target.set_needs(Needs())
        ends = (
            frozenset({token_of(s, self.end_token, "exact_extract.end_token")})
            if self.end_token
            else s.stop.tokens
        )
        s.scratch = (
            (*find_passage(s, self.name, self.passage_start, self.passage_end), ends) if ends else None
        )

    def step(self, s: State) -> Move:
        clock, asked = s.target.executor, s.scratch
        started = clock.mark()
        s.scratch = None
        logits = self._read_remaining(s)
        spans = None if asked is None else self._spans(s, logits, *asked)
        verified = clock.mark()
        if spans is None:
            emitted, shown = [int(logits.argmax())], logits[None]
        else:
            listed = spans[0]
            emitted, shown = [*listed.columns["tokens"][0], listed.values["end"]], None
        count, end = s.cut(emitted)
        s.tokens += emitted[:count]
        return plain_move(
            s, emitted[:count], end, started, verified, logits=shown, details=spans and [*spans]
        )

    def _read_remaining(self, s: State) -> Tensor:
        """Read the part of the text that the target has not read; return the logits [V] behind it."""
        fresh = s.tokens[len(s.target.tokens) :]
        logits = s.target.forward(
            Feed.causal_chain(fresh, len(s.target.tokens), s.target.decoder.device, logits="last")
        )
        s.target.commit(list(range(len(fresh))))
        return logits[0, -1]

    def _spans(
        self, s: State, logits: Tensor, start: int, stop: int, ends: frozenset[int]
    ) -> tuple[TallyDetail, MatrixDetail] | None:
        """The passage's spans, from logits [V] behind the prompt: a list of the best, and all losses; None: it has none."""
        passage = s.tokens[start:stop]
        read = self._read_suffixes(s, logits, passage, ends)
        best = next(iter(rank_spans(read.losses, self.length_normalization, 1)), None)
        if best is None:
            return None
        # of places with the same text, which differ only by rounding, take the first
        answer = passage[best[0] : sum(best)]
        best = (next(i for i in range(best[0] + 1) if passage[i : i + best[1]] == answer), best[1])
        greedy = read.greedy_span(int(logits.argmax()), passage, ends)
        kept = read.losses.astype(np.float32)
        places = [
            best,
            *rank_spans(kept, self.length_normalization, BEST),
            *([] if greedy is None else [greedy]),
        ]
        listed = self._list_spans(read.losses, [*dict.fromkeys(places)], greedy, passage)
        gap = None if greedy is None else float(read.losses[greedy[0], greedy[1] - 1]) - listed.values["best"]
        end = int(read.closes[best[0], best[1] - 1])
        listed.values |= {"start": start, "length": len(passage), "gap": gap, "end": end}
        marks = [[best[0], best[1] - 1, "answer"]]
        marks += [] if greedy is None else [[greedy[0], greedy[1] - 1, "greedy"]]
        every = MatrixDetail(
            "span_losses", kept if kept.size <= MOST else None, {"token": passage}, {}, marks, {"gap": gap}
        )
        return listed, every

    def _list_spans(
        self,
        losses: np.ndarray,
        places: list[tuple[int, int]],
        greedy: tuple[int, int] | None,
        passage: list[int],
    ) -> TallyDetail:
        """The listed spans, from losses [n, T] and (first, tokens) of each, the answer first."""
        tokens = [passage[first : first + size] for first, size in places]
        loss = [float(losses[first, size - 1]) for first, size in places]
        outcomes = ["answer"]
        for ids, nats in zip(tokens[1:], loss[1:], strict=True):
            if ids == tokens[0] or (nats <= loss[0] and not self.length_normalization):
                outcomes.append("equal")
            else:
                outcomes.append("behind" if self.length_normalization else "less")
        columns: dict[str, list[Any]] = {
            "begin": [first for first, _ in places],
            "size": [size for _, size in places],
            "tokens": tokens,
            "loss": loss,
            "greedy": [place == greedy for place in places],
            "outcome": outcomes,
        }
        values = {"own_begin": places[0][0], "own_size": places[0][1], "best": loss[0]}
        return TallyDetail("listed_spans", columns, values)

    def _read_suffixes(self, s: State, logits: Tensor, passage: list[int], ends: frozenset[int]) -> Suffixes:
        """Read every suffix behind the prompt, `suffixes_per_pass` per pass; the rows are dropped afterwards."""
        n = len(passage)
        device = logits.device
        place = len(s.tokens)
        read = Suffixes(n, min(self.max_span_tokens, s.remaining_tokens, n))
        ids, over = torch.tensor(passage, device=device), torch.tensor(sorted(ends), device=device)
        closing = torch.isin(ids, torch.tensor(sorted(ends | s.stop.tokens), device=device))
        # [n, T]
        at = torch.arange(n, device=device)[:, None] + torch.arange(read.losses.shape[1], device=device)
        inside = (at < n) & (closing[at.clamp(max=n - 1)].cumsum(1) == 0)
        first = logits.double().log_softmax(0)[ids]  # [n]
        for begin in range(0, n, self.suffixes_per_pass):
            s.chunk_callback(s.target.name)(begin, n)
            # [R] each, suffix by suffix
            own, deep = inside[begin : begin + self.suffixes_per_pass].nonzero(as_tuple=True)
            if not len(own):
                continue
            tokens, visible = ids[begin + own + deep], (own[:, None] == own) & (deep[:, None] >= deep)
            feed = Feed(tokens[None], (place + deep)[None], visible[None], highest=place + int(deep.max()))
            rows = s.target.forward(feed)[0]
            s.target.rollback()
            read.add_rows(rows, tokens, (begin + own, deep), first, over)
        return read
