"""JumpCoder: writes a program line by line, and inserts lines where the lines after them become more likely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.shared.branches import TextBranches
from decodescope.engine.decoding.shared.candidates import mask_fill_conflict
from decodescope.engine.decoding.shared.infiller import Gap, Infiller
from decodescope.engine.decoding.shared.line_writer import Infill, LineWriter, decode_text
from decodescope.engine.trace.details.declarations import DetailColumn, Outcome, Sentence, TallyForm
from decodescope.engine.trace.details.shapes import TallyDetail
from decodescope.engine.trace.records.events import EndReason
from decodescope.engine.trace.values.lines import (
    SCORED,
    LineVerdict,
    Score,
    choose_line,
    judge_line,
    line_gains,
    lowest_scored_lines,
    required_gain_count,
    settle_outcomes,
    text_outcome,
)

from .shared.strategy_text import ids_of

ROLE = "infill"
GAIN = [Sentence("{gain:2} in all", where="gaining >= 1")]
DEFINES = "it defines a name that is lacking"
REFUSED = {
    "parse": "the program would not parse",
    "unneeded": "imports what nobody lacks",
    "opens": "opens a block",
    "similar": "like a line beside it",
    "repeated": "stands already",
    "empty": "nothing but blanks",
}


def _line_sentences(what: str) -> list[Sentence]:
    """Sentences on the outcome of a proposed line, and its place."""
    return [
        Sentence(f"before line {{at + 1}} (first logit {{first:2}}): {what}"),
        Sentence(f"before line {{at + 1}}: {what}", given={"first": None}),
    ]


OTHERS = {
    "less": Outcome(True, "needed", [*_line_sentences("another gains more"), *GAIN]),
    "also": Outcome(True, "", _line_sentences(f"{DEFINES}, but another is inserted")),
    "score": Outcome(False, "needed", [*_line_sentences("too few gain"), *GAIN]),
    **{word: Outcome(False, "", _line_sentences(why)) for word, why in REFUSED.items()},
}  # of lines that were not inserted


def _round_form(title: str, says: str, come: dict[str, Outcome], where: str) -> TallyForm:
    """The form of a round that ends with a line. come: outcomes of that line;  where: relation that holds if lines were
    proposed
    """
    others = "|".join(OTHERS) + "*"
    return TallyForm(
        title=title,
        number="lines that gain",
        bar="needed",
        value="gaining",
        says=[Sentence(says)],
        row=[Sentence("{text}")],
        outcomes=come | OTHERS,
        lines=[
            Sentence(
                "Lines are proposed before those whose first token the target liked least.", where=where
            ),
            Sentence(
                "One comes where two lines behind it, and half of all, gain {tau:g} or more in their mean logit.",
                where=where,
            ),
            Sentence("The text is emitted by the last round: until then a line may come before any other."),
        ],
        columns=[
            DetailColumn("text", "tokens"),
            DetailColumn("at", "number"),  # the line before which it would be inserted, from 0
            DetailColumn("first", "number"),  # logit of that line's first token
            DetailColumn("after", "numbers"),  # scores of the lines behind it after the insertion
            DetailColumn("stays", "number"),  # the number of these lines that stay if it is inserted
            DetailColumn("gaining", "number"),
            DetailColumn("needed", "number"),
            DetailColumn("gain", "number"),
            DetailColumn("outcome", "text"),
        ],
        values=[
            DetailColumn("stood", "number"),  # lines before the round
            DetailColumn("place", "number"),  # of the new line
            DetailColumn("first_logits", "numbers"),  # per line; null: nothing is inserted before it
            DetailColumn("means", "numbers"),  # the score of each line
        ],
        order=[others, "|".join(come), others],
        check="lines",
    )


INSERTED = _round_form(
    "A line inserted",
    "a line inserted before line {place + 1} of {stood}",
    {
        "inserted": Outcome(True, "needed", [*_line_sentences("inserted"), *GAIN]),
        "defines": Outcome(True, "", _line_sentences(DEFINES)),
    },
    "rows >= 1",
)
WRITTEN = _round_form(
    "A line written",
    "line {place + 1} written",
    {"written": Outcome(True, "", [Sentence("written behind all")])},
    "rows >= 2",
)


@dataclass
class _JumpCoderRun:
    """rounds: number so far"""

    text: LineWriter
    infiller: Infiller
    rounds: int = 0


@component
class JumpCoder(Strategy):
    """Write a program line by line, with insertions.

    In each round a second model proposes a line before each of the `infill_places` lines with the lowest logit of their first
    token. The target judges them: its text is forked for each. One pass reads all forks from the proposed line on, and the
    text's last token, over the cached entries before them. A proposed line is inserted if

    - it imports a name that the program reads and lacks; or
    - the lines behind it gain by it: the mean logit of their tokens rises by at least `tau`, in two of them (or the only one)
      and in half of all, from the first on. The first line that does not gain is removed, with all lines behind it.

    The program has to parse with it (`ast`; nothing is run). A line is not inserted if it exists already, is more than
    `max_similarity` similar to a neighbour, or opens a block. Of several lines, the one with the largest gain is inserted. If
    none is, the target writes the next line, greedily. The last round emits the text, because until then a line may be inserted
    before any other.

    The second model, in the role "infill", reads both sides of the place: a masked-diffusion model with the target's tokenizer.
    It fills `max_infill_tokens` mask tokens before a line's end in `infill_passes` passes, all places in one batch. The authors
    use a causal model that was trained on prefix, suffix and middle; `lab` was not. Its proposals are judged in any case, so a
    better model can replace it. The shipped lab-mdm knows little more of programs than how they look.

    Compared with the authors' code: a score is the mean logit, as theirs, not the log-probability. The prompt is unchanged
    (their `infill_prompt` = False). Functions of several lines are not inserted, nor lines without a gain, nor lines that do
    not parse. Tokens on both sides of the place stay as they were; theirs are tokenized again from the text. A round that
    inserts a line writes none; they write one and discard it. After `max_infill_rounds` rounds the text continues without
    insertions; theirs ends. The infiller's last guesses are not tried first (their `speculative_infill`).
    """

    title = "JumpCoder"
    source = "Chen et al. 2024, arXiv:2401.07870, section 3; Keytoyze/JumpCoder, jumpcoder/jump_coder.py, run_llm_server.py"
    lanes = (ROLE,)
    lossless = False
    changes = "lines are inserted before others"
    details: ClassVar = {"inserted_line": INSERTED, "written_line": WRITTEN}

    infill_places: int = param(
        5,
        low=0,
        high=32,
        unit="places",
        help="number of lines per round before which an inserted line is proposed (k); 0: none",
    )
    tau: float = param(
        0.3,
        low=0.0,
        high=20.0,
        step=0.1,
        help="minimum rise of a later line's mean logit for it to count as improved (tau)",
    )
    max_similarity: float = param(
        0.85,
        low=0.0,
        high=1.0,
        step=0.01,
        help="maximum similarity to a neighbouring line; a more similar proposal is left out",
    )
    max_infill_rounds: int = param(
        64, low=1, high=1024, unit="rounds", help="maximum number of rounds in which insertions are proposed"
    )
    max_line_tokens: int = param(
        64, low=1, high=1024, unit="tokens", help="maximum length of a line that the target writes"
    )
    max_infill_tokens: int = param(
        12, low=1, high=64, unit="tokens", help="maximum length of an inserted line, without its line end"
    )
    infill_passes: int = param(
        4,
        low=1,
        high=64,
        unit="passes",
        help="passes of the infill model that fill the proposed lines of a round",
    )
    syntax_check: str = param(
        "prompt",
        choices=("prompt", "text", "none"),
        help="what must parse after an insertion: prompt and text, the text alone, or nothing",
    )
    newline: str = param(
        "\n", lines=True, most=16, help="text that ends a line; an id for a model without a tokenizer"
    )

    def refuse_model(self, role: str, spec: ModelSpec) -> str | None:
        return mask_fill_conflict(self.name, spec)

    def begin(self, s: State) -> None:
        s.target.set_needs(Needs())
        pieces, head = s.stop.pieces, None
        if pieces is not None and self.syntax_check != "none":
            head = decode_text(pieces, s.tokens) if self.syntax_check == "prompt" else ""
        breaks = ids_of(s, self.newline) if pieces is None else []
        text = LineWriter(TextBranches(s.target, s.tokens), head, pieces, breaks)
        s.scratch = _JumpCoderRun(text, Infiller(s.lanes[ROLE], s.stop.tokens))

    def step(self, s: State) -> Move:
        run: _JumpCoderRun = s.scratch
        text, clock = run.text, s.target.executor
        started = clock.mark()
        first, mean = text.scores
        infills = self._propose_infills(s, run, first)
        proposed = clock.mark()
        standing = text.judging_context(self.max_similarity)
        fit = [
            x
            for x in infills
            if text_outcome(text.line_content(x.tokens), x.at, standing) in (None, "defines")
        ]
        forks, law = text.score_infills(fit)
        verdicts = [
            judge_line(text.line_content(x.tokens), x.at, standing, mean, x.after or [], self.tau)
            for x in infills
        ]
        end: EndReason | None = None
        taken = choose_line(verdicts)
        record = self._record(infills, verdicts, first, mean)
        if taken is None:
            end = text.write(s, law, self.max_line_tokens)
            _add_row(record, text=text.lines[-1].tokens, outcome="written")
        else:
            at = next(i for i, x in enumerate(fit) if x is infills[taken])
            text.insert(fit[at], forks[at], verdicts[taken].stays)
        verified, emitted = clock.mark(), text.text if end is not None else []
        run.rounds += 1
        s.tokens += emitted
        return Move(
            emitted,
            ["target"] * len(emitted),
            end,
            draft_us=clock.elapsed_us(started, proposed),
            verify_us=clock.elapsed_us(proposed, verified),
            commit_us=clock.elapsed_us(verified, clock.mark()),
            details=[record],
        )

    def _record(
        self,
        infills: Sequence[Infill],
        verdicts: Sequence[LineVerdict],
        first: list[Score],
        mean: list[Score],
    ) -> TallyDetail:
        """Record the proposed lines and their outcomes. first, mean: scores of the existing lines"""
        taken, columns = choose_line(verdicts), {column.name: list[Any]() for column in INSERTED.columns}
        name, place = ("written_line", len(first)) if taken is None else ("inserted_line", infills[taken].at)
        values = {"stood": len(first), "place": place, "first_logits": first, "means": mean}
        record = TallyDetail(name, columns, values)
        for x, outcome, due in zip(infills, settle_outcomes(verdicts), verdicts, strict=True):
            row = dict(text=x.tokens, at=x.at, first=first[x.at], after=x.after, stays=due.stays)
            if outcome in SCORED and x.after is not None:
                gains, _ = line_gains(mean[x.at :], x.after, self.tau)
                row |= dict(gaining=len(gains), needed=required_gain_count(x.after), gain=sum(gains))
            _add_row(record, **row, outcome=outcome)
        return record

    def _propose_infills(self, s: State, run: _JumpCoderRun, first: list[Score]) -> list[Infill]:
        """The second model's lines before the lines with the lowest first logits. first: logits of their first tokens"""
        ids, room = run.text.main.tokens, self.max_infill_tokens + 1
        if (
            run.rounds >= self.max_infill_rounds
            or len(run.text.text) + room >= s.remaining_tokens
            or len(ids) + room > run.infiller.max_length
        ):
            return []
        places = lowest_scored_lines(first, self.infill_places)
        starts = [run.text.start(at) for at in places]
        # the new line ends as the line before it
        gaps = [Gap(ids[:start], ids[start - 1 :]) for start in starts]
        out = []
        for at, gap, filled in zip(
            places, gaps, run.infiller.fill(gaps, self.max_infill_tokens, self.infill_passes), strict=True
        ):
            line = [*filled, gap.behind[0]]
            out.append(Infill(at, line[: next(i for i, x in enumerate(line) if run.text.ends_line(x)) + 1]))
        return out


def _add_row(record: TallyDetail, **row: Any) -> None:
    """Append a row, with null where it has no entry."""
    for name, column in record.columns.items():
        column.append(row.get(name))
