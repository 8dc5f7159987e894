"""Batch: one method on a set of prompts, a recorded run each. They are queued one at a time, so that the runs of others come
between them, and what was recorded stays when the batch is stopped."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from decodescope.app.limits import SEEDS
from decodescope.app.refusal import Refused

from .aside import has_chat
from .channel import Channel
from .composed import Choice
from .play import Full, Play
from .prompts import Prompt

if TYPE_CHECKING:
    from decodescope.engine.method import Method

MOST = 128  # prompts of a batch, and runs of one report
KEPT = 16  # batches in memory
AGAIN = 0.25  # seconds until a place in a full queue is asked for again


def drafts(method: Method) -> bool:
    """Whether the method drafts at all: only then a draft can be rejected."""
    return "drafter" in method.strategy.uses and method.drafter.drafts


@dataclass
class Row:
    """A prompt of the batch. choice: what is run on it;  channel: its run, None before it began
    why: what stood against it, "" if nothing did;  tokens: of the run, once it is over"""

    prompt: Prompt
    choice: Choice
    channel: Channel | None = None
    why: str = ""
    tokens: int = 0
    over: bool = False

    def record(self) -> dict[str, Any]:
        """As plain data; of a run that goes the tokens so far."""
        tokens = self.tokens if self.over or self.channel is None else _tokens(self.channel)
        status = "refused" if self.why else "" if self.channel is None else self.channel.status
        run = "" if self.channel is None else self.channel.run
        row = {"name": self.prompt.name, "kind": self.prompt.kind, "begins": self.prompt.begins, "run": run}
        return {**row, "status": status, "tokens": tokens, "why": self.why}


def row_of(play: Play, prompt: Prompt, choice: Choice, i: int) -> Row:
    """Prompt number i of a set, with the i-th seed behind the choice's; a user's turn where it is one and the target has a
    chat template, or where the choice says so."""
    seed = (choice.seed + i) % (SEEDS + 1)
    chat = choice.chat or (prompt.chat and has_chat(play, play.named(choice)))
    return Row(prompt, replace(choice, prompt=prompt.text, chat=chat, seed=seed))


class Turns:
    """Runs that are queued one after the other, each when the one before it is over."""

    def __init__(self, play: Play, rows: Sequence[Row]):
        self.id, self.play, self.rows = secrets.token_hex(8), play, [*rows]
        self.over = False
        self._halt = threading.Event()
        self._going = threading.Lock()  # whoever begins a run, or ends it

    def begin(self) -> Self:
        """Begin, in a thread that waits for each run."""
        threading.Thread(target=self._work, name="decodescope-batch", daemon=True).start()
        return self

    def stop(self) -> None:
        """End the run that goes, and begin no other; what was recorded stays."""
        self._halt.set()
        with self._going:
            for row in self.rows:
                if row.channel is not None and row.channel.going:
                    self.play.act(row.channel, "stop")

    @property
    def stopped(self) -> bool:
        """Whether somebody ended it."""
        return self._halt.is_set()

    def ended(self, row: Row) -> None:
        """Called once the run of a row is over."""

    def _work(self) -> None:
        try:
            for row in self.rows:
                if self._halt.is_set():
                    return
                self._run(row)
        finally:
            self._closed()

    def _closed(self) -> None:
        self.over = True

    def _run(self, row: Row) -> None:
        """Run one prompt, and wait for its end."""
        while row.channel is None:
            try:
                with self._going:
                    if self._halt.is_set():
                        return
                    row.channel = self.play.start(row.choice)
            except Full:  # others wait: so does this
                self._halt.wait(AGAIN)
            except Refused as error:
                row.why, row.over = str(error), True
                return
        job = self.play.job(row.channel)
        if job is not None:
            job.wait()
            row.why = job.message if job.status == "failed" else ""
        row.tokens = _tokens(row.channel)
        self.ended(row)
        row.over = True


class Batch(Turns):
    """The runs of one choice on prompts; number i has the i-th seed behind the choice's. Raises Refused for a method that
    cannot run here or that drafts nothing."""

    def __init__(self, play: Play, choice: Choice, prompts: Sequence[Prompt]):
        composed = play.compose(choice)
        if composed.why or composed.method is None:
            raise Refused(composed.why)
        if not drafts(composed.method):
            raise Refused("This method drafts nothing, so no draft can be rejected: choose one that drafts.")
        super().__init__(play, [row_of(play, prompt, choice, i) for i, prompt in enumerate(prompts)])

    def record(self) -> dict[str, Any]:
        """Where the batch stands. of: prompts;  done: those that are over;  runs: the ids of the runs that a report can be on,
        which are those with a step that did not fail"""
        over = self.over  # first: where it is, all rows are in what follows
        runs = [x.channel.run for x in self.rows if x.channel and x.channel.count and x.over and not x.why]
        rows = [row.record() for row in self.rows]
        done = sum(x.over for x in self.rows)
        tokens = sum(x["tokens"] for x in rows)
        counts = {"of": len(rows), "done": done, "tokens": tokens, "over": over, "stopped": self.stopped}
        return {"id": self.id, **counts, "rows": rows, "runs": runs}


class Batches:
    """The batches of a server, by id; of those that are over the oldest go."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Batch] = OrderedDict()

    def add(self, batch: Batch) -> Batch:
        """Remember a batch."""
        self._known[batch.id] = batch
        for old in list(self._known)[:-KEPT]:
            if self._known[old].over:
                del self._known[old]
        return batch

    def of(self, name: str) -> Batch:
        """The batch of that id. Raises Refused."""
        if name not in self._known:
            raise Refused("This batch is not here any more; its runs are in the Library.")
        return self._known[name]


def _tokens(channel: Channel) -> int:
    return sum(len(step.emitted) for step in channel.steps(0, channel.count))
