"""APAR: a model that was trained to forks its own text, and details are written beside what follows them."""

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
from decodescope.engine.decoding.shared.threads import THREADS, Thread, Writing
from decodescope.engine.model.forward.executor import EngineFault

from .shared.written import token_of


@dataclass
class _Run:
    """fork, child: the two ids; None: nothing forks"""

    writing: Writing
    marks: tuple[int, int] | None


@component
class Apar(Strategy):
    """Two reserved tokens make a text a tree of paragraphs. A thread that writes [Fork] goes on with what comes next, and a new
    thread begins behind its text so far, [Fork] [Child], to write the details; neither sees the other. Threads fork in turn. A
    pass writes a token of every thread, so there are as many passes as the longest way down the tree has tokens, and when a
    thread ends the entries that it alone has read go. The run's text has a child's where it forked. A model that never writes
    [Fork] is decoded plainly.

    As in the authors' code [Child] is never drawn, and [Fork] neither behind itself nor behind [Child]. Beside it: their new
    thread is fed [Child] a pass after [Fork], here both are rows of one pass, so that a child begins a pass earlier; it reads
    its parent's entries, where their code copies the cache; [Fork] stays in the text, and no line break is mended. The model
    has to be trained on texts with these marks: one that was not forks nowhere, or anywhere.
    """

    title = "APAR: auto-parallel decoding"
    source = "Liu et al. 2024, arXiv:2401.06761; THUDM/APAR, fastchat/fastchat/serve/apar_stream.py"
    uses = frozenset({"context", "sampler"})
    lossless = False
    changes = "threads do not see each other's text"
    details: ClassVar = {"threads": THREADS}

    fork: str = param("", help="the token that forks, as its text or its id; empty: nothing forks")
    child: str = param("", help="the token put behind it in a new thread, as its text or its id")
    most: int = param(
        32,
        low=1,
        high=256,
        unit="threads",
        help="written at once; where there are as many, a fork begins none",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if bool(self.fork) != bool(self.child):
            return "apar.fork and apar.child belong together: give both, or neither and nothing forks."
        if self.fork and self.fork == self.child:
            return f"apar.fork and apar.child are both {self.fork!r}: give two tokens."
        return None

    def begin(self, s: State) -> None:
        s.target.ask(Needs())
        marks = None
        if self.fork:
            marks = token_of(s, self.fork, "apar.fork"), token_of(s, self.child, "apar.child")
            if marks[0] == marks[1]:
                raise EngineFault(
                    "bad_input", f"apar.fork and apar.child are the same token, {marks[0]}: give two."
                )
        s.scratch = _Run(Writing.of(s), marks)
        s.scratch.writing.begin(s, s.scratch.writing.branches.alive[0])

    def step(self, s: State) -> Move:
        run: _Run = s.scratch
        if run.marks is None:
            return run.writing.round(s)
        (fork, child), writing = run.marks, run.writing

        def law(logits: Tensor, threads: list[Thread]) -> Tensor:
            logits = logits.clone()
            logits[:, child] = -float("inf")
            behind = [i for i, x in enumerate(threads) if x.branch.tokens[-1] in (fork, child)]
            logits[behind, fork] = -float("inf")
            return logits

        def then(wrote: list[Thread]) -> None:
            for thread in wrote:
                going = sum(x.strand.why is None for x in writing.alive)
                fits = len(thread.branch.tokens) + 1 < s.limit
                if thread.tokens[-1] == fork and going < self.most and fits:
                    writing.fork(s, thread, len(thread.tokens), [child])

        return writing.round(s, then, law)
