"""RunService: start, find and stop runs. It does not depend on the user interface."""

from __future__ import annotations

import re
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from decodescope.app.basis.limits import LabLimits
from decodescope.app.basis.refusal import RequestRefusal, explain_error, sentence
from decodescope.app.basis.storage import RetentionSink
from decodescope.engine.core.roles import TARGET

from .batch_member import BatchMember
from .catalogue.examples import examples
from .catalogue.presets import FIRST_OF_FETCHED
from .composition import (
    MOST_NEW,
    PROMPT,
    Composition,
    RunChoice,
    admit_numbers,
    admit_prompt,
    admit_reference,
    method_or_none,
    pending_title,
)
from .files import UploadedFiles
from .lanes import check_roles, make_session, reference_model, without_target
from .memory import BYTES_A_TOKEN, MemoryEstimate, cache_tokens, format_count, full_cache_tokens
from .model_downloads import ModelDownloads, missing_model
from .model_pool import ModelPool, role_title
from .pending_run import PendingRun, pending_header
from .placed_key import Placement, known_devices, usual_device
from .prompt_encoding import EncodedPrompt, encode_prompt
from .record_stream import RecordStream

if TYPE_CHECKING:
    from decodescope.engine.session.load import Model
    from decodescope.engine.session.method import Method
    from decodescope.engine.session.run import LazyWriter
    from decodescope.engine.session.runner import Runner, RunnerJob, Steppable
    from decodescope.engine.session.session import Session
    from decodescope.engine.trace.records.events import End, Header, Step

    Make: TypeAlias = Callable[[Mapping[str, Model]], Session]  # a run's models, by role -> its session

REMEMBERED = 64  # runs in memory; the traces of the others stay on disk
COUNTED = 20_000  # maximum characters of a prompt to tokenize before a run
GONE = "This run is not here any more."
RUN = re.compile(r"[0-9a-f]{16}")


class RunQueueFull(RequestRefusal):
    """The queue is full: no other run is accepted."""


class RunInProgress(RequestRefusal):
    """A visitor's run, `run`, is still active, so no other is begun."""

    def __init__(self, sentence: str, run: str):
        super().__init__(sentence)
        self.run = run


