"""JumpCoder: a program line by line, with lines inserted between those that stand where what follows gains by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.shared.branches import Branches
from decodescope.engine.decoding.shared.candidates import cannot_fill
from decodescope.engine.decoding.shared.infiller import Gap, Infiller
from decodescope.engine.decoding.shared.linewise import Infill, Linewise, said
from decodescope.engine.trace.details.declarations import DetailColumn, Outcome, Sentence, TallyForm
from decodescope.engine.trace.details.shapes import TallyDetail
from decodescope.engine.trace.records.events import EndReason
from decodescope.engine.trace.values.lines import (
    SCORED,
    Score,
    Verdict,
    chosen,
    lowest,
    needed,
    raised,
    refused,
    settled,
    verdict,
)

from .shared.written import ids_of

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


def _words(what: str) -> list[Sentence]:
    """What became of a line that was proposed, and where."""
    return [
        Sentence(f"before line {{at + 1}} (first logit {{first:2}}): {what}"),
        Sentence(f"before line {{at + 1}}: {what}", given={"first": None}),
    ]


OTHERS = {
    "less": Outcome(True, "needed", [*_words("another gains more"), *GAIN]),
    "also": Outcome(True, "", _words(f"{DEFINES}, but another is inserted")),
    "score": Outcome(False, "needed", [*_words("too few gain"), *GAIN]),
    **{word: Outcome(False, "", _words(why)) for word, why in REFUSED.items()},
}  # of lines that did not come


def _form(title: str, says: str, come: dict[str, Outcome], where: str) -> TallyForm:
    """A round that ends with a line. come: outcomes of that line;  where: relation that holds if lines were proposed"""
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
            DetailColumn("at", "number"),  # the line before which it would stand, from 0
            DetailColumn("first", "number"),  # logit of that line's first token
            DetailColumn("after", "numbers"),  # scores that the lines behind it would have
            DetailColumn("stays", "number"),  # so many of these stay where it is inserted
            DetailColumn("gaining", "number"),
            DetailColumn("needed", "number"),
            DetailColumn("gain", "number"),
            DetailColumn("outcome", "text"),
        ],
        values=[
            DetailColumn("stood", "number"),  # lines before the round
            DetailColumn("place", "number"),  # of the line that came
            DetailColumn("first_logits", "numbers"),  # of each line; null: nothing is inserted before it
            DetailColumn("means", "numbers"),  # of each line its score
        ],
        order=[others, "|".join(come), others],
        check="lines",
    )


INSERTED = _form(
    "A line inserted",
    "a line inserted before line {place + 1} of {stood}",
    {
        "inserted": Outcome(True, "needed", [*_words("inserted"), *GAIN]),
        "defines": Outcome(True, "", _words(DEFINES)),
    },
    "rows >= 1",
)
WRITTEN = _form(
    "A line written",
    "line {place + 1} written",
    {"written": Outcome(True, "", [Sentence("written behind all")])},
    "rows >= 2",
)


@dataclass
class _Run:
    """rounds: made so far"""

    text: Linewise
    infiller: Infiller
    rounds: int = 0


@component
class JumpCoder(Strategy):
    """In each round a second model proposes a line before each of the `places` lines whose first token the target liked least.
    The target judges them: its text is forked for each, and one pass reads all forks from the proposed line on, and the text's
    last token, beside the entries of what stands before. A proposed line is inserted if

    - it imports a name that the program reads and lacks; or
    - the lines behind it gain by it: the mean logit of their tokens rises by `tau` at least, in two of them (or the only one)
      and in half of all, from the first on. The first that does not gain goes, with all behind it.

    The program has to parse with it (`ast`; nothing is run); a line that is there already, is more than `like` a neighbour, or
    opens a block is not inserted. Of several that one is by which the lines gain most. Where none is, the target writes the
    next line, greedily. The text is emitted by the last round, since until then a line may come before any other.

    The second model, in the role "infill", reads both sides of a gap: a masked-diffusion model with the target's tokenizer,
    which fills `masks` mask tokens before a line's end in `passes` passes, all places side by side. The authors' is a causal
    model that was trained on prefix, suffix and middle, which `lab` was not. What it proposes is judged in any case, so a
    better one can take its place; the shipped lab-mdm knows little more of programs than how they look.

    Beside the authors' code: a score is the mean logit, as theirs, not the log-probability; the prompt stays as it is (their
    `infill_prompt` = False); functions of several lines are not inserted, nor lines by which none gains, nor what does not
    parse; tokens on both sides of a gap stay as they were, where theirs are cut anew from the text; a round whose line is
    inserted writes none, which they throw away; behind `lines` rounds the text goes on by itself, where theirs ends; the
    infiller's last guesses are not tried first (their `speculative_infill`).
    """

    title = "JumpCoder"
    source = "Chen et al. 2024, arXiv:2401.07870, section 3; Keytoyze/JumpCoder, jumpcoder/jump_coder.py, run_llm_server.py"
    lanes = (ROLE,)
    lossless = False
    changes = "lines are inserted before others"
    details: ClassVar = {"inserted_line": INSERTED, "written_line": WRITTEN}

    places: int = param(
        5, low=0, high=32, unit="places", help="k, before which a line is proposed in a round"
    )
    tau: float = param(0.3, low=0.0, high=20.0, step=0.1, help="by which a line's mean logit has to rise")
    like: float = param(
        0.85, low=0.0, high=1.0, step=0.01, help="a proposed line more alike to a neighbour is left out"
    )
    lines: int = param(64, low=1, high=1024, unit="rounds", help="in which lines are proposed")
    longest: int = param(64, low=1, high=1024, unit="tokens", help="of a line that the target writes")
    masks: int = param(12, low=1, high=64, unit="tokens", help="of a proposed line, at most, without its end")
    passes: int = param(4, low=1, high=64, unit="passes", help="of the second model for the lines of a round")
    program: str = param(
        "prompt",
        choices=("prompt", "text", "none"),
        help="what must parse: prompt and text, the text alone, or nothing",
    )
    newline: str = param(
        "\n", lines=True, most=16, help="what ends a line; an id for a model without a tokenizer"
    )

    def lacks(self, role: str, spec: ModelSpec) -> str | None:
        return cannot_fill(self.name, spec)

    def begin(self, s: State) -> None:
        s.target.ask(Needs())
        pieces, head = s.stop.pieces, None
        if pieces is not None and self.program != "none":
            head = said(pieces, s.tokens) if self.program == "prompt" else ""
        breaks = ids_of(s, self.newline) if pieces is None else []
        text = Linewise(Branches(s.target, s.tokens), head, pieces, breaks)
        s.scratch = _Run(text, Infiller(s.lanes[ROLE], s.stop.tokens))

    def step(self, s: State) -> Move:
        run: _Run = s.scratch
        text, clock = run.text, s.target.executor
        started = clock.mark()
        first, mean = text.scores
        infills = self._proposed(s, run, first)
        proposed = clock.mark()
        standing = text.standing(self.like)
        fit = [x for x in infills if refused(text.read(x.tokens), x.at, standing) in (None, "defines")]
        forks, law = text.scored(fit)
        verdicts = [
            verdict(text.read(x.tokens), x.at, standing, mean, x.after or [], self.tau) for x in infills
        ]
        end: EndReason | None = None
        taken = chosen(verdicts)
        record = self._record(infills, verdicts, first, mean)
        if taken is None:
            end = text.write(s, law, self.longest)
            _add(record, text=text.lines[-1].tokens, outcome="written")
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
        verdicts: Sequence[Verdict],
        first: list[Score],
        mean: list[Score],
    ) -> TallyDetail:
        """The lines that were proposed, and what becomes of them. first, mean: scores of the lines that stand"""
        taken, columns = chosen(verdicts), {column.name: list[Any]() for column in INSERTED.columns}
        name, place = ("written_line", len(first)) if taken is None else ("inserted_line", infills[taken].at)
        values = {"stood": len(first), "place": place, "first_logits": first, "means": mean}
        record = TallyDetail(name, columns, values)
        for x, outcome, due in zip(infills, settled(verdicts), verdicts, strict=True):
            row = dict(text=x.tokens, at=x.at, first=first[x.at], after=x.after, stays=due.stays)
            if outcome in SCORED and x.after is not None:
                gains, _ = raised(mean[x.at :], x.after, self.tau)
                row |= dict(gaining=len(gains), needed=needed(x.after), gain=sum(gains))
            _add(record, **row, outcome=outcome)
        return record

    def _proposed(self, s: State, run: _Run, first: list[Score]) -> list[Infill]:
        """What the second model writes before the lines that the target liked least. first: logits of their first tokens"""
        ids, room = run.text.main.tokens, self.masks + 1
        if (
            run.rounds >= self.lines
            or len(run.text.text) + room >= s.left
            or len(ids) + room > run.infiller.longest
        ):
            return []
        places = lowest(first, self.places)
        starts = [run.text.start(at) for at in places]
        # what ended the line before ends the new one
        gaps = [Gap(ids[:start], ids[start - 1 :]) for start in starts]
        out = []
        for at, gap, filled in zip(
            places, gaps, run.infiller.fill(gaps, self.masks, self.passes), strict=True
        ):
            line = [*filled, gap.behind[0]]
            out.append(Infill(at, line[: next(i for i, x in enumerate(line) if run.text.ends(x)) + 1]))
        return out


def _add(record: TallyDetail, **row: Any) -> None:
    """A further row, null where it has no entry."""
    for name, column in record.columns.items():
        column.append(row.get(name))
