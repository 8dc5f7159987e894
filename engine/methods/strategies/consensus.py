"""Consensus: of several texts that were drawn the one that is most like all of them."""

from __future__ import annotations

from typing import ClassVar, cast

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import moved
from decodescope.engine.trace.details.drawn import MEASURES, By, Text, elected
from decodescope.engine.trace.records.events import EndReason

from .shared.drawing import SAMPLED_TEXTS, Drawing


@component
class Consensus(Strategy):
    """Draw `samples` texts y_1, ..., y_k at once, and emit that with the largest mean likeness to all, itself among them,

        argmax over i of 1/k sum_j u(y_i, y_j),

    the text of the least expected loss, were the samples all that there may be (minimum Bayes risk). By `measure` u is 1 for
    equal texts, else 0, so that the vote is the mode of the samples ("exact"); the harmonic mean of the parts of its tokens
    that either has in common with the other, whatever their order ("f1"); or 1 less the edit distance in tokens, as a part of
    the longer text ("edit"). Of equal votes the text counts that the model finds likelier, then the one whose ids come first:
    the order of the samples decides nothing. One sample is plain decoding; under a greedy sampler all are the same.

    Sample i is the text of a run with the seed s + i, and all share the prompt's entries (`samples`): a pass a token of the
    longest text. The vote then costs k (k - 1) / 2 comparisons of different texts on the CPU, an edit distance of n tokens n
    steps of words of n bits. Nobody asks which of two texts is right: texts that err alike outvote one that does not.

    Whole texts are compared, the token that ends them too; self-consistency votes by the answer that stands in each, which
    needs to know where it stands. Stated from memory [recalled], not read in code.
    """

    title = "Consensus (minimum Bayes risk)"
    source = (
        "Kumar and Byrne 2004, HLT-NAACL (minimum Bayes risk) [recalled]; Wang et al. 2022, arXiv:2203.11171 (self-consistency)"
        " [recalled]"
    )
    uses = frozenset({"context", "sampler"})
    lossless = False
    changes = "of several texts the one that is most like all is kept"
    details: ClassVar = {"sampled_texts": SAMPLED_TEXTS}

    samples: int = param(8, low=1, high=64, unit="texts", help="k, texts that are drawn and vote")
    measure: str = param(
        "f1", choices=MEASURES, help="how like two texts are: equal or not, common tokens, or edits"
    )

    def begin(self, s: State) -> None:
        s.scratch = Drawing.of(s, self.samples)

    def step(self, s: State) -> Move:
        drawing: Drawing = s.scratch
        written = drawing.written
        started, before = s.target.executor.mark(), drawing.every[0].state
        record, verified = drawing.round(s)
        end: EndReason | None = s.filled(written + 1)
        if end is None and drawing.alive:
            return moved(s, [], None, started, verified, details=[record], sampler_state=before)
        texts = [Text(x.tokens, min(0.0, x.score), x.stopped) for x in drawing.every]
        vote = elected(texts, cast(By, self.measure))
        assert vote.chosen is not None
        emitted = list(texts[vote.chosen].tokens)
        end = "stop_token" if texts[vote.chosen].ended else end
        s.tokens += emitted
        return moved(s, emitted, end, started, verified, drawn=vote, sampler_state=before)
