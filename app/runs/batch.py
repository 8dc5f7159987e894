"""Batch: one method on a set of prompts, a recorded run each. They are queued one at a time, so that the runs of others come
between them, and what was recorded stays when the batch is stopped."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from decodescope.app.limits import SEEDS
from decodescope.app.refusal import Refused
from decodescope.engine.trace.parts import called

from .aside import has_chat
from .channel import Channel
from .composed import Choice, admit_numbers
from .kept import Kept, Works
from .play import Full, Play
from .prompts import Prompt

if TYPE_CHECKING:
    from decodescope.engine.method import Method

MOST = 128  # prompts of a batch, and runs of one report
REMEMBERED = 16  # batches in memory
GONE = "This batch is not here any more; its runs are in the Library."
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
    """Runs that are queued one after the other, each when the one before it is over; the record is kept with every one."""

    def __init__(self, play: Play, rows: Sequence[Row], kept: Kept):
        self.id, self.play, self.rows, self.kept = secrets.token_hex(8), play, [*rows], kept
        self.over = False
        self._halt = threading.Event()
        self._going = threading.Lock()  # whoever begins a run, or ends it

    def record(self) -> dict[str, Any]:
        """What came out so far, as plain data."""
        raise NotImplementedError

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
                self._keep()
        finally:
            self.over = True
            self._keep()

    def _keep(self) -> None:
        """Keep the record, once a run is over."""
        if any(row.over for row in self.rows):
            with contextlib.suppress(OSError):  # a disk that is full: it is still told from memory
                self.kept.write(self.id, self.record())

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
    """The runs of one choice on prompts; number i has the i-th seed behind the choice's. Raises Refused for numbers out of
    range, and for a method that cannot run here or that drafts nothing."""

    def __init__(self, play: Play, choice: Choice, prompts: Sequence[Prompt], kept: Kept):
        admit_numbers(choice)
        composed = play.compose(choice)
        if composed.why or composed.method is None:
            raise Refused(composed.why)
        if not drafts(composed.method):
            raise Refused("This method drafts nothing, so no draft can be rejected: choose one that drafts.")
        self.at = time.time()
        super().__init__(play, [row_of(play, prompt, choice, i) for i, prompt in enumerate(prompts)], kept)

    def record(self) -> dict[str, Any]:
        """Where the batch stands. of: prompts;  done: those that are over;  runs: the ids of the runs that a report can be on,
        which are those with a step that did not fail;  called: its method, once a run has begun;  at: when it began, s"""
        over = self.over  # first: where it is, all rows are in what follows
        runs = [x.channel.run for x in self.rows if x.channel and x.channel.count and x.over and not x.why]
        rows = [row.record() for row in self.rows]
        done = sum(x.over for x in self.rows)
        tokens = sum(x["tokens"] for x in rows)
        counts = {"of": len(rows), "done": done, "tokens": tokens, "over": over, "stopped": self.stopped}
        begun = (x.channel.wire.header for x in self.rows if x.channel is not None and x.channel.wire is not None)
        name = next((called(header) for header in begun), "")
        return {"id": self.id, "called": name, "at": self.at, **counts, "rows": rows, "runs": runs}


class Batches:
    """The batches of a lab."""

    def __init__(self, play: Play):
        self._play, self._works = play, Works[Batch](Kept(play.folder / "batches"), REMEMBERED)

    def start(self, choice: Choice, prompts: Sequence[Prompt]) -> Batch:
        """Begin a batch. Raises Refused."""
        batch = Batch(self._play, choice, prompts, self._works.kept)
        return self._works.add(batch.id, batch.begin())

    def record(self, name: str) -> dict[str, Any]:
        """Where the batch of that id stands. Raises Refused where it is not here."""
        return self._works.needed(name, GONE)

    def stop(self, name: str) -> None:
        """End the batch of that id, where it goes on."""
        self._works.stop(name)

    def listed(self) -> list[dict[str, Any]]:
        """All batches, the newest first, without their rows, but how the first of them begins."""
        return [
            {**{key: value for key, value in record.items() if key != "rows"}, "begins": record["rows"][0]["begins"]}
            for record in sorted(self._works.records(), key=lambda x: -x["at"])
        ]


def _tokens(channel: Channel) -> int:
    return sum(len(step.emitted) for step in channel.steps(0, channel.count))
