"""LLMLingua: removes paragraphs first, then single tokens, each scored after the text kept so far."""

from __future__ import annotations

import numpy as np

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.prompt_compression import UnreadPrompt
from decodescope.engine.trace.records.events import Cut
from decodescope.engine.trace.records.prompt_cut import part_budgets

from .shared.scoring_context import ScoringContext, scorer_knob
from .shared.surprise import surprise_by_piece, token_surprise
from .shared.units import PromptText, question_knob, tokens_to_read, unit_scores


@component
class LLMLingua(ScoringContext):
    """A scorer compresses the prompt in two stages.

    Coarse: paragraphs, separated by blank lines, are read alone and ranked by their perplexity. The highest stay until they are
    `paragraph_budget` times the budget; the others are removed. Fine: the rest is split into segments of `segment` tokens. Each
    segment is read behind the compressed ones before it. Its tokens with the highest loss -ln p stay, as many as its share of
    the budget, to a token. Then the scorer drops the removed tokens from its cache.

    `keep_rate` is the share of the removable tokens that stays. Marks of a chat, the last token and the question are not
    removable, nor are their paragraphs. It costs a prefill of the scorer with all its logits, and the compressed prefix again.
    With one segment and no coarse stage, the tokens are those of Selective Context by tokens with the prompt read as a whole.

    Differences from the authors' code: there a caller names instruction, demonstrations and question; here blank lines and
    marks separate them. There demonstrations get the rest of the budget by rank; here each segment gets its share. Scores are
    not conditioned on the question (that is LongLLMLingua).
    """

    title = "LLMLingua"
    source = "Jiang et al. 2023, arXiv:2310.05736; microsoft/LLMLingua, llmlingua/prompt_compressor.py"

    keep_rate: float = param(
        0.5,
        low=0.0,
        high=1.0,
        step=0.01,
        unit="of the tokens",
        help="share of the removable prompt that the target reads; 1: all of it",
    )
    segment: int = param(
        200,
        low=8,
        high=65_536,
        unit="tokens",
        help="length of the segments that are compressed one after another",
    )
    drop_paragraphs: bool = param(True, help="first leave out the paragraphs that are easiest to predict")
    paragraph_budget: float = param(
        1.4,
        low=1.0,
        high=10.0,
        step=0.1,
        unit="x",
        help="how much text the paragraph stage leaves, as a multiple of the budget",
    )
    scorer: str = scorer_knob()
    keep_question: str = question_knob()

    def cut(self, reading: UnreadPrompt) -> Cut | None:
        text = PromptText(reading)
        stays = text.protected_mask(self.keep_question)
        due = tokens_to_read(stays, 1 - self.keep_rate)
        if due == text.n:
            return None
        with reading.lane(self.scorer) as lane:
            scores, out = (
                self._coarse_stage(lane, reading, text, stays, due)
                if self.drop_paragraphs
                else _nothing_cut(text.n)
            )
            return self._fine_stage(lane, reading, text, (scores, stays, out), due)

    def _coarse_stage(
        self, lane: Lane, reading: UnreadPrompt, text: PromptText, stays: np.ndarray, due: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """float32 [n], the loss of each token in its paragraph read alone; bool [n], the tokens of removed paragraphs."""
        starts = text.unit_starts("paragraph")
        if len(starts) == 1:
            return _nothing_cut(text.n)
        scores = surprise_by_piece(lane, reading.front, reading.tokens, starts, reading.between(self.scorer))
        spans = list(zip(starts, [*starts[1:], text.n], strict=True))
        mean = [float(np.nanmean(scores[a:b])) if not np.isnan(scores[a:b]).all() else 0.0 for a, b in spans]
        fixed = [bool(stays[a:b].any()) for a, b in spans]
        left = self.paragraph_budget * due - sum(b - a for (a, b), x in zip(spans, fixed, strict=True) if x)
        out = np.zeros(text.n, bool)
        for i in sorted((i for i, x in enumerate(fixed) if not x), key=lambda i: -mean[i]):
            a, b = spans[i]
            out[a:b] = left <= 0  # the token that passes the bound still stays
            left -= b - a
        return scores, out

    def _fine_stage(
        self,
        lane: Lane,
        reading: UnreadPrompt,
        text: PromptText,
        coarse: tuple[np.ndarray, np.ndarray, np.ndarray],
        due: int,
    ) -> Cut:
        """The cut: each segment's tokens by their loss behind the kept tokens of the segments before it. coarse: scores, what
        stays and what is out, each [n]; a character is in one segment, and kept or left as a whole."""
        scores, stays, out = coarse
        firsts = np.array(text.characters)
        here = np.flatnonzero(~out)
        begins = firsts[np.searchsorted(firsts, here[self.segment :: self.segment], "right") - 1]
        parts = sorted({0, *begins.tolist()})
        counts = part_budgets(~stays & ~out, parts, due - int(stays.sum()))
        kept, between = list(reading.front), reading.between(self.scorer)
        for first, behind, count in zip(parts, [*parts[1:], len(out)], counts, strict=True):
            between(first, len(out))
            at = here[(here >= first) & (here < behind)]
            losses = token_surprise(lane, kept, [reading.tokens[i] for i in at.tolist()])
            scores[at] = np.nan_to_num(losses)  # NaN of a first token, which stays
            inside = slice(first, behind)
            starts = firsts[(firsts >= first) & (firsts < behind)] - first
            best = best_characters(scores[inside], starts, (~stays & ~out)[inside], count)
            kept += [reading.tokens[i + first] for i in np.flatnonzero(best | stays[inside]).tolist()]
        return text.shorten_by_character(
            np.nan_to_num(scores), stays, due, out=out, parts=np.array(parts, np.int32)
        )


def best_characters(scores: np.ndarray, starts: np.ndarray, free: np.ndarray, due: int) -> np.ndarray:
    """bool [m], the tokens of a segment that are kept for their scores: characters with the largest mean, of equals the first,
    until `due` of the free tokens are kept. starts: the first token of each character; free: bool [m]"""
    best = np.zeros(len(scores), bool)
    stops = [*starts[1:].tolist(), len(scores)]
    for u in np.argsort(-unit_scores(scores, starts.tolist(), "mean"), kind="stable").tolist():
        if due <= 0:
            break
        new = free[starts[u] : stops[u]]
        best[starts[u] : stops[u]] = new
        due -= int(new.sum())
    return best


def _nothing_cut(n: int) -> tuple[np.ndarray, np.ndarray]:
    """No scores, and no removed tokens."""
    return np.zeros(n, np.float32), np.zeros(n, bool)
