"""Consensus: draw several texts and return the one that is most similar to all of them."""

from __future__ import annotations

from typing import Any, ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.trace.details.declarations import (
    DetailColumn,
    MatrixForm,
    Outcome,
    Relation,
    Sentence,
    TallyForm,
)
from decodescope.engine.trace.details.shapes import MatrixDetail, TallyDetail
from decodescope.engine.trace.details.votes import MEASURES, hold_vote
from decodescope.engine.trace.records.events import EndReason

from .shared.sample_batch import SAMPLED_TEXTS, SampleBatch

WORDS = [Sentence("ln p {logp:2}"), Sentence("cut at the limit", given={"ended": False})]
MEAN = "A text's votes are its mean likeness to all, itself among them."
SHADES = (
    "Shade: how like two texts are, from 0 to 1, by {}; a row a text, columns in the same order. Bars: votes."
)
VOTED = TallyForm(
    title="A vote of texts",
    number="votes",
    bar="the most",
    value="votes",
    says=[Sentence("text {chosen + 1} of {rows} has the most votes")],
    row=[Sentence("{tokens}")],
    outcomes={
        "chosen": Outcome(
            True,
            "most",
            [Sentence("the run's text"), *WORDS],
            [
                Relation("k == chosen + 1"),
                Relation("votes == most"),
                Relation("emitted == count(tokens)"),
            ],
        ),
        "same": Outcome(True, "most", [Sentence("the same text"), *WORDS]),
        "equal": Outcome(True, "most", [Sentence("as many, less likely"), *WORDS]),
        "fewer": Outcome(False, "most", [Sentence("fewer"), *WORDS]),
    },
    lines=[
        Sentence(
            f"Texts vote for their equals, so the most frequent one wins. {MEAN}",
            given={"similarity": "exact"},
        ),
        Sentence(
            f"Texts vote for each other by the tokens that they have in common, whatever their order. {MEAN}",
            given={"similarity": "f1"},
        ),
        Sentence(
            f"Texts vote for each other by the edits between them, as a part of the longer one. {MEAN}",
            given={"similarity": "edit"},
        ),
        Sentence(
            "{same} of {rows} are this text. Of equal votes the likelier text counts, then the one with the first ids."
        ),
    ],
    columns=[
        DetailColumn("tokens", "tokens"),
        DetailColumn("logp", "number"),
        DetailColumn("ended", "number"),
        DetailColumn("votes", "number"),
        DetailColumn("outcome", "text"),
    ],
    values=[DetailColumn("chosen", "number"), DetailColumn("most", "number"), DetailColumn("same", "number")],
    relations=[Relation("logp <= 0"), Relation("count(tokens) >= 1")],
    totals=[Relation("rows == samples")],
    emits="tokens",
    emitting=["chosen"],
    at="chosen + 1",
    check="text_vote",
)
LIKENESS = MatrixForm(
    title="Texts that voted",
    caption=[Sentence(", by the measure {similarity}")],
    number="likeness",
    across="text",
    scale=[0.0, 1.0],
    cell=[Sentence("Text {row} and text {column} are {value:3} alike.")],
    row=[Sentence("Text {k} has {votes:3} votes, its mean likeness to all {rows}.")],
    lines=[
        Sentence(SHADES.format("equality"), given={"similarity": "exact"}),
        Sentence(SHADES.format("{similarity}"), given={"similarity": ["f1", "edit"]}),
    ],
    hover="{row_text}\n{column_text}\n{value:3} alike",
    rows_of="voted_texts",
    square=True,
    sort="votes",
)


@component
class Consensus(Strategy):
    """Draw `samples` texts y_1, ..., y_k at once, and emit the one with the largest mean likeness to all, including itself,

        argmax over i of 1/k sum_j u(y_i, y_j),

    the text of the least expected loss, if the samples were all possible texts (minimum Bayes risk). `similarity` chooses u.
    "exact": 1 for equal texts, else 0, so the vote is the mode of the samples. "f1": the harmonic mean of the shares of tokens
    that each text has in common with the other, in any order. "edit": 1 minus the edit distance in tokens, as a share of the
    longer text. Of equal votes, the text that the model finds likelier wins, then the one with the smaller ids: the order of
    the samples decides nothing. One sample is plain decoding; under a greedy sampler all are the same.

    Sample i is the text of a run with the seed s + i, and all share the prompt's entries (`samples`): one pass per token of the
    longest text. The vote then costs k (k - 1) / 2 comparisons of different texts on the CPU. An edit distance of n tokens
    takes n steps of words of n bits. No test checks which of two texts is right: texts with the same error outvote a correct
    one.

    Whole texts are compared, including the token that ends them. Self-consistency votes by the answer within each text, and
    needs to know where it is. Both papers are known by their abstracts; no code of theirs was read.
    """

    title = "Consensus (minimum Bayes risk)"
    source = "Kumar and Byrne 2004, HLT-NAACL (minimum Bayes risk); Wang et al. 2022, arXiv:2203.11171 (self-consistency)"
    uses = frozenset({"prompt_compression", "sampler"})
    lossless = False
    changes = "of several texts the one that is most like all is kept"
    details: ClassVar = {"voted_texts": VOTED, "likeness": LIKENESS, "sampled_texts": SAMPLED_TEXTS}

    samples: int = param(8, low=1, high=64, unit="texts", help="number of texts that are drawn and vote (k)")
    similarity: str = param(
        "f1",
        choices=MEASURES,
        help="how two texts are compared: exact match, shared tokens (f1) or edit distance",
    )

    def begin(self, s: State) -> None:
        s.scratch = SampleBatch.start(s, self.samples)

    def step(self, s: State) -> Move:
        drawing: SampleBatch = s.scratch
        written = drawing.token_count
        started, before = s.target.executor.mark(), drawing.every[0].state
        record, verified = drawing.draw_round(s)
        end: EndReason | None = s.limit_reason(written + 1)
        if end is None and drawing.alive:
            return plain_move(s, [], None, started, verified, details=[record], sampler_state=before)
        texts, logp = [x.tokens for x in drawing.every], [min(0.0, x.score) for x in drawing.every]
        vote = hold_vote(texts, logp, self.similarity)
        emitted = list(texts[vote.chosen])
        end = "stop_token" if drawing.every[vote.chosen].stopped else end
        s.tokens += emitted
        columns: dict[str, list[Any]] = {"tokens": texts, "logp": logp, "votes": vote.votes}
        columns |= {"ended": [x.stopped for x in drawing.every], "outcome": vote.outcomes}
        values = {"chosen": vote.chosen, "most": vote.votes[vote.chosen]}
        values["same"] = 1 + vote.outcomes.count("same")
        details = [TallyDetail("voted_texts", columns, values), MatrixDetail("likeness", vote.like)]
        return plain_move(s, emitted, end, started, verified, details=details, sampler_state=before)
