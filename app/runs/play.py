"""Play: turns what the controls say into a run, and keeps the runs. No page library."""

from __future__ import annotations

import re
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decodescope.app.limits import SEEDS, Limits
from decodescope.app.places import tidy
from decodescope.app.refusal import Refused, sentence, told
from decodescope.engine.core.roles import DRAFTS, TARGET, words
from decodescope.engine.trace.parts import called
from decodescope.engine.trace.pieces import join

from .channel import Channel
from .composed import Choice, Composed
from .examples import examples
from .files import Files
from .memory import BYTES_A_TOKEN, Estimate, short
from .shelf import Shelf, title

if TYPE_CHECKING:
    from decodescope.engine.method import Method
    from decodescope.engine.runner import Job, Runner
    from decodescope.engine.session import Session
    from decodescope.engine.trace.events import Step

REMEMBERED = 64  # runs in memory; the traces of the others stay on disk
MOST_NEW = 4096  # new tokens of one run on the page
PROMPT = 1 << 20  # characters of a prompt
WORDS = 12  # tokens of a prompt that tell its run from others
COUNTED = 20_000  # characters of a prompt whose tokens are counted before a run
GONE = "This run is not here any more."
RUN = re.compile(r"[0-9a-f]{16}")


class Full(Refused):
    """So many runs wait that no other is queued."""


