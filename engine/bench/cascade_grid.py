"""The grid of `bench cascade`: thresholds and labelled pairs, taken from questions that are not asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.session.method import Method
from decodescope.engine.trace.details.shapes import TallyDetail

from .labbench import Bench, score_turns
from .questions.questions import BenchQuestion, count_kinds
from .talk import RecordedAnswer

HELD = 2  # questions of a kind
KEPT = (0.1, 0.25, 0.5, 0.75)  # shares of the answers to them that a threshold keeps
PAIRS = 4  # labelled, half of them right: each is read for every answer
WARM = 0.8  # temperature of samples that vote
ALWAYS = 64.0  # bits: more than any distribution has, so that the small model's answer stays


def held_out_questions(
    questions: Sequence[BenchQuestion], asked: Sequence[BenchQuestion], count: int = HELD
) -> list[BenchQuestion]:
    """The last `count` questions of every kind, in their order, among those of one turn that are judged and not asked."""
    names = {x.id for x in asked}
    free = [x for x in questions if x.id not in names and x.scorer and len(x.turns) == 1]
    last = {kind: [x for x in free if x.kind == kind][-count:] for kind in count_kinds(free)}
    return [x for rows in last.values() for x in rows]


def router_method(strategy: str, router: str, knobs: dict[str, Any]) -> Method:
    """The method with this router; a router whose samples vote draws them."""
    method = Method.from_names({"strategy": strategy, "router": router}, {"router": knobs})
    return replace(method, sampler=Temperature(WARM)) if method.router.copies > 1 else method


class HeldOutAnswers:
    """The results of a bench's small model on held-out questions.

    The bench keeps records. The small model's answers are kept whatever they are, so the large model is not asked.
    """

    def __init__(self, bench: Bench, held: Sequence[BenchQuestion]):
        self.bench, self.held = bench, [x for x in held if not bench.skip_reason(x)]

    def tallies(self, router: str, knobs: dict[str, Any]) -> list[tuple[BenchQuestion, TallyDetail]]:
        """The tally of every question's answers under a router of answers, for questions that came to an end."""
        method = router_method("cascade", router, {**knobs, "tau": ALWAYS if router == "entropy" else 0.0})
        rows = []
        for question in self.held:
            answer = self.bench.answer(
                method, self.bench.first_prompt(question), self.bench.max_answer_tokens(question)
            )
            records = answer.records if isinstance(answer, RecordedAnswer) else []
            one = records[0].detail(method.router.answers_detail) if records else None
            if one is not None and one.values["asked"]:
                rows.append((question, one))
        return rows

    def thresholds(self, router: str, knobs: dict[str, Any]) -> list[float]:
        """Values of tau that keep the shares KEPT of these answers, to four digits; none where nothing was held out."""
        above = router_method("cascade", router, knobs).router.above
        ranked = sorted((x.values["score"] for _, x in self.tallies(router, knobs)), reverse=above)
        taus = [ranked[max(1, round(share * len(ranked))) - 1] for share in KEPT if ranked]
        return list(dict.fromkeys(float(f"{x:.4g}") for x in taus))

    def labelled_pairs(self) -> str:
        """Labelled pairs as `references` takes them, of the shortest questions. Empty: there are too few.

        A pair is the known answer, which is right, or the small model's own, where it is wrong.
        """
        rows = self.tallies("answer_confidence", {})
        rows.sort(key=lambda row: len(self.bench.first_prompt(row[0])))
        right = [(x, self._answer_ids(x.references[0]), True) for x, _ in rows]
        own = [(x, one.columns["tokens"][0]) for x, one in rows]
        wrong = [
            (x, ids, False) for x, ids in own if (score_turns(x, [self.bench.text(ids)]) or [1.0])[0] < 0.5
        ]
        half = PAIRS // 2
        if min(len(right), len(wrong)) < half:
            return ""
        chosen = [*right[:half], *wrong[:half]]
        lines = (
            {"question": self.bench.first_prompt(x), "answer": ids, "right": so} for x, ids, so in chosen
        )
        return "\n".join(map(json.dumps, lines))

    def _answer_ids(self, text: str) -> list[int]:
        """The ids of a known answer, and the end that belongs behind it."""
        tokenizer, ends = self.bench.model.tokenizer, self.bench.model.stop_tokens
        assert tokenizer is not None
        return [*tokenizer.encode_plain(text), *ends[:1]]
