"""Examination job: the draft doctor on the pair of a report, a job of the worker; its results are stored next to the traces."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from decodescope.app.basis.refusal import RequestRefusal, explain_error
from decodescope.app.runs.compare.lockstep import LockstepResult
from decodescope.app.runs.compare.measurements import Measurements, RecordFolder
from decodescope.app.runs.record_stream import RecordStream
from decodescope.app.runs.run_service import RunService
from decodescope.engine.core.progress import Progress, report_progress
from decodescope.engine.core.roles import TARGET
from decodescope.engine.trace.records.parts import method_label, part_description
from decodescope.lab.reports.trace_signatures import DraftSource, find_draft_source

if TYPE_CHECKING:
    from decodescope.engine.session.load import Model
    from decodescope.engine.session.runner import RunnerJob
    from decodescope.engine.session.session import Session
    from decodescope.engine.trace.records.events import End, EndReason, Header

PROMPTS = 8  # prompts of an examination, at most
ANSWER = 64  # tokens of an answer
WINDOW = 1024  # tokens of prompt and answer
REMEMBERED = 8  # examinations in memory
EXAMINATIONS = "examinations"  # the folder next to the traces that keeps their records
GONE = "This examination is not here any more: examine the draft again."


class _StopExamination(Exception):
    """The examination must end."""


def find_examinable(header: Header) -> DraftSource:
    """The draft model or head of a run. Raises RequestRefusal with the reason if there is nothing to examine."""
    source = find_draft_source(header)
    if source is not None:
        return source
    who = method_label(header)
    if part_description(header, "drafter").get("copies"):
        raise RequestRefusal(
            f"The drafter of {who} copies from the text: there is no draft model to examine."
        )
    raise RequestRefusal(
        f"{who} drafts without a draft model and without a trained head: there is nothing to examine."
    )


class ReportExamination:
    """Work for the runner's worker, which treats it as a session. Its only step examines the draft of some finished runs.

    The doctor reads the first PROMPTS different prompts of the runs, as the runs read them, with the models that the runs were
    made with; these are loaded if necessary. kept: where the record is stored when it is over. Raises RequestRefusal if nothing
    is to be examined, the runs are of several pairs, or a model is not offered here.
    """

    def __init__(self, play: RunService, channels: Sequence[RecordStream], kept: RecordFolder):
        headers = [x.wire.header for x in channels if x.wire is not None]
        if len(headers) < len(channels) or not headers:
            raise RequestRefusal("One of these runs has not begun: choose runs with steps.")
        self.run_id = secrets.token_hex(8)
        self.runs = [x.run for x in channels]
        self.at = time.time()
        self.halted: Callable[[], bool] | None = None
        self.end: End | None = None
        self.job: RunnerJob | None = None
        self.result: dict[str, Any] | None = None
        self._header = headers[0]
        self._source = find_examinable(self._header)
        if any(_pair_of(x) != _pair_of(self._header) for x in headers):
            raise RequestRefusal("These runs were made with several drafts: examine the runs of one of them.")
        self._prompts = {(tuple(x.prompt.tolist()), bool(x.chat)): None for x in headers}
        names = play.find_recorded_models(self._header)
        self._names = {role: key for role, key in names.items() if role in (TARGET, self._source.role)}
        play.models.admit(self._names, play.models.estimate(self._names, WINDOW))
        self._play, self._kept = play, kept
        self._doing, self._share = "", 0.0
        self._began = 0.0

    def begin(self) -> ReportExamination:
        """Queue it after the waiting runs. Raises RequestRefusal."""
        self.job = self._play.queue_work(self)
        return self

    def step(self) -> LockstepResult:
        """Examine the draft. Raises Stopped if that is not possible, or was stopped."""
        from decodescope.engine.model.forward.executor import EngineFault
        from decodescope.engine.session.session import SessionStopped

        self._began = time.perf_counter()
        try:
            self.result = self._examine()
        except _StopExamination:
            self.finish("stopped_by_user")
            raise SessionStopped from None
        except (ValueError, OSError, EngineFault) as error:
            why = str(error) if isinstance(error, EngineFault) else explain_error(error)
            self.finish("bad_input", why)
            raise SessionStopped from None
        self.finish("max_new_tokens")
        return LockstepResult()

    def _examine(self) -> dict[str, Any]:
        """The record of the examination. Raises RequestRefusal, MethodError, DoctorError, LoadError, EngineFault."""
        models = self._play.models.ensure_loaded(self._names)
        from decodescope.engine.draft_doctor.examination import examine_draft
        from decodescope.engine.draft_doctor.texts import ReadPrompt
        from decodescope.engine.session.replay.fork import check_same_weights

        source = self._source
        check_same_weights(self._header, models, [source.role] if source.role else [])
        draft: Model | str = models[source.role] if source.role else source.head
        prompts = [ReadPrompt(ids, chat) for ids, chat in [*self._prompts][:PROMPTS]]
        with report_progress(self._note_progress):
            examined = examine_draft(
                models[TARGET],
                draft,
                prompts,
                answer_tokens=ANSWER,
                window=WINDOW,
                say=self._begin_phase,
            )
        return examined.record()

    def _begin_phase(self, words: str) -> None:
        self._doing, self._share = words, 0.0
        self._look()

    def _note_progress(self, progress: Progress) -> None:
        """Note how far the present phase is. Raises _StopExamination."""
        if progress.total:
            self._share = min(1.0, progress.done / progress.total)
        self._look()

    def _look(self) -> None:
        """Raise _StopExamination if somebody has stopped it, or it computes for longer than a run may."""
        if self.halted is not None and self.halted():
            raise _StopExamination
        self._play.worker().enforce_limit(self, time.perf_counter() - self._began)
        if self.end is not None:
            raise _StopExamination

    def finish(self, reason: EndReason, message: str = "") -> End:
        """End it; a result is stored."""
        from decodescope.engine.trace.records.events import End

        if self.end is None:
            self.end = End(reason, [], 0, message)
            if self.result is not None:
                self._kept.write(self.run_id, self.record())
        return self.end

    def branch(self) -> Session:
        """Raises RuntimeError: this is not a run."""
        raise RuntimeError("an examination has no branches.")

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.end is not None or (self.job is not None and self.job.is_over)

    def stop(self) -> None:
        """End it before its next pass over a text; then it has no result."""
        if self.job is not None:
            self.job.cancel()

    def record(self) -> dict[str, Any]:
        """As plain data: doing: its phase in words;  share: of it;  prompts: those that are read, of `of` different ones;
        why: the reason why there is no result;  result: None until it is over"""
        over = self.over
        return {
            "id": self.run_id,
            "runs": self.runs,
            "at": self.at,
            "prompts": min(PROMPTS, len(self._prompts)),
            "of": len(self._prompts),
            "over": over,
            "stopped": self.end is not None and self.end.reason == "stopped_by_user",
            "why": self._reason(),
            "doing": "" if over else self._phase(),
            "share": self._share,
            "result": self.result,
        }

    def _reason(self) -> str:
        if self.end is not None and self.end.message:
            return self.end.message
        return self.job.message if self.job is not None and self.job.status == "failed" else ""

    def _phase(self) -> str:
        if self.job is None or self.job.status == "queued":
            return "waiting for the runs before it"
        return self._play.models.phase or self._doing or "beginning"


class ReportExaminations:
    """The examinations of a lab."""

    def __init__(self, play: RunService):
        self._play = play
        self._works = Measurements[ReportExamination](RecordFolder(play.folder / EXAMINATIONS), REMEMBERED)

    def start(self, channels: Sequence[RecordStream]) -> dict[str, Any]:
        """Begin to examine the draft of these runs, and return the record; while that goes, it is begun once. Raises
        RequestRefusal."""
        known = self.latest([x.run for x in channels])
        if known is not None and not known["over"]:
            return known
        work = ReportExamination(self._play, channels, self._works.kept)
        return self._works.add(work.run_id, work.begin()).record()

    def record(self, name: str) -> dict[str, Any]:
        """The examination of that id so far. Raises RequestRefusal if it is not here."""
        return self._works.require(name, GONE)

    def stop(self, name: str) -> None:
        """End the examination of that id, if it is active."""
        self._works.stop(name)

    def latest(self, runs: Sequence[str]) -> dict[str, Any] | None:
        """The newest examination of just these runs that is active or has a result."""
        same = [x for x in self._works.records() if set(x["runs"]) == set(runs)]
        return max(
            (x for x in same if not x["over"] or x["result"] is not None), key=lambda x: x["at"], default=None
        )


def _pair_of(header: Header) -> tuple[Any, ...]:
    """The marks of target and draft of a run."""
    source = find_draft_source(header)
    if source is None:
        return (header.model.get("fingerprint"),)
    heads = header.model.get("head_fingerprints") or {}
    mark = header.lanes[source.role].get("fingerprint") if source.role else heads.get(source.head)
    return header.model.get("fingerprint"), source, mark
