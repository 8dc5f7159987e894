"""Exact-extract: of all spans of a passage the most probable one as the answer."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import moved
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.details.spans import MOST, Spans, ranked

from .shared.passage import passage_of
from .shared.suffixes import Suffixes
from .shared.written import token_of

LONGEST = 400  # characters of what stands around a passage


@component
class ExactExtract(Strategy):
    """The answer is a span x_i .. x_j of a passage of the prompt. Behind the prompt it has the probability of its tokens and
    of an end: with l(i, j), the surprise of x_j behind the prompt and x_i .. x_{j-1}, L(i, j) their sum over the span and e(i,
    j) the surprise of an end behind it, the answer is the argmin over all i <= j of

        L(i, j) + e(i, j),     with `normal` divided by the tokens of the span and 1.

    Greedy decoding follows one path through these spans, so where its answer is a span, it is at most as probable. One suffix
    from each i, at most `longest` tokens of it, holds all spans that begin there: n suffixes are read, not n^2 spans.

    All suffixes share the prompt's entries. The rows of `chunk` of them stand in one pass, behind each other, each seeing its
    own suffix alone; they are never committed. A passage of n tokens takes 1 + ceil(n / chunk) passes and 1 + sum_i min(T, n -
    i) rows, T being `longest` or what may still be written. The greedy span costs no further pass: the rows know the likeliest
    token behind each beginning of a span.

    The passage is what stands behind the last `after` that comes before the last `until`, and before that; without them it
    begins and ends with the prompt. A token that is partly of the passage is not of it. A span that holds a token which ends
    texts is none. What ends an answer is `end`, or, where that is empty, any of the run's stop tokens: their probabilities are
    summed, and the likeliest is written. Where `end` does not end the run, the text goes on behind it as plain greedy
    decoding; where nothing ends an answer it is that from the start.

    Beside the authors' code, for an encoder-decoder: suffixes keep the prompt's entries, so its decoder's start is the
    prompt's end here; tokens are taken as they stand in the passage, so a word at its head may lack the blank that an answer
    would begin with; `chunk` are the rows of one sequence under a mask, where theirs are a batch with padding.
    """

    title = "Exact-extract"
    source = "Castel et al. 2022, arXiv:2108.05857; ocastel/exact-extract, src/decoding/exact_extract.py"
    lossless = False
    changes = "the answer is the most probable span of the passage"

    after: str = param(
        "", lines=True, most=LONGEST, help="the passage begins behind this; empty: with the prompt"
    )
    until: str = param(
        "", lines=True, most=LONGEST, help="the passage ends before this; empty: with the prompt"
    )
    end: str = param(
        "", lines=True, most=LONGEST, help="token or id that ends an answer; empty: the run's stop tokens"
    )
    longest: int = param(16, low=1, high=256, unit="tokens", help="of a span, at most")
    chunk: int = param(8, low=1, high=256, unit="suffixes", help="read in one pass")
    normal: bool = param(False, help="compare surprise by the token, not of the whole span")

    def begin(self, s: State) -> None:
        s.target.ask(Needs())
        ends = frozenset({token_of(s, self.end, "exact_extract.end")}) if self.end else s.stop.tokens
        s.scratch = (*passage_of(s, self.name, self.after, self.until), ends) if ends else None

    def step(self, s: State) -> Move:
        clock, asked = s.target.executor, s.scratch
        started = clock.mark()
        s.scratch = None
        logits = self._further(s)
        spans = None if asked is None else self._spans(s, logits, *asked)
        verified = clock.mark()
        if spans is None:
            emitted, shown = [int(logits.argmax())], logits[None]
        else:
            first = spans.start + spans.best[0]
            emitted, shown = [*s.tokens[first : first + spans.best[1]], spans.end], None
        count, end = s.cut(emitted)
        s.tokens += emitted[:count]
        return moved(s, emitted[:count], end, started, verified, logits=shown, spans=spans)

    def _further(self, s: State) -> Tensor:
        """Read what the target has not read of the text: logits [V] behind it."""
        fresh = s.tokens[len(s.target.tokens) :]
        logits = s.target.forward(
            Feed.causal(fresh, len(s.target.tokens), s.target.decoder.device, logits="last")
        )
        s.target.commit(list(range(len(fresh))))
        return logits[0, -1]

    def _spans(self, s: State, logits: Tensor, start: int, stop: int, ends: frozenset[int]) -> Spans | None:
        """The passage's spans, by logits [V] behind the prompt; None: it has none."""
        passage = s.tokens[start:stop]
        read = self._read(s, logits, passage, ends)
        best = next(iter(ranked(read.losses, self.normal, 1)), None)
        if best is None:
            return None
        # of places with the same text, which differ by rounding, the first
        answer = passage[best[0] : sum(best)]
        best = (next(i for i in range(best[0] + 1) if passage[i : i + best[1]] == answer), best[1])
        greedy = read.greedy(int(logits.argmax()), passage, ends)
        losses = [None if x is None else float(read.losses[x[0], x[1] - 1]) for x in (best, greedy)]
        assert losses[0] is not None
        return Spans(
            start,
            len(passage),
            int(read.closes[best[0], best[1] - 1]),
            [*best],
            losses[0],
            None if greedy is None else [*greedy],
            losses[1],
            self.normal,
            read.losses.astype(np.float32) if read.losses.size <= MOST else None,
        )

    def _read(self, s: State, logits: Tensor, passage: list[int], ends: frozenset[int]) -> Suffixes:
        """Read every suffix behind the prompt, `chunk` in a pass, whose rows go again."""
        n = len(passage)
        device = logits.device
        place = len(s.tokens)
        read = Suffixes(n, min(self.longest, s.left, n))
        ids, over = torch.tensor(passage, device=device), torch.tensor(sorted(ends), device=device)
        closing = torch.isin(ids, torch.tensor(sorted(ends | s.stop.tokens), device=device))
        # [n, T]
        at = torch.arange(n, device=device)[:, None] + torch.arange(read.losses.shape[1], device=device)
        inside = (at < n) & (closing[at.clamp(max=n - 1)].cumsum(1) == 0)
        first = logits.double().log_softmax(0)[ids]  # [n]
        for begin in range(0, n, self.chunk):
            s.between(s.target.name)(begin, n)
            # [R] each, suffix by suffix
            own, deep = inside[begin : begin + self.chunk].nonzero(as_tuple=True)
            if not len(own):
                continue
            tokens, visible = ids[begin + own + deep], (own[:, None] == own) & (deep[:, None] >= deep)
            feed = Feed(tokens[None], (place + deep)[None], visible[None], highest=place + int(deep.max()))
            rows = s.target.forward(feed)[0]
            s.target.rollback()
            read.enter(rows, tokens, (begin + own, deep), first, over)
        return read
