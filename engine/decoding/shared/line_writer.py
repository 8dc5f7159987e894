"""Write a text line by line, insert further lines among its lines, and score them by the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from decodescope.engine.trace.records.events import EndReason
from decodescope.engine.trace.values.lines import LineContext, Score
from decodescope.engine.trace.values.programs import find_comment_lines

from ..bases.state import State
from .branches import TextBranch, TextBranches


@dataclass
class TextLine:
    """Its tokens, and the target's logit of each."""

    tokens: list[int]
    scores: list[float]


@dataclass
class Infill:
    """A line that is proposed before line `at`. after: the scores that the lines after it would have; None: not computed."""

    at: int
    tokens: list[int]
    after: list[Score] | None = None


@dataclass
class LineFork:
    """A text with a line inserted; that line and those after it."""

    branch: TextBranch
    lines: list[TextLine]


@dataclass
class LineWriter:
    """The lines after a prompt; their tokens are the branch that is alive between two rounds.

    head:   the program's text before the lines; None: the text is no program
    pieces: id -> its bytes; None without a tokenizer, where ids in `breaks` end a line
    """

    branches: TextBranches
    head: str | None
    pieces: Callable[[int], bytes] | None
    breaks: list[int]
    lines: list[TextLine] = field(default_factory=list)

    @property
    def main(self) -> TextBranch:
        """The text."""
        return self.branches.alive[0]

    @property
    def text(self) -> list[int]:
        """The ids of all lines."""
        return [token for line in self.lines for token in line.tokens]

    def start(self, at: int) -> int:
        """Where line `at` begins in prompt and text."""
        return len(self.main.tokens) - sum(len(x.tokens) for x in self.lines[at:])

    def ends_line(self, token: int) -> bool:
        """True if a line ends with this token."""
        return token in self.breaks if self.pieces is None else b"\n" in self.pieces(token)

    def line_content(self, ids: Sequence[int]) -> str | tuple[int, ...]:
        """A line as it is judged: as text, where it is one of a program."""
        return tuple(ids) if self.head is None or self.pieces is None else decode_text(self.pieces, ids)

    def judging_context(self, like: float) -> LineContext:
        """The context in which a proposed line is judged."""
        return LineContext([self.line_content(x.tokens) for x in self.lines], self.head, like)

    @property
    def scores(self) -> tuple[list[Score], list[Score]]:
        """For each existing line: the logit of its first token (None: nothing is inserted before it), and its score."""
        lines = [self.line_content(x.tokens) for x in self.lines]
        aside = (
            find_comment_lines([x for x in lines if isinstance(x, str)])
            if self.head is not None
            else [False] * len(lines)
        )
        seen = [self._nonblank_scores(x) for x in self.lines]
        before = [self.main.tokens[self.start(i) - 1] for i in range(len(lines))]
        first = [
            scores[0] if scores and not skip and self.ends_line(token) else None
            for scores, skip, token in zip(seen, aside, before, strict=True)
        ]
        return first, [_mean(x) for x in seen]

    def _nonblank_scores(self, line: TextLine) -> list[float]:
        """The scores of a line's tokens, without those that are blanks."""
        pieces = self.pieces
        blank = self.ends_line if pieces is None else lambda token: not pieces(token).strip()
        return [score for token, score in zip(line.tokens, line.scores, strict=True) if not blank(token)]

    def score_infills(self, proposed: Sequence[Infill]) -> tuple[list[LineFork], Tensor]:
        """One pass over the text's last token and, for each proposed line, that line and the lines after it. Returns the forks,
        and the logits [V] after the text. Each proposed line also gets the scores that the lines after it would have."""
        forks, starts = list[LineFork](), [self.start(x.at) - 1 for x in proposed]
        main = self.main
        for x, start in zip(
            proposed, starts, strict=True
        ):  # the token before the line is read once more, for its first score
            branch = self.branches.fork(
                main, start, [main.tokens[start], *x.tokens, *main.tokens[start + 1 :]]
            )
            forks.append(
                LineFork(
                    branch, [TextLine(ids, []) for ids in (x.tokens, *(y.tokens for y in self.lines[x.at :]))]
                )
            )
        law, *logits = self.branches.step_all_logits()
        for x, start, fork, rows in zip(proposed, starts, forks, logits, strict=True):
            tokens = torch.tensor(fork.branch.tokens[start + 1 :], device=rows.device)
            scores = iter(rows[:-1].gather(1, tokens[:, None])[:, 0].tolist())
            for line in fork.lines:
                line.scores = [next(scores) for _ in line.tokens]
            x.after = [_mean(self._nonblank_scores(line)) for line in fork.lines[1:]]
        return forks, law[-1]

    def insert(self, infill: Infill, fork: LineFork, stays: int) -> None:
        """Go on with a fork; `stays` of the lines after the inserted one stay."""
        stay = sum(len(line.tokens) for line in fork.lines[1 + stays :])
        self.lines[infill.at :] = fork.lines[: 1 + stays]
        self._keep_only(self.branches.fork(fork.branch, len(fork.branch.tokens) - stay, []))

    def write(self, s: State, law: Tensor, longest: int) -> EndReason | None:
        """Write a line after the text, by logits [V] of its first token; why the text ends with it, if it does."""
        before, line = self.text, TextLine([], [])
        self._keep_only(self.main)
        self.lines.append(line)
        while True:
            token = int(law.argmax())
            stops = s.stop.find_stop([*before, *line.tokens], [token]) is not None
            line.tokens.append(token)
            line.scores.append(float(law[token]))
            self.main.tokens.append(token)
            end: EndReason | None = "stop_token" if stops else s.limit_reason(len(before) + len(line.tokens))
            if end is not None or self.ends_line(token) or len(line.tokens) >= longest:
                return end
            law = self.branches.step()[0]

    def _keep_only(self, branch: TextBranch) -> None:
        """End all texts but this one."""
        for other in [x for x in self.branches.alive if x is not branch]:
            self.branches.end(other)


def decode_text(pieces: Callable[[int], bytes], ids: Sequence[int]) -> str:
    """The text of ids."""
    return b"".join(map(pieces, ids)).decode("utf-8", "replace")


def _mean(scores: Sequence[float]) -> Score:
    return sum(scores) / len(scores) if scores else None