class Play(Shelf):
    """Models, worker and runs behind the page.

    folder: where traces go;  limits: what a run may take;  the other arguments are the Shelf's
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
        self._jobs: dict[str, Job] = {}
        self._own: dict[str, str] = {}  # visitor -> the run that visitor started last
        self._lock = threading.Lock()

    # ---- runs

    def compose(self, choice: Choice) -> Composed:
        """The method of a choice, and why it cannot run, if it cannot and there are models to ask."""
        from decodescope.engine.method import Method
        from decodescope.engine.pairing import paired

        method = None
        try:
            method = Method.named(choice.names, choice.settings)
            self._allow(method)
            if self.models:
                paired(method, self.models[TARGET], self.models)
        except ValueError as error:
            return Composed(choice, method, told(error))
        return Composed(choice, method, "")

    def check(self, choice: Choice) -> str:
        """Why this combination cannot run, as a sentence; empty if it can, or if no model is there to ask."""
        return self.compose(choice).why

    def memory(self, choice: Choice, names: Mapping[str, str] | None = None) -> Estimate:
        """What a run of this choice will take, with these models (role -> key) or the present ones."""
        return self.estimate(names or self.names, self._tokens(choice.prompt) + min(MOST_NEW, max(0, choice.max_new)))

    def _tokens(self, prompt: str) -> int:
        """Tokens of a prompt; about as many, where no model is there to count them."""
        tokenizer = self.models[TARGET].tokenizer if self.models else None
        if tokenizer is None or len(prompt) > COUNTED:
            return -(-len(prompt.encode("utf-8", "replace")) // BYTES_A_TOKEN)
        return len(tokenizer.encode(prompt))

    def method(self, choice: Choice) -> Method:
        """The method that the controls describe; raises ParamError or MethodError."""
        from decodescope.engine.method import Method

        method = Method.named(choice.names, choice.settings)
        self._allow(method)
        return method

    def _allow(self, method: Method) -> None:
        """Raise Refused for a method that opens a file which was not brought here, or that reads more models than the page
        has."""
        self.files.admit(method.parts().values())
        self._has_roles(method)

    def _has_roles(self, method: Method) -> None:
        """Raise Refused where the page has too few models for a method; without any, `Method.check` says what is needed."""
        lacking = [role for role in method.lanes if role not in self.names]
        if not lacking or method.lanes == ("draft",):
            return
        role, way = lacking[0], " ".join(words(lacking[0]))
        part = next(x for x in method.used.values() if role in x.lanes)
        if role not in DRAFTS:
            raise Refused(
                f"{part.name} needs a model in the role {role!r}: choose one under {title(role)}. (On the command line: {way}.)"
            )
        needed, there = ([x for x in names if x in DRAFTS] for names in (part.lanes, self.names))
        raise Refused(
            f"{part.name}, as set, needs {len(needed)} draft models and the page has {len(there)}: choose more under "
            f"{title(DRAFTS[0])}, or fewer in its settings. (On the command line: {way}.)"
        )

    def wants(self, choice: Choice) -> tuple[str, ...]:
        """The roles of further models that a choice asks for; none, where it makes no method."""
        return self.compose(choice).wants

    def start(self, choice: Choice, visitor: str = "", method: Method | None = None) -> Channel:
        """Queue a run; raises Refused. A visitor has one run at a time. method: the choice's, where it is made already."""
        if not choice.prompt.strip():
            raise Refused("Write a prompt first: the text that the model goes on with.")
        if len(choice.prompt) > PROMPT:
            raise Refused(f"The prompt has {len(choice.prompt)} characters and at most {PROMPT} are read: shorten it.")
        if not 1 <= choice.max_new <= MOST_NEW:
            given = "a box without a whole number" if choice.max_new == -1 else choice.max_new
            raise Refused(f"New tokens = {given}: must lie in [1, {MOST_NEW}].")
        if not 0 <= choice.seed <= SEEDS:
            given = "a box without a whole number" if choice.seed == -1 else choice.seed
            raise Refused(f"Seed = {given}: must lie in [0, {SEEDS}].")
        self._ready.wait(120)
        if not self.models:
            raise Refused(self.trouble or "The models are still being loaded; try again in a moment.")
        with self._lock:
            going = self._channels.get(self._own.get(visitor, "")) if visitor else None
            if going is not None and going.going:
                raise Refused(f"Your run is still going (step {going.count}): stop it first.")
            return self._start(choice, visitor, method)

    def start_two(self, choice: Choice, other: Choice, visitor: str = "") -> tuple[Channel, Channel]:
        """Queue two runs, one behind the other; raises Refused, and then neither is queued."""
        second = self.compose(other)
        if second.why:
            raise Refused(f"The method to compare with: {second.why}")
        beside = visitor and visitor + "+"
        going = self._channels.get(self._own.get(beside, ""))
        if going is not None and going.going:
            raise Refused(f"The run beside yours is still going (step {going.count}): stop it first.")
        first = self.start(choice, visitor)
        try:
            return first, self.start(other, beside, second.method)
        except Refused:
            self.act(first, "stop")
            raise

    def _start(self, choice: Choice, visitor: str, method: Method | None) -> Channel:
        from decodescope.engine.run import encode
        from decodescope.engine.session import Session

        target = self.models[TARGET]
        others = {role: model for role, model in self.models.items() if role != TARGET}

        def session() -> Session:
            return Session(
                target,
                method or self.method(choice),
                encode(target, choice.prompt, choice.chat and target.tokenizer is not None and target.tokenizer.has_chat),
                models=others,
                max_new_tokens=choice.max_new,
                seed=choice.seed,
            )

        return self._launch(session, visitor)

    def launch(self, make: Callable[[], Session]) -> Channel:
        """Queue the session that `make` makes, as nobody's own run. Raises Refused."""
        with self._lock:
            return self._launch(make, "")

    def _launch(self, make: Callable[[], Session], visitor: str, paused: bool = False) -> Channel:
        from decodescope.engine.run import LazyWriter, Tee

        try:
            self.has_disk()
            session = make()
            room = self.has_room(session)
            channel = Channel(session.run_id, self.folder / f"{session.run_id}.dstrace")
            writer = LazyWriter(channel.path)
            session.sink = Tee(writer, channel, _Tidy(self.folder, self.limits.keep))
            if any(x.going for x in self._channels.values()):
                writer.announce(session.outline)
            try:
                job = self._submit(session, paused)
            except Refused:
                writer.withdraw()
                raise
        except Refused:
            raise
        except (ValueError, OSError) as error:
            raise Refused(told(error)) from None
        channel.job, channel.estimate = job, room.sentence
        self._channels[job.id], self._jobs[job.id] = channel, job
        if visitor:
            self._own[visitor] = job.id
        self._forget()
        return channel

    def work(self, session: Session) -> Job:
        """Queue what the worker may treat as a session. Raises Refused if too many wait."""
        with self._lock:
            return self._submit(session)

    def _worker(self) -> Runner:
        from decodescope.engine.runner import Runner

        if self._runner is None:
            advice = ": ask for fewer new tokens, or start the lab with a larger --minutes"
            self._runner = Runner(self.limits.queue, 60.0 * self.limits.minutes, advice)
        return self._runner

    def _submit(self, session: Session, paused: bool = False) -> Job:
        from decodescope.engine.runner import QueueFull

        try:
            return self._worker().submit(session, paused=paused)
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

    def has_room(self, session: Session) -> Estimate:
        """What the run will take. Raises Refused if its caches do not fit; a policy with a budget counts with that, or with the
        prompt."""
        tokens = session.method.policy.most(session.prompt, session.max_new)
        lanes = {role: self.names[role] for role in (TARGET, *session.lanes) if role in self.names}
        wanted = self.estimate(lanes, tokens)
        if not wanted.fits:
            raise Refused(
                f"The cache of {tokens} tokens would take {short(wanted.cache)}B and {short(wanted.free or 0)}B are free: ask "
                "for fewer new tokens, or choose a cache policy that evicts."
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
        with self._lock:
            return dict(self._channels)

    def going(self) -> list[dict[str, Any]]:
        """The runs that are not over, whoever began them, the oldest first: number, state, steps, runs before it, and once its
        prompt has been read its method and how the prompt begins."""
        rows = []
        for channel in self.channels().values():
            if channel.job is None or not channel.going:
                continue
            row = {**channel.state(), "ahead": self.ahead(channel), "called": "", "text": ""}
            if channel.wire is not None:
                header = channel.wire.header
                begins = header.prompt[:WORDS].tolist()
                text = join(begins, {token: header.pieces.get(str(token), "") for token in begins})
                row |= {"called": called(header), "text": " ".join(text.split())}
            rows.append(row)
        return rows

    def ahead(self, channel: Channel) -> int:
        """Runs that will be served before this one."""
        job = self._jobs.get(channel.run)
        return self._runner.ahead(job) if self._runner is not None and job is not None else 0

    def job(self, channel: Channel) -> Job | None:
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
        if self._loading is not None:  # a thread that is cut off inside a library's import ends the process with a fault
            self._loading.join(15)


class _Tidy:
    """A sink that makes room in the folder when a run has ended."""

    def __init__(self, folder: Path, most: int):
        self.folder, self.most = folder, most

    def write(self, record: Any) -> None:
        """Nothing: only the end matters."""

    def seal(self, end: Any = None) -> None:
        """The run's file has been sealed by now."""
        tidy(self.folder, self.most << 20)


__all__ = ["GONE", "Choice", "Play", "Refused", "told"]
