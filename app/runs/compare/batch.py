"""Batch: one method on a set of prompts, a recorded run each.

The runs are queued one at a time, or several in step, so that other runs come between them. Recorded runs stay when the
batch is stopped."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from decodescope.app.basis.limits import SEEDS
from decodescope.app.basis.refusal import RequestRefusal
from decodescope.engine.trace.records.parts import method_label
from decodescope.lab.formatting.prompt_sentences import prompt_sentences

from ..composition import RunChoice, admit_numbers
from ..prompts import PromptEntry
from ..record_stream import RecordStream
from ..run_service import RunQueueFull, RunService
from .lockstep import Lockstep
from .measurements import Measurements, RecordFolder
from .settings_diff import has_chat_template

if TYPE_CHECKING:
    from decodescope.engine.session.method import Method
    from decodescope.engine.session.runner import RunnerJob

MOST = 128  # prompts of a batch, and runs of one report
ABREAST = 32  # runs that go in step, at most
REMEMBERED = 16  # batches in memory
GONE = "This batch is not here any more; its runs are in the Library."
BATCHES = "batches"  # the folder next to the traces that keeps their records
AGAIN = 0.25  # seconds until the next attempt to enter a full queue


def uses_drafter(method: Method) -> bool:
    """Whether the method drafts at all: only then a draft can be rejected."""
    return "drafter" in method.strategy.uses and method.drafter.drafts


@dataclass
class BatchRow:
    """A prompt of the batch. choice: the settings of its run;  channel: its run, None before it began
    why: the reason against it, "" if there is none;  tokens: of the run, once it is over"""

    prompt: PromptEntry
    choice: RunChoice
    channel: RecordStream | None = None
    why: str = ""
    tokens: int = 0
    over: bool = False

    def record(self) -> dict[str, Any]:
        """As plain data; for an active run the tokens so far."""
        tokens = self.tokens if self.over or self.channel is None else _count_tokens(self.channel)
        if self.why:
            status = "refused"
        elif self.channel is None:
            status = ""
        else:
            status = self.channel.status
        run = "" if self.channel is None else self.channel.run
        prompt = {"name": self.prompt.name, "kind": self.prompt.kind, "begins": self.prompt.beginning}
        row = {**prompt, "later": self.prompt.later, "run": run}
        return {**row, "status": status, "tokens": tokens, "why": self.why}


def make_row(play: RunService, prompt: PromptEntry, choice: RunChoice, i: int) -> BatchRow:
    """Prompt number i of a set, with the i-th seed after the choice's.
    It is a user's turn if the prompt is one and the target has a chat template, or if the choice says so."""
    seed = (choice.seed + i) % (SEEDS + 1)
    chat = choice.chat or (prompt.chat and has_chat_template(play, play.model_keys(choice)))
    kind = prompt.prompt_kind
    asked = replace(choice, prompt=prompt.text, prompt_kind=kind, chat=chat and kind == "text", seed=seed)
    return BatchRow(prompt, asked)


