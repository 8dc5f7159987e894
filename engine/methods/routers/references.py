"""References: the small model's answer is compared with labelled answers to other questions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, ClassVar, TypeGuard

import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.answers import TITLE, AnswerJudgement, Candidate, answers_form
from decodescope.engine.decoding.bases.router import Router, RouterQuestion
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.details.declarations import (
    DetailColumn,
    LookForm,
    Outcome,
    Relation,
    ScaleForm,
    Sentence,
    TallyForm,
)
from decodescope.engine.trace.details.references import compare_to_reference, vote_share, vote_weight
from decodescope.engine.trace.details.shapes import TallyDetail

SHAPE = '{"question": "...", "answer": "...", "right": true}'
MOST = 64  # pairs
ANSWER = replace(
    answers_form(
        "votes of references",
        "Labelled references vote for the answer or against it; it is kept at tau or more.",
        "score",
    ),
    check="ranked answers",
    looks=[LookForm("law", "draft", "count(tokens)")],
)
_STANDS = [
    Sentence("the answer is likelier", given={"judged": 1}),
    Sentence("they are alike", given={"judged": 0}),
    Sentence("the answer is less likely", given={"judged": -1}),
]
REFERENCES = TallyForm(
    title=TITLE,
    value="weight",
    row=[
        Sentence("reference {k}, right", given={"right": True}),
        Sentence("reference {k}, wrong", given={"right": False}),
    ],
    outcomes={
        "for": Outcome(True, "", _STANDS, [Relation("weight >= 0"), Relation("weight != 0", 0.0)]),
        "against": Outcome(False, "", _STANDS, [Relation("weight <= 0", 0.0)]),
    },
    columns=[
        *(DetailColumn(name, "number") for name in ("right", "logp", "judged", "weight")),
        DetailColumn("outcome", "text"),
    ],
    check="labelled answers",
    part="router",
    scale=ScaleForm(
        figure=[Sentence("+{weight:p}", given={"outcome": "for"}), Sentence("{weight:p}")], words=_STANDS
    ),
    looks=[LookForm("law", "draft", each=True, least=True)],
)


@component
class References(Router):
    """Meta Ranking, by answer: compare the answer with N labelled pairs of question and answer, one at a time.

    A table of 2 x 3 weighs their votes: whether the reference is right, and whether the answer ranks above it, equal to it, or
    below. The score is the weighed sum, from 0 (all against) to 1 (all in favour).

    In the paper a small model is asked which of two pairs is the better one. Models as small as the shipped ones cannot judge
    that. Here an answer ranks above a reference if its mean log-probability per token, by the small model, is higher by more
    than `tie_margin`. The weights are recalled, not verified, and are data. Each pair is read in a separate pass, which counts
    in the run's cost. Question and answer are texts, or lists of ids if they contain a template's marks.
    """

    title = "References (Meta Ranking)"
    source = "Liu et al. 2024, arXiv:2402.12146 [weights recalled; THUNLP-MT/MetaRanking holds no code]"
    of: ClassVar[frozenset[str]] = frozenset({"answer"})
    details: ClassVar = {"answer_rank": ANSWER, "compared_references": REFERENCES}

    tau: float = param(
        0.5,
        low=0.0,
        high=1.1,
        step=0.05,
        help="minimum score to keep the small model's answer; 1.1: never keep it",
    )
    pairs: str = param(
        "",
        lines=True,
        most=100_000,
        help='one pair per line: {"question": "...", "answer": "...", "right": true}; at least one',
    )
    tie_margin: float = param(
        0.05,
        low=0.0,
        high=10.0,
        unit="nats",
        help="answers tie if their mean log-probabilities per token differ by at most this",
    )
    vote_weights: tuple[float, ...] = param(
        (1.0, 1.0, -1.0, 1.0, -1.0, -1.0), low=-10.0, high=10.0, least=6, most=6,
        help="vote of an answer better than, level with, worse than a right reference; then a wrong one",
    )  # fmt: skip

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        lines = [x for x in self.pairs.splitlines() if x.strip()]
        if not lines:
            return (
                "references compares with labelled pairs, and references.pairs is empty: give at least one line of the form "
                f"{SHAPE}, or choose the router answer_confidence, which needs none."
            )
        if len(lines) > MOST:
            return f"references.pairs has {len(lines)} lines, more than {MOST}, the limit: give fewer."
        for i, line in enumerate(lines, 1):
            if _parse_reference(line) is None:
                return f"references.pairs, line {i}: {line[:40]!r} is not of the form {SHAPE}."
        return None

    def judge(self, answers: list[Candidate], question: RouterQuestion) -> AnswerJudgement:
        own = answers[0].mean_logp
        question.add_look("law", len(answers[0].tokens))
        columns: dict[str, list[Any]] = {
            name: [] for name in ("right", "logp", "judged", "weight", "outcome")
        }
        for line in (x for x in self.pairs.splitlines() if x.strip()):
            pair = _parse_reference(line)
            assert pair is not None
            logp = self._likelihood(*pair[:2], question)
            judged = compare_to_reference(own, logp, self.tie_margin)
            weight = vote_weight(self.vote_weights, pair[2], judged)
            row = pair[2], logp, judged, weight, "for" if weight > 0 else "against"
            for column, entry in zip(columns.values(), row, strict=True):
                column.append(entry)
        return AnswerJudgement(
            vote_share(columns["weight"]), more=[TallyDetail("compared_references", columns)]
        )

    def _likelihood(self, asked: Said, said: Said, question: RouterQuestion) -> float:
        """The mean log-probability, in nats, of a pair's answer behind its question."""
        before, answer = (_to_ids(x, question) for x in (asked, said))
        question.add_look("law", len(answer))
        with question.large.open_side_lane("draft") as lane:
            feed = Feed.causal_chain([*before, *answer][:-1], 0, lane.decoder.device)
            law = lane.forward(feed, "score")[0, len(before) - 1 :].double().log_softmax(-1)
            return float(law.gather(1, torch.tensor(answer, device=law.device)[:, None]).mean())


Said = str | list[int]


def _parse_reference(line: str) -> tuple[Said, Said, bool] | None:
    """Parse a line into question, answer and label; None if it has another form."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    if not isinstance(said, dict) or not isinstance(said.get("right"), bool):
        return None
    asked, answer = said.get("question"), said.get("answer")
    return (asked, answer, said["right"]) if _is_said(asked) and _is_said(answer) else None


def _is_said(x: Any) -> TypeGuard[Said]:
    return bool(x) and (
        isinstance(x, str) or (isinstance(x, list) and all(type(one) is int and one >= 0 for one in x))
    )


def _to_ids(said: Said, question: RouterQuestion) -> list[int]:
    """The ids of a text; without a tokenizer, the ids written in it. Raises EngineFault if there are none."""
    if isinstance(said, list):
        ids = said
    elif question.encode is None:
        ids = [int(x) for x in said.split() if x.isdecimal() and len(x) < 9]
    else:
        ids = question.encode(said)
    if not ids or max(ids) >= question.small.decoder.vocab:
        words = repr(said)[:40]
        raise EngineFault(
            "bad_input", f"references.pairs: {words} is no text of {question.small.decoder.spec.name}."
        )
    return ids
