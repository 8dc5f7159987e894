"""Answers: whole texts of a small model, and how a step records them, their judgement, and whether one was kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from decodescope.engine.trace.details.declarations import (
    DetailColumn,
    Outcome,
    PriceForm,
    Relation,
    ScaleForm,
    Sentence,
    TallyForm,
)
from decodescope.engine.trace.details.shapes import Detail, TallyDetail

TITLE = "Answers of the small model"
UNASKED = "unasked"  # the outcome of the only row where the small model was not asked
ROUNDING = 1e-6  # of means that were taken of single numbers


@dataclass
class Candidate:
    """One answer of the small model.

    tokens: ids;  form: number of the form of the question that it answers
    logp:   of each token the natural logarithm of its probability by the small model, before the sampler
    bits:   and the entropy of the distribution there
    ended:  whether it ends with a token or text that ends texts, not with the limit
    """

    tokens: list[int]
    form: int
    logp: list[float] = field(default_factory=list)
    bits: list[float] = field(default_factory=list)
    ended: bool = False

    @property
    def mean_logp(self) -> float:
        """Nats: the length-normalised log-probability of its tokens."""
        return sum(self.logp) / max(len(self.logp), 1)

    @property
    def mean_bits(self) -> float:
        """Bits that the distribution of a token has, on average."""
        return sum(self.bits) / max(len(self.bits), 1)


@dataclass
class AnswerJudgement:
    """A router's judgement of the answers.

    score: of all of them together;  chosen: the one that would be kept
    columns, values: further entries in the tally of the answers, of each answer and of all
    more:  further details of the step
    """

    score: float
    chosen: int = 0
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    more: Sequence[Detail] = ()


def answers_form(number: str, rule: str, value: str, *, score: str = "", above: bool = True) -> TallyForm:
    """The meaning of a tally of answers.

    number: what the numbers of the answers are, in words;  rule: a sentence on how it is decided
    value:  formula of an answer's number;  score: formula of the score, from the row of the chosen answer; "": no formula
    above:  True if a score of at least tau keeps an answer, False if one of at most tau does
    """
    bar = "tau" if above else "-tau"
    words = [
        Sentence("form {form + 1}", where="rows >= 2"),
        Sentence("cut at the limit", given={"ended": False}),
    ]
    due = [Relation("asked == rows"), Relation("form <= forms - 1")]
    chosen = [*due, *([Relation(f"score == {score}", ROUNDING)] if score else [])]
    return TallyForm(
        title=TITLE,
        number=number if above else f"−{number}",
        bar="tau",
        value=value if above else f"-({value})",
        says=[
            Sentence("an answer of the small model kept", given={"kept": True}),
            Sentence("the large model answered"),
        ],
        row=[Sentence("not asked", given={"outcome": UNASKED}), Sentence("{tokens}")],
        outcomes={
            "kept": Outcome(True, bar, [Sentence("kept"), *words], [*chosen, Relation("kept == 1")]),
            "lost": Outcome(False, bar, [Sentence("not kept"), *words], [*chosen, Relation("kept == 0")]),
            "other": Outcome(True, "", words, due),
        },
        lines=[
            Sentence(rule),
            Sentence("The small model's passes had {read} rows.", given={"kept": True}),
            Sentence(
                "The small model's passes had {read} rows, and the large model's come on top.",
                given={"kept": False},
            ),
        ],
        columns=[
            DetailColumn("tokens", "tokens"),
            DetailColumn("form", "number"),
            DetailColumn("logp", "numbers"),
            DetailColumn("bits", "numbers"),
            DetailColumn("ended", "number"),
            DetailColumn("outcome", "text"),
        ],
        values=[DetailColumn(name, "number") for name in ("score", "kept", "asked", "forms", "read")],
        order=["other*", "kept|lost", "other*"],
        check="answers",
        counted="answers",
        count="asked",
        part="router",
        scale=_scale_form(number, rule, value, above),
    )


def _scale_form(number: str, rule: str, value: str, above: bool) -> ScaleForm:
    """How answers are drawn against tau."""
    kept = {"kept": True}
    lost = {"kept": False}
    asked = {"asked": 0}
    verdict = "too little" if above else "too much"
    ruling = []
    for sign, where in (("=", "score == tau"), (">", "score >= tau"), ("<", "")):
        why = f"{number} {{score:p}} {sign} tau {{tau:p}}"
        ruling += [
            Sentence(f"The small model was not asked: {why}. The large model answers.", asked, where),
            Sentence(f"{why}: the answer is kept, the large model is not asked.", kept, where),
            Sentence(f"{why}: {verdict}, so the large model is asked and answers anew.", lost, where),
        ]
    return ScaleForm(
        title="Cascade",
        says="a small model answers, a large one where that is not enough",
        caption=TITLE,
        row="answer",
        number=number,
        value=value,
        bar="tau",
        tokens="tokens",
        absent="What the small model answered",
        axis=[Sentence("kept from tau {tau:p} on" if above else "kept up to tau {tau:p}")],
        figure=[
            Sentence("{score:p}", given={"outcome": ["kept", "lost", UNASKED]}),
            Sentence(f"{{{value}:p}}"),
            Sentence("–"),
        ],
        words=[
            Sentence("1 token", where="count(tokens) == 1"),
            Sentence("{count(tokens):n} tokens", where="count(tokens) != 1"),
            Sentence("kept: it is the text", given={"outcome": "kept"}),
            Sentence("the best, not kept", given={"outcome": "lost"}),
            Sentence("by what was bet before", given={"outcome": UNASKED}),
            Sentence("form {form + 1}", where="forms >= 2"),
            Sentence("cut at the limit", given={"ended": False}),
        ],
        ruling=ruling,
        lines=[Sentence(rule)],
        fate=[
            Sentence("the small model's answer is the text", kept),
            Sentence("the large model was asked"),
        ],
        figures=[
            Sentence("{asked:n} answer", where="asked == 1"),
            Sentence("{asked:n} answers", where="asked != 1"),
            Sentence("small model wrote the text", kept),
            Sentence("large model wrote the text", lost),
        ],
        prices=PriceForm(
            "Price of each branch",
            {"draft": "small", "target": "large"},
            part=[
                Sentence(
                    "The small model's part is {share}, and its answers are not used.",
                    lost,
                    "asked >= 1",
                ),
                Sentence("The small model's part is {share}."),
            ],
        ),
    )


def answers_tally(
    name: str, answers: Sequence[Candidate], judged: AnswerJudgement, *, kept: bool, forms: int, read: int
) -> TallyDetail:
    """The answers as a tally of that name; one row without an answer where the small model was not asked.

    forms: of the question;  read: rows of the passes of the small model up to the decision
    """
    fates = ["other"] * len(answers)
    if answers:
        fates[judged.chosen] = "kept" if kept else "lost"
    rows: list[Candidate | None] = [*answers] or [None]
    columns: dict[str, list[Any]] = {
        column: [None if x is None else getattr(x, column) for x in rows]
        for column in ("tokens", "form", "logp", "bits", "ended")
    }
    columns |= {column: [*entries] for column, entries in judged.columns.items()}
    values = {"score": judged.score, "kept": kept, "asked": len(answers), "forms": forms, "read": read}
    return TallyDetail(name, columns | {"outcome": fates or [UNASKED]}, values | dict(judged.values))