class SequentialRuns:
    """Runs queued one after another, each when the one before it is over; the record is stored after each."""

    def __init__(self, play: RunService, rows: Sequence[BatchRow], kept: RecordFolder):
        self.id = secrets.token_hex(8)
        self.play = play
        self.rows = [*rows]
        self.kept = kept
        self.over = False
        self._halt = threading.Event()
        self._going = threading.Lock()  # held by whoever begins or ends a run

    def record(self) -> dict[str, Any]:
        """The results so far, as plain data."""
        raise NotImplementedError

    @property
    def prompt_sentences(self) -> list[str]:
        """Sentences on how the prompts are put to the model, and which of their turns are not."""
        rows = {id(x.prompt): x for x in self.rows}.values()  # a set has a row per prompt and method
        return prompt_sentences(
            sum(x.choice.source.is_templated for x in rows), [x.prompt.later for x in rows]
        )

    def begin(self) -> Self:
        """Begin, in a thread that waits for each run."""
        threading.Thread(target=self._work, name="decodescope-batch", daemon=True).start()
        return self

    def stop(self) -> None:
        """End the active run and begin no other; recorded runs stay."""
        self._halt.set()
        with self._going:
            for row in self.rows:
                if row.channel is not None and row.channel.is_active:
                    self.play.act(row.channel, "stop")

    @property
    def is_stopped(self) -> bool:
        """Whether somebody ended it."""
        return self._halt.is_set()

    def on_run_end(self, row: BatchRow) -> None:
        """Called once the run of a row is over."""

    def _work(self) -> None:
        try:
            self.run_all()
        finally:
            self.over = True
            self._keep()

    def run_all(self) -> None:
        """Run all, one after another, until they are stopped."""
        for row in self.rows:
            if self._halt.is_set():
                return
            self._run(row)
            self._keep()

    def _keep(self) -> None:
        """Store the record, once a run is over."""
        if any(row.over for row in self.rows):
            with contextlib.suppress(OSError):  # the disk is full: the record is still served from memory
                self.kept.write(self.id, self.record())

    def _queue(self, start: Callable[[], None]) -> None:
        """Start something once there is room in the queue; do nothing if it was stopped before. Raises RequestRefusal."""
        while not self._halt.is_set():
            try:
                with self._going:
                    return None if self._halt.is_set() else start()
            except RunQueueFull:  # others wait, so this waits too
                self._halt.wait(AGAIN)
        return None

    def _run(self, row: BatchRow) -> None:
        """Run one prompt, and wait for its end."""

        def start() -> None:
            row.channel = self.play.start(row.choice)

        try:
            self._queue(start)
        except RequestRefusal as error:
            row.why, row.over = str(error), True
        if row.channel is None:
            return
        job = self.play.job(row.channel)
        if job is not None:
            job.wait()
            row.why = job.message if job.status == "failed" else ""
        row.tokens = _count_tokens(row.channel)
        self.on_run_end(row)
        row.over = True


