"""RunService: start, find and stop runs. It knows nothing of the user interface."""

from __future__ import annotations

import re
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from decodescope.app.basis.limits import Limits
from decodescope.app.basis.places import Tidy
from decodescope.app.basis.refusal import Refused, sentence, told
from decodescope.engine.core.roles import TARGET

from .batch_member import Place
from .catalogue.examples import examples
from .composition import (
    MOST_NEW,
    PROMPT,
    Choice,
    Composed,
    admit_numbers,
    admit_prompt,
    admit_shadow,
    composed_title,
    method_of,
)
from .files import Files
from .lanes import further, has_roles, session_of, whole
from .memory import BYTES_A_TOKEN, Estimate, all_held, caches, short
from .model_pool import ModelPool, title
from .pending_run import Later, outline
from .prompt_reading import Given, given
from .record_stream import Channel

if TYPE_CHECKING:
    from decodescope.engine.session.load import Model
    from decodescope.engine.session.method import Method
    from decodescope.engine.session.run import LazyWriter
    from decodescope.engine.session.runner import Job, Runner, Stepped
    from decodescope.engine.session.session import Session
    from decodescope.engine.trace.records.events import End, Header, Step

    Make: TypeAlias = Callable[[Mapping[str, Model]], Session]  # of a run's models, by role, its session

REMEMBERED = 64  # runs in memory; the traces of the others stay on disk
COUNTED = 20_000  # characters of a prompt whose tokens are counted before a run
GONE = "This run is not here any more."
RUN = re.compile(r"[0-9a-f]{16}")


class Full(Refused):
    """So many runs wait that no other is queued."""


class Still(Refused):
    """A visitor's run, `run`, is still going, so that no other is begun."""

    def __init__(self, sentence: str, run: str):
        super().__init__(sentence)
        self.run = run


