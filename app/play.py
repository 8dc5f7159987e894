"""Play: loads the models, turns what the controls say into a run, and keeps the runs. No page library."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .events import Channel
from .refusal import is_refusal, sentence

if TYPE_CHECKING:
    from ..engine.load import Model
    from ..engine.method import Method
    from ..engine.runner import Job, Runner

LONGEST_S = 600.0  # of one run's computing
FREE = 1 << 30  # bytes that must be left on the disk before a run begins
REMEMBERED = 64  # runs in memory; the traces of the others stay on disk
MOST_NEW = 4096  # new tokens of one run on the page
PROMPT = 1 << 20  # characters of a prompt
RUN = re.compile(r"[0-9a-f]{16}")


class Refused(ValueError):
    """A run that will not be started. The message is one sentence for the page."""


@dataclass
class Choice:
    """What the controls say. names: kind -> component ("sampler": a list, in order); settings: as Method.named takes."""

    prompt: str
    names: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seed: int = 0
    max_new: int = 64


class Play:
    """Models, worker and runs behind the page.

    target, draft: names or folders of the models; `load` reads them in the background
    folder: where traces go
    """

    def __init__(self, target: str, draft: str | None, folder: Path):
        self.names = {"target": target, **({"draft": draft} if draft else {})}
        self.folder = folder
        self.models: dict[str, Model] = {}
        self.trouble = ""
        self._phase, self._since = "", time.monotonic()
        self._ready = threading.Event()
        self._loading: threading.Thread | None = None
        self._runner: Runner | None = None
        self._channels: OrderedDict[str, Channel] = OrderedDict()
        self._jobs: dict[str, Job] = {}
        self._own: dict[str, str] = {}  # visitor -> the run that visitor started last
        self._lock = threading.Lock()

    # ---- models

    def load(self) -> None:
        """Begin to read the models, in the background."""
        self._loading = threading.Thread(target=self._load, name="decodescope-load", daemon=True)
        self._loading.start()

    def put(self, **models: Model) -> Play:
        """Take models that are loaded already."""
        self.models = dict(models)
        self._ready.set()
        return self

    def _load(self) -> None:
        try:
            self._phase, self._since = "starting the engine", time.monotonic()
            from ..engine.load import load

            found = {}
            for role, name in self.names.items():
                self._phase, self._since = f"loading {role} {Path(name).name}", time.monotonic()
                found[role] = load(name)
            self.models = found
        except Exception as error:  # whatever it is, the page says it
            self.trouble = told(error)
        finally:
            self._phase = ""
            self._ready.set()

    def state(self) -> dict[str, Any]:
        """What of the models is there: phase and seconds while loading, then their shapes."""
        made: dict[str, Any] = {"ready": bool(self.models), "error": self.trouble}
        if self._phase:
            made |= {"phase": self._phase, "seconds": round(time.monotonic() - self._since, 1)}
        made["models"] = [
            {"role": role, "name": model.name, "params": model.spec.params, "context": model.spec.max_positions}
            for role, model in self.models.items()
        ]
        return made

    # ---- runs

    def check(self, choice: Choice) -> str:
        """Why this combination cannot run, as a sentence; empty if it can, or if no model is there to ask."""
        try:
            method = self.method(choice)
            if self.models:
                method.check(self.models["target"].spec, self.models.keys() - {"target"})
        except ValueError as error:
            return told(error)
        return ""

    def method(self, choice: Choice) -> Method:
        """The method that the controls describe; raises ParamError or MethodError."""
        from ..engine.method import Method

        return Method.named(choice.names, choice.settings)

    def start(self, choice: Choice, visitor: str = "") -> Channel:
        """Queue a run; raises Refused. A visitor has one run at a time."""
        if not choice.prompt.strip():
            raise Refused("Write a prompt first: the text that the model goes on with.")
        if len(choice.prompt) > PROMPT:
            raise Refused(f"The prompt has {len(choice.prompt)} characters; at most {PROMPT} are read.")
        if not 1 <= choice.max_new <= MOST_NEW:
            raise Refused(f"New tokens = {choice.max_new}: must lie in [1, {MOST_NEW}].")
        self._ready.wait(120)
        if not self.models:
            raise Refused(self.trouble or "The models are still being loaded; try again in a moment.")
        with self._lock:
            going = self._channels.get(self._own.get(visitor, "")) if visitor else None
            if going is not None and not going.over:
                raise Refused(f"Your run is still going (step {going.count}): stop it first.")
            return self._start(choice, visitor)

    def _start(self, choice: Choice, visitor: str) -> Channel:
        from ..engine.run import LazyWriter, Tee, encode
        from ..engine.runner import QueueFull, Runner
        from ..engine.session import Session

        target = self.models["target"]
        others = {role: model for role, model in self.models.items() if role != "target"}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self.folder).free
            if free < FREE:
                raise Refused(f"The disk has {free >> 20} MiB left and a run needs {FREE >> 20} MiB: delete old traces first.")
            session = Session(
                target,
                self.method(choice),
                encode(target, choice.prompt),
                models=others,
                max_new_tokens=choice.max_new,
                seed=choice.seed,
            )
            if self._runner is None:
                self._runner = Runner(longest_s=LONGEST_S)
            channel = Channel(session.run_id, self.folder / f"{session.run_id}.dstrace")
            session.sink = Tee(LazyWriter(channel.path), channel)
            job = self._runner.submit(session)
        except Refused:
            raise
        except QueueFull as error:
            raise Refused(sentence(error)) from None
        except (ValueError, OSError) as error:
            raise Refused(told(error)) from None
        channel.job = job
        self._channels[job.id], self._jobs[job.id] = channel, job
        if visitor:
            self._own[visitor] = job.id
        self._forget()
        return channel

    def _forget(self) -> None:
        """Let go of the oldest runs that are over."""
        for run, channel in list(self._channels.items()):
            if len(self._channels) <= REMEMBERED:
                return
            if channel.over and not channel.readers:
                del self._channels[run]
                if self._runner is not None and self._jobs.pop(run, None) is not None:
                    self._runner.jobs.pop(run, None)
        self._own = {visitor: run for visitor, run in self._own.items() if run in self._channels}

    def find(self, run: str) -> Channel | None:
        """The run of that id: one of this server, or one whose sealed trace lies in the folder."""
        if not RUN.fullmatch(run):
            return None
        with self._lock:
            if run in self._channels:
                return self._channels[run]
            path = self.folder / f"{run}.dstrace"
            if not path.is_file():
                return None
            try:
                channel = Channel.recorded(run, path)
            except ValueError:
                return None
            self._channels[run] = channel
            return channel

    def ahead(self, channel: Channel) -> int:
        """Runs that will be served before this one."""
        job = self._jobs.get(channel.run)
        return self._runner.ahead(job) if self._runner is not None and job is not None else 0

    def act(self, channel: Channel, action: str) -> bool:
        """Stop, pause, resume or step a run; whether it could still be done."""
        job = self._jobs.get(channel.run)
        if job is None or channel.over:
            return False
        {"stop": job.cancel, "pause": job.pause, "resume": job.resume, "step": job.step}[action]()
        return True

    def close(self) -> None:
        """End every run and the worker."""
        if self._runner is not None:
            self._runner.close()
        if self._loading is not None:  # a thread that is cut off inside a library's import ends the process with a fault
            self._loading.join(15)


def told(error: BaseException) -> str:
    """What the page says of an error: its own sentence if it is meant for people, else that something went wrong."""
    if isinstance(error, OSError):
        return f"The file system refused: {error.strerror or type(error).__name__}."
    if isinstance(error, Exception) and is_refusal(error):
        return sentence(error)
    return f"This did not work ({type(error).__name__})."
