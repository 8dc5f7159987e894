"""LLMLingua: paragraphs first, then token by token, each judged behind what was already kept."""

from __future__ import annotations

import numpy as np

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.prompt_context import Reading
from decodescope.engine.trace.records.events import Cut
from decodescope.engine.trace.records.prompt_cut import shares, shorten

from .shared.scoring import Scoring, scorer
from .shared.surprise import by_pieces, surprise
from .shared.units import Text, budget, question


@component
class LLMLingua(Scoring):
    """A scorer compresses the prompt in two stages. Coarse: paragraphs, which stand between blank lines, are read alone and
    ranked by their perplexity; the highest stay until they are `slack` times the budget, the others go. Fine: what is left is
    cut into segments of `segment` tokens. Each is read behind the compressed ones before it, and of its tokens those stay
    whose loss -ln p is highest, as many as its share of the budget, to a token. Then the scorer forgets those that went.

    `rate` is the share that stays of the tokens that may go; marks of a chat, the last token and the question may not, and no
    paragraph of theirs. It costs a prefill of the scorer with all its logits, and the compressed prefix again. With one
    segment and no coarse stage the tokens are those of Selective Context by tokens, the prompt read as a whole.

    Beside the authors' code: there a caller says what instruction, demonstrations and question are, here blank lines and marks
    do; demonstrations get the rest of the budget by rank, here each segment gets its share; scores are not conditioned on the
    question (that is LongLLMLingua).
    """

    title = "LLMLingua"
    source = "Jiang et al. 2023, arXiv:2310.05736; microsoft/LLMLingua, llmlingua/prompt_compressor.py"

    rate: float = param(
        0.5, low=0.0, high=1.0, step=0.01, unit="of the tokens", help="read, of those that may go; 1: all"
    )
    segment: int = param(
        200, low=8, high=65_536, unit="tokens", help="judged at a time, behind the compressed ones before it"
    )
    coarse: bool = param(True, help="whether paragraphs go first")
    slack: float = param(
        1.4, low=1.0, high=10.0, step=0.1, unit="x", help="tokens left by the paragraphs, beside the budget"
    )
    scorer: str = scorer()
    question: str = question()

    def cut(self, reading: Reading) -> Cut | None:
        text = Text(reading)
        stays = text.stays(self.question)
        due = budget(stays, 1 - self.rate)
        if due == text.n:
            return None
        with reading.lane(self.scorer) as lane:
            scores, out = self._coarse(lane, reading, text, stays, due) if self.coarse else _all(text.n)
            return self._fine(lane, reading, scores, stays, out, due)

    def _coarse(
        self, lane: Lane, reading: Reading, text: Text, stays: np.ndarray, due: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """float32 [n], the loss of each token in its paragraph read alone; bool [n], the tokens of paragraphs that go."""
        starts = text.starts("paragraph")
        if len(starts) == 1:
            return _all(text.n)
        scores = by_pieces(lane, reading.front, reading.tokens, starts, reading.between(self.scorer))
        spans = list(zip(starts, [*starts[1:], text.n], strict=True))
        mean = [float(np.nanmean(scores[a:b])) if not np.isnan(scores[a:b]).all() else 0.0 for a, b in spans]
        fixed = [bool(stays[a:b].any()) for a, b in spans]
        left = self.slack * due - sum(b - a for (a, b), x in zip(spans, fixed, strict=True) if x)
        out = np.zeros(text.n, bool)
        for i in sorted((i for i, x in enumerate(fixed) if not x), key=lambda i: -mean[i]):
            a, b = spans[i]
            out[a:b] = left <= 0  # the one that passes the bound still stays
            left -= b - a
        return scores, out

    def _fine(
        self, lane: Lane, reading: Reading, scores: np.ndarray, stays: np.ndarray, out: np.ndarray, due: int
    ) -> Cut:
        """The cut: each segment's tokens by their loss behind what was kept of those before it."""
        here = np.flatnonzero(~out)
        parts = [0, *here[self.segment :: self.segment].tolist()]
        counts = shares(~stays & ~out, parts, due - int(stays.sum()))
        kept, between = list(reading.front), reading.between(self.scorer)
        for first, behind, count in zip(parts, [*parts[1:], len(out)], counts, strict=True):
            between(first, len(out))
            at = here[(here >= first) & (here < behind)]
            losses = surprise(lane, kept, [reading.tokens[i] for i in at.tolist()])
            scores[at] = np.nan_to_num(losses)  # of a first token, which stays
            free = at[~stays[at]]
            best = free[np.argsort(-scores[free], kind="stable")[:count]]
            kept += [reading.tokens[i] for i in sorted({*best.tolist(), *at[stays[at]].tolist()})]
        return shorten(np.nan_to_num(scores), stays, due, out=out, parts=np.array(parts, np.int32))


def _all(n: int) -> tuple[np.ndarray, np.ndarray]:
    """No score, and nothing that goes."""
    return np.zeros(n, np.float32), np.zeros(n, bool)