class RunService:
    """Models, worker and runs behind the page.

    models: those that runs read, made from the other arguments;  downloads: of models
    folder: for traces;  limits: what a run may take
    """

    def __init__(
        self,
        target: str,
        draft: str | None,
        folder: Path,
        more: Path | None = None,
        limits: LabLimits | None = None,
        further: Mapping[str, str] | None = None,
    ):
        self.models = ModelPool(target, draft, more, further, holder=self)
        self.downloads = ModelDownloads()
        self.folder = folder
        self.files = UploadedFiles(folder / "files")
        self.limits = limits or LabLimits()
        self._runner: Runner | None = None
        self._channels: OrderedDict[str, RecordStream] = OrderedDict()
        self._jobs: dict[str, RunnerJob | BatchMember] = {}
        self._own: dict[str, str] = {}  # visitor -> the run that this visitor started last
        self._lock = threading.Lock()

    # ---- runs

    def compose(self, choice: RunChoice) -> Composition:
        """The method of a choice, and why it cannot run, if it cannot and there are models to check with."""
        from decodescope.engine.session.compatibility import OtherTokens, pair_unloaded_models
        from decodescope.engine.session.method import Method

        method = None
        try:
            method = Method.from_names(choice.names, choice.settings)
            admit_reference(choice, method)
            names = self.lanes(choice, method)
            self.models.admit(names, self.estimate_memory(choice, names, method))
            if (
                choice.source.is_templated
                and (read := self.encode_prompt(choice, names)) is not None
                and read.why
            ):
                raise RequestRefusal(read.why)
            if trouble := next(filter(None, map(self.models.trouble_of, names.values())), ""):
                raise RequestRefusal(trouble)
            readers = self.models.readers(names)
            if len(readers) == len(names):
                pair_unloaded_models(method, readers.pop(TARGET), readers)
        except ValueError as error:
            drafts = isinstance(error, OtherTokens) and method is not None and bool(method.drafter.lanes)
            return Composition(
                choice,
                method,
                explain_error(error),
                getattr(error, "offer", ""),
                f"drafter {FIRST_OF_FETCHED['drafter']}" if drafts else "",
            )
        return Composition(choice, method, "")

    def check(self, choice: RunChoice) -> str:
        """Why this combination cannot run, as a sentence; empty if it can, or if nothing is known of its models yet."""
        return self.compose(choice).why

    def model_keys(self, choice: RunChoice) -> dict[str, str]:
        """Role -> key of the models of a choice: those that it names, or those that a page begins with.
        Raises RequestRefusal for a type or device that is not here."""
        return {
            role: self.models.placed(self.models.key(name) or name, choice.place)
            for role, name in (choice.models or self.models.names).items()
            if name
        }

    def lanes(self, choice: RunChoice, method: Method) -> dict[str, str]:
        """Role -> key of the models that a run of this choice reads.
        Raises RequestRefusal if a role has none, or the method opens a file that was not uploaded here."""
        names = self.model_keys(choice)
        self.files.admit(method.parts().values())
        check_roles(method, names)
        return {role: names[role] for role in (TARGET, *method.lanes)} | reference_model(
            choice, names[TARGET], self.models.key
        )

    def estimate_memory(
        self, choice: RunChoice, names: Mapping[str, str] | None = None, method: Method | None = None
    ) -> MemoryEstimate:
        """The memory of a run of this choice with these models (role -> key) or its own, if it makes a method."""
        names, method = names or self.model_keys(choice), method or method_or_none(choice)
        read = self.encode_prompt(choice, names)
        about = -(-len(choice.prompt.encode("utf-8", "replace")) // BYTES_A_TOKEN)
        prompt = about if read is None or read.why else len(read.ids)
        new = min(MOST_NEW, max(0, choice.max_new))
        if method is None:
            return self.models.estimate(
                names, prompt + new, full_cache_tokens(prompt + new, choice.reference is True)
            )
        return self.models.estimate(
            names,
            *cache_tokens(method, prompt, new, choice.reference is True or method.policy.needs_reference),
        )

    def encode_prompt(
        self, choice: RunChoice, names: Mapping[str, str] | None = None
    ) -> EncodedPrompt | None:
        """The target's input for the prompt of a choice.
        None for a long one, if nothing is known of the target, or if its tokenizer cannot be read."""
        key = (names or self.model_keys(choice)).get(TARGET, "")
        reader = None if self.models.trouble_of(key) else self.models.reader(key)
        if reader is None or reader.tokenizer is None or len(choice.prompt) > COUNTED:
            return None
        return encode_prompt(reader, choice)

    def method(self, choice: RunChoice) -> Method:
        """The method that the controls describe; raises ParamError or MethodError."""
        from decodescope.engine.session.method import Method

        method = Method.from_names(choice.names, choice.settings)
        self.lanes(choice, method)
        return method

    def further_roles(self, choice: RunChoice) -> tuple[str, ...]:
        """The roles of further models that a choice needs; none if it makes no method."""
        return self.compose(choice).further_roles

    def admit_method(self, choice: RunChoice, method: Method | None = None) -> Method:
        """The method of a choice that can be run; `method`: if it is built already. Raises RequestRefusal."""
        admit_prompt(choice)
        admit_numbers(choice)
        composed = self.compose(choice) if method is None else Composition(choice, method, "")
        if composed.method is None or composed.why:
            raise RequestRefusal(composed.why)
        return composed.method

    def start(self, choice: RunChoice, visitor: str = "", method: Method | None = None) -> RecordStream:
        """Queue a run; raises RequestRefusal. A visitor has one run at a time. method: the choice's, if it is built already"""
        method = self.admit_method(choice, method)
        with self._lock:
            going = self._channels.get(self._own.get(visitor, "")) if visitor else None
            if going is not None and going.is_active:
                raise RunInProgress(
                    f"Your run is still going (step {going.count}): stop it first.", going.run
                )
            return self._start(choice, visitor, method)

    def start_two(
        self, choice: RunChoice, other: RunChoice, visitor: str = ""
    ) -> tuple[RecordStream, RecordStream]:
        """Queue two runs, one after the other; if it raises RequestRefusal, neither is queued."""
        second = self.compose(other)
        if second.why:
            raise RequestRefusal(f"The method to compare with: {second.why}")
        beside = visitor and visitor + "+"
        going = self._channels.get(self._own.get(beside, ""))
        if going is not None and going.is_active:
            raise RunInProgress(
                f"The run next to yours is still going (step {going.count}): stop it first.", going.run
            )
        first = self.start(choice, visitor)
        try:
            return first, self.start(other, beside, second.method)
        except RequestRefusal:
            self.act(first, "stop")
            raise

    def _start(self, choice: RunChoice, visitor: str, method: Method) -> RecordStream:
        names = self.lanes(choice, method)
        channel = self._launch(
            names,
            lambda models: make_session(choice, method, models),
            visitor,
            outline=lambda run: self._pending_header(run, choice, method, names),
        )
        channel.named = pending_title(method, choice.prompt)
        return channel

    def _pending_header(
        self, run: str, choice: RunChoice, method: Method, names: Mapping[str, str]
    ) -> Header:
        """The header of a run before its models (role -> key) are loaded."""
        place = self.models.placement(names[TARGET])
        header = pending_header(run, choice, method, names, self.models.readers(names))
        header.dtype, header.device = place.dtype or header.dtype, place.device
        return header

    def launch(self, names: Mapping[str, str], make: Make) -> RecordStream:
        """Queue the session that `make` creates from these models (role -> key), without a visitor. Raises RequestRefusal."""
        with self._lock:
            return self._launch(names, make, "")

    def _launch(
        self,
        names: Mapping[str, str],
        make: Make,
        visitor: str,
        paused: bool = False,
        outline: Callable[[str], Header] | None = None,
    ) -> RecordStream:
        """Queue a session: created now if its models are loaded, else when its turn comes.
        outline: the header of the run of that id until then"""
        from decodescope.engine.session.run import LazyWriter

        try:
            self.check_disk()
            models = self.models.acquire(names)
            session: Steppable
            if models is not None:
                session = own = make(models)
                channel = self._channel(own.run_id)
                writer = self._watch(own, channel, names)
                if any(x.is_active for x in self._channels.values()):
                    writer.announce(own.outline)
            else:
                self.models.admit(names)

                def ended(end: End) -> None:
                    writer.withdraw()
                    channel.seal(end)

                later = PendingRun(lambda: self._make_session(names, make, channel), ended)
                channel, session = self._channel(later.run_id), later
                writer = LazyWriter(channel.path)
                if outline is not None:
                    writer.announce(outline(later.run_id))
            try:
                job = self._submit(session, paused)
            except RequestRefusal:
                writer.withdraw()
                raise
        except RequestRefusal:
            raise
        except (ValueError, OSError) as error:
            raise RequestRefusal(explain_error(error)) from None
        channel.job, channel.models = job, dict(names)
        self._channels[job.id], self._jobs[job.id] = channel, job
        if visitor:
            self._own[visitor] = job.id
        self._forget()
        return channel

    def _channel(self, run: str) -> RecordStream:
        return RecordStream(run, self.folder / f"{run}.dstrace")

    def _make_session(self, names: Mapping[str, str], make: Make, channel: RecordStream) -> Session:
        """Create the session of a run after its turn has come and its models are loaded.
        Raises RequestRefusal, LoadError, MethodError."""
        channel.doing = lambda: {"phase": self.models.phase} if self.models.phase else None
        session = make(self.models.ensure_loaded(names))
        self._watch(session, channel, names)
        return session

    def _watch(self, session: Session, channel: RecordStream, names: Mapping[str, str]) -> LazyWriter:
        """Send the records of the session to the channel and to a file, and return the file's writer.
        Raises RequestRefusal if its caches do not fit."""
        from decodescope.engine.session.run import LazyWriter, Tee

        channel.estimate = self.check_memory(session, names).sentence
        session.threads = self.models.threads
        writer = LazyWriter(channel.path, overwrite=True)  # what was announced
        channel.track_prompt(session)
        session.sink = Tee(writer, channel, RetentionSink(self.folder, self.limits.keep))
        return writer

    def enroll(self, session: Session, names: Mapping[str, str], place: BatchMember) -> RecordStream:
        """The channel of a session that runs in step with others on these models (role -> key). Raises RequestRefusal,
        OSError."""
        self.check_disk()
        with self._lock:
            channel = self._channel(session.run_id)
            self._watch(session, channel, names)
            session.threads = None  # work shared by several says nothing about the threads
            channel.job, channel.models = place, dict(names)
            self._channels[channel.run], self._jobs[channel.run] = channel, place
            self._forget()
        return channel

    def queue_work(self, session: Steppable) -> RunnerJob:
        """Queue an object that the worker may treat as a session. Raises RequestRefusal if too many wait."""
        with self._lock:
            return self._submit(session)

    def worker(self) -> Runner:
        """The worker that owns the device."""
        from decodescope.engine.session.runner import Runner

        if self._runner is None:
            advice = ": ask for fewer new tokens, or start the lab with a larger --minutes"
            # forks read records
            self._runner = Runner(self.limits.queue, 60.0 * self.limits.minutes, advice, kept=False)
        return self._runner

    def _submit(self, session: Steppable, paused: bool = False) -> RunnerJob:
        from decodescope.engine.session.runner import QueueFull

        try:
            return self.worker().submit(session, paused=paused)
        except QueueFull as error:
            raise RunQueueFull(f"{sentence(error).rstrip('.')}; --queue sets the limit.") from None

    def check_disk(self) -> None:
        """Make the folder of the traces. Raises RequestRefusal if its disk is nearly full, OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        free, due = shutil.disk_usage(self.folder).free >> 20, self.limits.free
        if free < due:
            raise RequestRefusal(
                f"The disk of the traces has {free} MiB left and {due} MiB must stay free: delete old traces; --free sets the "
                "limit."
            )

    def keys_in_use(self) -> set[str]:
        """The keys of the models that unfinished runs need."""
        return {
            key
            for channel in self.channels().values()
            if channel.is_active
            for key in channel.models.values()
        }

    def release_model(self, key: str) -> None:
        """Let finished runs release the model of that key."""
        for run, channel in self.channels().items():
            if key in channel.models.values() and not channel.is_active:
                channel.release_job()
                self._jobs.pop(run, None)
                if self._runner is not None:
                    self._runner.jobs.pop(run, None)

    def check_memory(self, session: Session, names: Mapping[str, str]) -> MemoryEstimate:
        """Memory estimate for a run of these models (role -> key). Raises RequestRefusal if its caches do not fit.
        A policy with a budget counts that budget, or the prompt. KV compression counts its packed size. A model that reads
        the prompt counts the prompt."""
        method = session.method
        prompt = session.prompt
        new = session.max_new
        wanted = self.models.estimate(
            names, *cache_tokens(method, prompt, new, session.reference_kind is True)
        )
        if not wanted.fits:
            raise RequestRefusal(
                f"The cache of {wanted.tokens} tokens would take {format_count(wanted.cache)}B "
                f"and {format_count(wanted.free or 0)}B are "
                "free: ask for fewer new tokens, or choose a cache policy that evicts."
            )
        return wanted

    def _forget(self) -> None:
        """Release the oldest finished runs."""
        for run, channel in list(self._channels.items()):
            if len(self._channels) <= REMEMBERED:
                return
            if channel.over and not channel.readers:
                self._drop(run)
        self._own = {visitor: run for visitor, run in self._own.items() if run in self._channels}

    def _drop(self, run: str) -> None:
        self._channels.pop(run).close()
        if self._runner is not None and self._jobs.pop(run, None) is not None:
            self._runner.jobs.pop(run, None)

    def release_run(self, run: str) -> None:
        """Forget a finished run, so that its trace is looked up again, even if it is still being read.
        Raises RequestRefusal while the run is active."""
        with self._lock:
            channel = self._channels.get(run)
            if channel is not None and channel.is_active:
                raise RequestRefusal("The run is still going: stop it first.")
            if channel is not None:
                self._drop(run)

    def find(self, run: str) -> RecordStream | None:
        """The run with that id: from this server, from a trace in the folder, or an example.
        Raises RequestRefusal for a trace that cannot be shown."""
        if not RUN.fullmatch(run):
            return None
        with self._lock:
            if run in self._channels:
                return self._channels[run]
            path = next((x.path for x in examples() if x.run == run), self.folder / f"{run}.dstrace")
            if not path.is_file():
                path = path.with_name(path.name + ".partial")  # left behind by a run after its program ended
            if not path.is_file():
                return None
            try:
                channel = RecordStream.from_trace(run, path)
            except ValueError as error:
                raise RequestRefusal(
                    f"The trace of this run cannot be shown. {explain_error(error)}"
                ) from None
            self._channels[run] = channel
            return channel

    def channels(self) -> dict[str, RecordStream]:
        """The runs in memory."""
        return dict(self._channels)  # one operation of the interpreter, so no lock is needed

    def find_recorded_models(self, header: Header, roles: Iterable[str] = ()) -> dict[str, str]:
        """Role -> key of the models here that a recorded run was made with, in the recorded types, and on the recorded device
        if it is here. Raises RequestRefusal.
        They have the same weights if those are loaded or their folder is remembered, else the same name. roles: further
        required roles, with the models that a page begins with."""
        names = {}
        device = header.device if header.device in known_devices() else usual_device()
        for role, recorded in {TARGET: header.model, **header.lanes}.items():
            mark, name = recorded.get("fingerprint"), str(recorded.get("name", "?"))
            key = self.models.recorded_key(mark, name, Placement(header.dtype_of(role), device))
            if key is None:
                origin = f"The run was made with {name[:80]} as its {role_title(role).lower()}"
                if (missing := missing_model(name)) is not None:
                    raise RequestRefusal(
                        f"{origin}, which is not on this machine yet: get it, then try again.",
                        offer=missing.name,
                    )
                raise RequestRefusal(
                    f"{origin}, which is not offered here: start the lab with --models and the folder that holds it."
                )
            names[role] = key
        begin = {
            role: self.models.placed(self.models.names[role], Placement(device=device))
            for role in roles
            if role in self.models.names
        }
        return begin | names

    def active_runs(self) -> list[dict[str, Any]]:
        """The unfinished runs of all visitors, the oldest first: number, state, steps, title, and runs before it."""
        rows = []
        for channel in self.channels().values():
            if channel.job is None or not channel.is_active:
                continue
            rows.append({**channel.state(), "ahead": self.runs_ahead(channel)})
        return rows

    def runs_ahead(self, channel: RecordStream) -> int:
        """Runs that will be served before this one."""
        job = None if self._runner is None else self._runner.jobs.get(channel.run)
        return 0 if job is None or self._runner is None else self._runner.jobs_ahead(job)

    def job(self, channel: RecordStream) -> RunnerJob | BatchMember | None:
        """The worker's job of a run; None if the worker has forgotten it."""
        return self._jobs.get(channel.run)

    def act(self, channel: RecordStream, action: str) -> bool:
        """Stop, pause, resume or step a run; whether it could still be done."""
        job = self._jobs.get(channel.run)
        if job is None or channel.over:
            return False
        if action != "pause":
            channel.broke = None
        {"stop": job.cancel, "pause": job.pause, "resume": job.resume, "step": job.step}[action]()
        return True

    def pause_at(self, channel: RecordStream, until: Callable[[Step], bool] | None) -> None:
        """Pause a run after every step for which `until` returns true."""
        job = self._jobs.get(channel.run)
        if job is not None:
            job.until = until

    def close(self) -> None:
        """End every run and the worker."""
        if self._runner is not None:
            self._runner.close()
        self.downloads.close()
        self.models.close()


__all__ = [
    "GONE",
    "MOST_NEW",
    "PROMPT",
    "RequestRefusal",
    "RunChoice",
    "RunService",
    "explain_error",
    "without_target",
]