class RunService(ModelPool):
    """Models, worker and runs behind the page.

    folder: where traces go;  limits: what a run may take;  the other arguments are those of ModelPool
    """

    def __init__(
        self,
        target: str,
        draft: str | None,
        folder: Path,
        more: Path | None = None,
        limits: Limits | None = None,
        further: Mapping[str, str] | None = None,
    ):
        super().__init__(target, draft, more, further)
        self.folder, self.files, self.limits = folder, Files(folder / "files"), limits or Limits()
        self._runner: Runner | None = None
        self._channels: OrderedDict[str, Channel] = OrderedDict()
        self._jobs: dict[str, Job | Place] = {}
        self._own: dict[str, str] = {}  # visitor -> the run that visitor started last
        self._lock = threading.Lock()

    # ---- runs

    def compose(self, choice: Choice) -> Composed:
        """The method of a choice, and why it cannot run, if it cannot and there are models to ask."""
        from decodescope.engine.session.compatibility import fitting
        from decodescope.engine.session.method import Method

        method = None
        try:
            method = Method.named(choice.names, choice.settings)
            admit_shadow(choice, method)
            names = self.lanes(choice, method)
            self.admit(names, self.memory(choice, names, method))
            if choice.chat and (read := self.given(choice, names)) is not None and read.why:
                raise Refused(read.why)
            if trouble := next(filter(None, map(self.trouble_of, names.values())), ""):
                raise Refused(trouble)
            readers = self.readers(names)
            if len(readers) == len(names):
                fitting(method, readers.pop(TARGET), readers)
        except ValueError as error:
            return Composed(choice, method, told(error))
        return Composed(choice, method, "")

    def check(self, choice: Choice) -> str:
        """Why this combination cannot run, as a sentence; empty if it can, or if nothing is known of its models yet."""
        return self.compose(choice).why

    def named(self, choice: Choice) -> dict[str, str]:
        """Role -> key of the models of a choice: those that it names, or those that a page begins with."""
        return {role: self.key(name) or name for role, name in (choice.models or self.names).items() if name}

    def lanes(self, choice: Choice, method: Method) -> dict[str, str]:
        """Role -> key of the models that a run of this choice reads. Raises Refused where a role has none, or the method opens
        a file that was not brought here."""
        names = self.named(choice)
        self.files.admit(method.parts().values())
        has_roles(method, names)
        return {role: names[role] for role in (TARGET, *method.lanes)} | whole(
            choice, names[TARGET], self.key
        )

    def memory(
        self, choice: Choice, names: Mapping[str, str] | None = None, method: Method | None = None
    ) -> Estimate:
        """What a run of this choice takes with these models (role -> key) or its own, if it makes a method by that."""
        names, method = names or self.named(choice), method or method_of(choice)
        read = self.given(choice, names)
        about = -(-len(choice.prompt.encode("utf-8", "replace")) // BYTES_A_TOKEN)
        prompt, new = (
            about if read is None or read.why else len(read.ids),
            min(MOST_NEW, max(0, choice.max_new)),
        )
        if method is None:
            return self.estimate(names, prompt + new, all_held(prompt + new, choice.shadow is True))
        return self.estimate(
            names, *caches(method, prompt, new, choice.shadow is True or method.policy.shadowed)
        )

    def given(self, choice: Choice, names: Mapping[str, str] | None = None) -> Given | None:
        """What the target reads of the prompt of a choice; None for a long one, and where nothing is known of the target
        or its tokenizer cannot be read."""
        key = (names or self.named(choice)).get(TARGET, "")
        reader = None if self.trouble_of(key) else self.reader(key)
        if reader is None or reader.tokenizer is None or len(choice.prompt) > COUNTED:
            return None
        return given(reader, choice)

    def method(self, choice: Choice) -> Method:
        """The method that the controls describe; raises ParamError or MethodError."""
        from decodescope.engine.session.method import Method

        method = Method.named(choice.names, choice.settings)
        self.lanes(choice, method)
        return method

    def wants(self, choice: Choice) -> tuple[str, ...]:
        """The roles of further models that a choice asks for; none, where it makes no method."""
        return self.compose(choice).wants

    def admitted(self, choice: Choice, method: Method | None = None) -> Method:
        """The method of a choice that can be run; `method`, where it is made already. Raises Refused."""
        admit_prompt(choice)
        admit_numbers(choice)
        composed = self.compose(choice) if method is None else Composed(choice, method, "")
        if composed.method is None or composed.why:
            raise Refused(composed.why)
        return composed.method

    def start(self, choice: Choice, visitor: str = "", method: Method | None = None) -> Channel:
        """Queue a run; raises Refused. A visitor has one run at a time. method: the choice's, where it is made already."""
        method = self.admitted(choice, method)
        with self._lock:
            going = self._channels.get(self._own.get(visitor, "")) if visitor else None
            if going is not None and going.going:
                raise Still(f"Your run is still going (step {going.count}): stop it first.", going.run)
            return self._start(choice, visitor, method)

    def start_two(self, choice: Choice, other: Choice, visitor: str = "") -> tuple[Channel, Channel]:
        """Queue two runs, one behind the other; raises Refused, and then neither is queued."""
        second = self.compose(other)
        if second.why:
            raise Refused(f"The method to compare with: {second.why}")
        beside = visitor and visitor + "+"
        going = self._channels.get(self._own.get(beside, ""))
        if going is not None and going.going:
            raise Still(
                f"The run beside yours is still going (step {going.count}): stop it first.", going.run
            )
        first = self.start(choice, visitor)
        try:
            return first, self.start(other, beside, second.method)
        except Refused:
            self.act(first, "stop")
            raise

    def _start(self, choice: Choice, visitor: str, method: Method) -> Channel:
        names = self.lanes(choice, method)
        channel = self._launch(
            names,
            lambda models: session_of(choice, method, models),
            visitor,
            outline=lambda run: outline(run, choice, method, names, self.readers(names)),
        )
        channel.named = composed_title(method, choice.prompt)
        return channel

    def launch(self, names: Mapping[str, str], make: Make) -> Channel:
        """Queue the session that `make` makes of these models (role -> key), as nobody's own run. Raises Refused."""
        with self._lock:
            return self._launch(names, make, "")

    def _launch(
        self,
        names: Mapping[str, str],
        make: Make,
        visitor: str,
        paused: bool = False,
        outline: Callable[[str], Header] | None = None,
    ) -> Channel:
        """Queue a session: made now, where its models are loaded, else when its turn comes. outline: until then the header of
        the run of that id"""
        from decodescope.engine.session.run import LazyWriter

        try:
            self.has_disk()
            models = self.wanted(names)
            session: Stepped
            if models is not None:
                session = own = make(models)
                channel = self._channel(own.run_id)
                writer = self._watch(own, channel, names)
                if any(x.going for x in self._channels.values()):
                    writer.announce(own.outline)
            else:
                self.admit(names)

                def ended(end: End) -> None:
                    writer.withdraw()
                    channel.seal(end)

                later = Later(lambda: self._brought(names, make, channel), ended)
                channel, session = self._channel(later.run_id), later
                writer = LazyWriter(channel.path)
                if outline is not None:
                    writer.announce(outline(later.run_id))
            try:
                job = self._submit(session, paused)
            except Refused:
                writer.withdraw()
                raise
        except Refused:
            raise
        except (ValueError, OSError) as error:
            raise Refused(told(error)) from None
        channel.job, channel.models = job, dict(names)
        self._channels[job.id], self._jobs[job.id] = channel, job
        if visitor:
            self._own[visitor] = job.id
        self._forget()
        return channel

    def _channel(self, run: str) -> Channel:
        return Channel(run, self.folder / f"{run}.dstrace")

    def _brought(self, names: Mapping[str, str], make: Make, channel: Channel) -> Session:
        """The session of a run whose turn has come, once its models are loaded. Raises Refused, LoadError, MethodError."""
        channel.doing = lambda: {"phase": self.phase} if self.phase else None
        session = make(self.bring(names))
        self._watch(session, channel, names)
        return session

    def _watch(self, session: Session, channel: Channel, names: Mapping[str, str]) -> LazyWriter:
        """Let the channel and a file, whose writer is returned, have the records of the session. Raises Refused if its caches
        do not fit."""
        from decodescope.engine.session.run import LazyWriter, Tee

        channel.estimate = self.has_room(session, names).sentence
        session.threads = self.threads
        writer = LazyWriter(channel.path, overwrite=True)  # what was announced
        channel.reads(session)
        session.sink = Tee(writer, channel, Tidy(self.folder, self.limits.keep))
        return writer

    def enrolled(self, session: Session, names: Mapping[str, str], place: Place) -> Channel:
        """The channel of a session that goes in step with others on these models (role -> key). Raises Refused, OSError."""
        self.has_disk()
        with self._lock:
            channel = self._channel(session.run_id)
            self._watch(session, channel, names)
            session.threads = None  # what several share says nothing of the threads
            channel.job, channel.models = place, dict(names)
            self._channels[channel.run], self._jobs[channel.run] = channel, place
            self._forget()
        return channel

    def work(self, session: Stepped) -> Job:
        """Queue what the worker may treat as a session. Raises Refused if too many wait."""
        with self._lock:
            return self._submit(session)

    def worker(self) -> Runner:
        """Who owns the device."""
        from decodescope.engine.session.runner import Runner

        if self._runner is None:
            advice = ": ask for fewer new tokens, or start the lab with a larger --minutes"
            # forks read records
            self._runner = Runner(self.limits.queue, 60.0 * self.limits.minutes, advice, kept=False)
        return self._runner

    def _submit(self, session: Stepped, paused: bool = False) -> Job:
        from decodescope.engine.session.runner import QueueFull

        try:
            return self.worker().submit(session, paused=paused)
        except QueueFull as error:
            raise Full(f"{sentence(error).rstrip('.')}; --queue sets the limit.") from None

    def has_disk(self) -> None:
        """Make the folder of the traces. Raises Refused if its disk is nearly full, OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        free, due = shutil.disk_usage(self.folder).free >> 20, self.limits.free
        if free < due:
            raise Refused(
                f"The disk of the traces has {free} MiB left and {due} MiB must stay free: delete old traces; --free sets the "
                "limit."
            )

    def in_use(self) -> set[str]:
        """The keys of the models that runs need which are not over."""
        return {
            key for channel in self.channels().values() if channel.going for key in channel.models.values()
        }

    def let_go_of(self, key: str) -> None:
        """Nothing is to hold the model of that key any more: the runs that are over neither."""
        super().let_go_of(key)
        for run, channel in self.channels().items():
            if key in channel.models.values() and not channel.going:
                channel.settle()
                self._jobs.pop(run, None)
                if self._runner is not None:
                    self._runner.jobs.pop(run, None)

    def has_room(self, session: Session, names: Mapping[str, str]) -> Estimate:
        """What the run of these models (role -> key) will take. Raises Refused if its caches do not fit; a policy with a budget
        counts with that, or with the prompt, a codec with what it packs, and a model that looks at the prompt with that."""
        method = session.method
        prompt = session.prompt
        new = session.max_new
        wanted = self.estimate(names, *caches(method, prompt, new, session.along is True))
        if not wanted.fits:
            raise Refused(
                f"The cache of {wanted.tokens} tokens would take {short(wanted.cache)}B and {short(wanted.free or 0)}B are "
                "free: ask for fewer new tokens, or choose a cache policy that evicts."
            )
        return wanted

    def _forget(self) -> None:
        """Let go of the oldest runs that are over."""
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

    def let_go(self, run: str) -> None:
        """Forget a run that is over, so that its trace is looked for anew, also one that is still being read. Raises Refused
        while it goes."""
        with self._lock:
            channel = self._channels.get(run)
            if channel is not None and channel.going:
                raise Refused("The run is still going: stop it first.")
            if channel is not None:
                self._drop(run)

    def find(self, run: str) -> Channel | None:
        """The run of that id: one of this server, one whose trace lies in the folder, or an example. Raises Refused
        for a trace of which nothing can be shown."""
        if not RUN.fullmatch(run):
            return None
        with self._lock:
            if run in self._channels:
                return self._channels[run]
            path = next((x.path for x in examples() if x.run == run), self.folder / f"{run}.dstrace")
            if not path.is_file():
                path = path.with_name(path.name + ".partial")  # what a run left behind whose program ended
            if not path.is_file():
                return None
            try:
                channel = Channel.recorded(run, path)
            except ValueError as error:
                raise Refused(f"The trace of this run cannot be shown. {told(error)}") from None
            self._channels[run] = channel
            return channel

    def channels(self) -> dict[str, Channel]:
        """The runs in memory."""
        return dict(self._channels)  # one operation of the interpreter, so no lock is needed

    def recorded_with(self, header: Header, roles: Iterable[str] = ()) -> dict[str, str]:
        """Role -> key of the models here that a recorded run was made with: the same weights where they are loaded, else those
        of the same name. roles: further ones that are asked for, with what a page begins with. Raises Refused."""
        names = {}
        for role, recorded in {TARGET: header.model, **header.lanes}.items():
            mark, name = recorded.get("fingerprint"), str(recorded.get("name", "?"))
            key = next((key for key, x in self.present.items() if x.fingerprint == mark), None) or self.key(
                name
            )
            if key is None:
                raise Refused(
                    f"The run was made with {name[:80]} as its {title(role).lower()}, which is not offered here: start the lab "
                    "with --models and the folder that holds it."
                )
            names[role] = key
        return {role: self.names[role] for role in roles if role in self.names} | names

    def going(self) -> list[dict[str, Any]]:
        """The runs that are not over, whoever began them, the oldest first: number, state, steps, what it is called, and runs
        before it."""
        rows = []
        for channel in self.channels().values():
            if channel.job is None or not channel.going:
                continue
            rows.append({**channel.state(), "ahead": self.ahead(channel)})
        return rows

    def ahead(self, channel: Channel) -> int:
        """Runs that will be served before this one."""
        job = None if self._runner is None else self._runner.jobs.get(channel.run)
        return 0 if job is None or self._runner is None else self._runner.ahead(job)

    def job(self, channel: Channel) -> Job | Place | None:
        """What the worker has of a run; None, where it has forgotten it."""
        return self._jobs.get(channel.run)

    def act(self, channel: Channel, action: str) -> bool:
        """Stop, pause, resume or step a run; whether it could still be done."""
        job = self._jobs.get(channel.run)
        if job is None or channel.over:
            return False
        if action != "pause":
            channel.broke = None
        {"stop": job.cancel, "pause": job.pause, "resume": job.resume, "step": job.step}[action]()
        return True

    def pause_at(self, channel: Channel, until: Callable[[Step], bool] | None) -> None:
        """Pause a run behind every step of which `until` says so."""
        job = self._jobs.get(channel.run)
        if job is not None:
            job.until = until

    def close(self) -> None:
        """End every run and the worker."""
        if self._runner is not None:
            self._runner.close()
        if (
            self._loading is not None
        ):  # a thread that is cut off inside a library's import ends the process with a fault
            self._loading.join(15)


__all__ = ["GONE", "MOST_NEW", "PROMPT", "Choice", "Refused", "RunService", "further", "told"]
