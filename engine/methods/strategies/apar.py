"""APAR: a model trained to fork its own text writes details in parallel with the text that continues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.shared.text_threads import THREADS, ThreadState, ThreadWriter
from decodescope.engine.model.forward.executor import EngineFault

from .shared.strategy_text import token_of


@dataclass
class _AparRun:
    """fork, child: the two ids; None: nothing forks"""

    writing: ThreadWriter
    marks: tuple[int, int] | None


@component
class Apar(Strategy):
    """Two reserved tokens make a text a tree of paragraphs.

    A thread that writes [Fork] continues with what comes next. A new thread begins behind its text so far, [Fork] [Child], to
    write the details; neither sees the other. New threads can fork as well. A pass writes one token of every thread, so there
    are as many passes as the longest path down the tree has tokens. When a thread ends, the entries that only it has read are
    freed. The run's text has a child's text where it forked. A model that never writes [Fork] is decoded plainly.

    As in the authors' code, [Child] is never drawn, and [Fork] neither behind itself nor behind [Child]. Differences: their new
    thread is fed [Child] a pass after [Fork]; here both are rows of one pass, so a child begins a pass earlier. It reads its
    parent's entries; their code copies the cache. [Fork] stays in the text, and no line break is repaired. The model must be
    trained on texts with these marks; otherwise it never forks, or forks anywhere.
    """

    title = "APAR: auto-parallel decoding"
    source = "Liu et al. 2024, arXiv:2401.06761; THUDM/APAR, fastchat/fastchat/serve/apar_stream.py"
    uses = frozenset({"prompt_compression", "sampler"})
    lossless = False
    changes = "threads do not see each other's text"
    details: ClassVar = {"threads": THREADS}

    fork_token: str = param(
        "", help="token that starts a new thread, as text or id; empty: threads never fork"
    )
    child_token: str = param("", help="token that follows the fork token in a new thread, as text or id")
    max_threads: int = param(
        32,
        low=1,
        high=256,
        unit="threads",
        help="maximum number of threads at the same time; at the limit, a fork token starts none",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if bool(self.fork_token) != bool(self.child_token):
            return "apar.fork_token and apar.child_token belong together: give both, or neither and nothing forks."
        if self.fork_token and self.fork_token == self.child_token:
            return f"apar.fork_token and apar.child_token are both {self.fork_token!r}: give two tokens."
        return None

    def begin(self, s: State) -> None:
        s.target.set_needs(Needs())
        marks = None
        if self.fork_token:
            marks = (
                token_of(s, self.fork_token, "apar.fork_token"),
                token_of(s, self.child_token, "apar.child_token"),
            )
            if marks[0] == marks[1]:
                raise EngineFault(
                    "bad_input",
                    f"apar.fork_token and apar.child_token are the same token, {marks[0]}: give two.",
                )
        s.scratch = _AparRun(ThreadWriter.start(s), marks)
        s.scratch.writing.begin(s, s.scratch.writing.branches.alive[0])

    def step(self, s: State) -> Move:
        run: _AparRun = s.scratch
        if run.marks is None:
            return run.writing.write_round(s)
        (fork, child), writing = run.marks, run.writing

        def law(logits: Tensor, threads: list[ThreadState]) -> Tensor:
            logits = logits.clone()
            logits[:, child] = -float("inf")
            behind = [i for i, x in enumerate(threads) if x.branch.tokens[-1] in (fork, child)]
            logits[behind, fork] = -float("inf")
            return logits

        def then(wrote: list[ThreadState]) -> None:
            for thread in wrote:
                going = sum(x.strand.why is None for x in writing.alive)
                fits = len(thread.branch.tokens) + 1 < s.limit
                if thread.tokens[-1] == fork and going < self.max_threads and fits:
                    writing.fork(s, thread, len(thread.tokens), [child])

        return writing.write_round(s, then, law)