class PromptBatch(SequentialRuns):
    """The runs of one choice on prompts, at most `most` in step; number i has the i-th seed after the choice's.
    Raises RequestRefusal for numbers out of range, and for a method that cannot run here or that drafts nothing."""

    def __init__(
        self,
        play: RunService,
        choice: RunChoice,
        prompts: Sequence[PromptEntry],
        kept: RecordFolder,
        most: int = 1,
    ):
        if not 1 <= most <= ABREAST:
            raise RequestRefusal(f"Prompts at a time = {most}: must lie in [1, {ABREAST}].")
        admit_numbers(choice)
        composed = play.compose(choice)
        if composed.why or composed.method is None:
            raise RequestRefusal(composed.why)
        if not uses_drafter(composed.method):
            raise RequestRefusal(
                "This method drafts nothing, so no draft can be rejected: choose one that drafts."
            )
        self.at, self.most = time.time(), most
        self._names = play.lanes(choice, composed.method)
        self._job: RunnerJob | None = None  # of the runs that go in step
        super().__init__(play, [make_row(play, prompt, choice, i) for i, prompt in enumerate(prompts)], kept)

    def stop(self) -> None:
        """End the active runs and begin no other; recorded runs stay."""
        super().stop()
        if self._job is not None:
            self._job.cancel()

    def run_all(self) -> None:
        """Run all; several in step are grouped like the sets of a report on the command line."""
        if self.most == 1:
            return super().run_all()
        from decodescope.engine.session.batch.owner_sessions import session_sets

        for some in session_sets(len(self.rows), self.most):
            rows = [self.rows[i] for i in some]
            while left := [x for x in rows if not x.over]:  # if other runs came between, not all have begun
                job = self._run_together(left)
                if job is None or job.status == "cancelled":
                    return None
        return None

    def _run_together(self, rows: Sequence[BatchRow]) -> RunnerJob | None:
        """Run prompts in step, and wait until none of them is active; returns their job, None if it was stopped."""

        def start() -> None:
            self._job = self.play.queue_work(
                Lockstep(self.play, self._names, rows, self.most, self._finish_row)
            )

        self._job = None
        self._queue(start)
        if self._job is None:
            return None
        job: RunnerJob = self._job
        job.wait()
        for row in [x for x in rows if not x.over] if job.status == "failed" else ():
            self._finish_row(row, job.message)
        return job

    def _finish_row(self, row: BatchRow, why: str) -> None:
        """The run of a row is over, or was refused."""
        row.why, row.tokens = why, 0 if row.channel is None else _count_tokens(row.channel)
        self.on_run_end(row)
        row.over = True
        self._keep()

    @property
    def wait_reason(self) -> str:
        """What the runs in step wait for, before the first of them began; "" if they wait for nothing."""
        if (
            self._job is None
            or self._job.is_over
            or any(x.channel is not None and x.channel.is_active for x in self.rows)
        ):
            return ""
        return "queued" if self._job.status == "queued" else self.play.models.phase

    def record(self) -> dict[str, Any]:
        """The progress of the batch.
        of: prompts;  done: those that are over;  runs: the ids of the runs that a report can cover: those with a step that did
        not fail;  called: its method, once a run has begun;  at: when it began, s;
        most: runs that go in step;  doing: what they wait for;  asked: sentences on how the prompts were put"""
        over = self.over  # read first: if it is true, all rows are in what follows
        runs = [x.channel.run for x in self.rows if x.channel and x.channel.count and x.over and not x.why]
        rows = [row.record() for row in self.rows]
        done = sum(x.over for x in self.rows)
        tokens = sum(x["tokens"] for x in rows)
        counts = {"of": len(rows), "done": done, "tokens": tokens, "over": over, "stopped": self.is_stopped}
        begun = (
            x.channel.wire.header for x in self.rows if x.channel is not None and x.channel.wire is not None
        )
        name = next((method_label(header) for header in begun), "")
        step = {"most": self.most, "doing": self.wait_reason, "asked": self.prompt_sentences}
        return {"id": self.id, "called": name, "at": self.at, **counts, **step, "rows": rows, "runs": runs}


def later_turns(folder: Path, runs: Sequence[str]) -> list[int]:
    """For each of these runs, the number of further turns in its prompt that were not asked.
    Read from the batches kept next to the traces in `folder`; 0 for a run that belongs to no batch."""
    kept = RecordFolder(folder / BATCHES)
    rows = [row for name in kept.names() for row in (kept.read(name) or {}).get("rows", ())]
    later = {row["run"]: row.get("later", 0) for row in rows}  # records before there were turns have no count
    return [later.get(run, 0) for run in runs]


class PromptBatches:
    """The batches of a lab."""

    def __init__(self, play: RunService):
        self._play = play
        self._works = Measurements[PromptBatch](RecordFolder(play.folder / BATCHES), REMEMBERED)

    def start(self, choice: RunChoice, prompts: Sequence[PromptEntry], most: int = 1) -> PromptBatch:
        """Begin a batch, at most `most` prompts at a time. Raises RequestRefusal."""
        batch = PromptBatch(self._play, choice, prompts, self._works.kept, most)
        return self._works.add(batch.id, batch.begin())

    def record(self, name: str) -> dict[str, Any]:
        """The progress of the batch with that id. Raises RequestRefusal if it is not here."""
        return self._works.require(name, GONE)

    def stop(self, name: str) -> None:
        """End the batch of that id, if it is active."""
        self._works.stop(name)

    def summaries(self) -> list[dict[str, Any]]:
        """All batches, the newest first, without their rows, but with the beginning of the first prompt."""
        return [
            {
                **{key: value for key, value in record.items() if key != "rows"},
                "begins": record["rows"][0]["begins"],
            }
            for record in sorted(self._works.records(), key=lambda x: -x["at"])
        ]


def _count_tokens(channel: RecordStream) -> int:
    return sum(len(step.emitted) for step in channel.steps(0, channel.count))
