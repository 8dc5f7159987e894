"""Skeleton-of-Thought: writes an outline of the answer first, then all its points in parallel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.prefix import common_prefix
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.shared.text_threads import ThreadedStrategy, ThreadState, ThreadWriter

from .shared.strategy_text import check_room, ids_of

NUMBER, POINT = "{number}", "{point}"
LONGEST = 4000  # maximum characters of a request
_LINE = re.compile(r"\s*(\d{1,4})\.\s*(\S.*)")


@dataclass
class _SkeletonRun:
    """whole: True if the outline has ended, and its points are being written or there were none"""

    writing: ThreadWriter
    whole: bool = False


def points_of(outline: str, most: int) -> list[tuple[str, str]]:
    """(number, words) of the points of an outline, one per line, at most `most`; of points with the same number, the first."""
    points: dict[str, str] = {}
    for line in outline.splitlines():
        if (point := _LINE.fullmatch(line)) is not None:
            points.setdefault(point[1], point[2].rstrip())
    return list(points.items())[:most]


@component
class Skeleton(ThreadedStrategy):
    """Write an outline first, then all its points in parallel.

    `outline_prompt` is appended to the prompt, and the model writes an outline, up to its end, to a blank line or to
    `max_outline_tokens`. Its numbered points are parsed. Each point continues separately behind prompt, outline and
    `point_template`, a request for that point alone. Prompt and outline are held once, the common beginning of the requests is
    read once, and a pass writes one token of every point. So there are as many passes as outline and longest point have tokens.
    The run's text is the outline and the text of each point, in order; the requests are not part of it. With fewer than two
    points there is nothing to write in parallel, and the outline's text continues as plain decoding. A model without a
    tokenizer also decodes plainly, behind the ids in `outline_prompt`.

    Points cannot see each other, so the text changes. Differences from the authors' code: a point's request follows the
    outline's own text, so its entries are reused. Theirs is a separate prompt that repeats question and outline. A point that
    `max_outline_tokens` cut off is left out. No router decides whether a question suits the method (SoT-R). The requests have
    the authors' form in other words. An instruct model follows them; a model trained on text alone seldom does.
    """

    title = "Skeleton-of-Thought"
    source = "Ning et al. 2023, arXiv:2307.15337; imagination-research/sot, sot/schedulers/outline_batch_scheduler.py, prompts"
    uses = frozenset({"prompt_compression", "sampler"})
    lossless = False
    changes = "points are written without seeing each other"

    outline_prompt: str = param(
        "\n\nFirst the outline of the answer alone: 3 to 10 numbered points, each of 3 to 5 words.\n1.",
        lines=True, most=LONGEST, help="request for an outline, put after the prompt; the outline starts with its last line",
    )  # fmt: skip
    point_template: str = param(
        f"\n\nNow point {NUMBER} of this outline alone, in 1 or 2 sentences.\n{NUMBER}. {POINT}:",
        lines=True, most=LONGEST, help="request for a point, put after the outline; {number} and {point} are filled in",
    )  # fmt: skip
    max_outline_tokens: int = param(96, low=1, high=1024, unit="tokens", help="maximum length of the outline")
    max_points: int = param(
        10, low=2, high=32, unit="points", help="maximum number of points that are written at the same time"
    )
    max_point_tokens: int = param(64, low=1, high=1024, unit="tokens", help="maximum length of a point")

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if NUMBER not in self.point_template and POINT not in self.point_template:
            return f"skeleton.point_template is the same for all points: put {NUMBER} or {POINT} into it."
        return None

    def begin_threads(self, s: State) -> None:
        """Read the request for an outline, and begin the outline."""
        s.target.set_needs(Needs())
        writing = ThreadWriter.start(s)
        s.scratch = _SkeletonRun(writing)
        prompt, asked = writing.branches.alive[0], ids_of(s, self.outline_prompt)
        prompt.tokens += asked
        check_room(s, len(prompt.tokens), "the request for an outline")
        writing.branches.read()
        writing.begin(s, prompt, given=len(asked))

    def step(self, s: State) -> Move:
        run: _SkeletonRun = s.scratch
        return (
            run.writing.write_round(s)
            if run.whole
            else run.writing.write_round(s, lambda wrote: self._check_outline(s, run, wrote[0]))
        )

    def _check_outline(self, s: State, run: _SkeletonRun, first: ThreadState) -> None:
        """Check whether the outline has ended; if so, begin its points, if there are any."""
        pieces = s.stop.pieces
        if pieces is None:
            return
        written = b"".join(map(pieces, first.tokens)).decode("utf-8", "replace")
        blank = written.find("\n\n")
        cut = len(first.tokens) >= self.max_outline_tokens and blank < 0 and first.strand.why is None
        if blank < 0 and not cut and first.strand.why is None:
            return
        run.whole = True
        stopped = first.strand.why == "stop_token" and first.tokens[-1] in s.stop.tokens
        if stopped:
            written = written.removesuffix(pieces(first.tokens[-1]).decode("utf-8", "replace"))
        elif blank >= 0:
            written = written[:blank]
        elif cut:
            written = written.rpartition("\n")[0]
        outline = self.outline_prompt.rpartition("\n")[2] + written
        self._begin_points(s, run.writing, first, points_of(outline, self.max_points), stopped)

    def _begin_points(
        self,
        s: State,
        writing: ThreadWriter,
        first: ThreadState,
        points: Sequence[tuple[str, str]],
        stopped: bool,
    ) -> None:
        """Begin a thread for each point, behind the outline; stopped: whether the outline ends with a stop token."""
        at, behind = len(first.tokens) - stopped, len(first.branch.tokens) - stopped
        asked = [
            s.encode(self.point_template.replace(NUMBER, n).replace(POINT, words))
            for n, words in points
            if s.encode
        ]
        asked = [x for x in asked if x and behind + len(x) < s.limit]
        left = writing.budget - 1
        if len(asked) < 2 or left < len(asked):
            return
        first.end("outline")
        alike = min(min(map(len, asked)) - 1, *(common_prefix(asked[0], x) for x in asked[1:]))
        trunk = writing.branches.fork(first.branch, behind, asked[0][:alike])
        for request in asked:
            branch = writing.branches.fork(trunk, len(trunk.tokens), request[alike:])
            most = min(self.max_point_tokens, left // len(asked))
            writing.begin(s, branch, parent=first.strand.number, at=at, given=len(request), most=most)
        writing.branches.read(whole=[trunk] if stopped else [trunk, first.branch])
        writing.branches.end(trunk)
