"""A lab over toy models with readable tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import torch
import toys
from waiting import eventually

from decodescope.app.http.access import AccessSettings
from decodescope.app.http.guard import BODY, Guard
from decodescope.app.runs.record_stream import RecordStream
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.app.server import build_app
from decodescope.engine import Session
from decodescope.engine.session.load import Model

Make = Callable[[Mapping[str, Model]], Session]
PORT = 7860
HERE = f"http://127.0.0.1:{PORT}"
HOSTILE = [
    "<script>window.trap=1</script>",
    '<img src=x onerror="window.trap=1">',
    "\"'`${window.trap=1}",
    "{{window.trap=1}}",
    "</script><script>window.trap=1</script>",
    "&lt;b&gt;",
    "\u202eabc",
    " שלום",
    "\0",
    "\x1b[31m",
    "\x7f\n\t  ",
    "javascript:window.trap=1",
    "<svg onload=window.trap=1>",
]


class Words:
    """A tokenizer of 13 tokens: `texts`, or the letters a to m."""

    marks: frozenset[int] = frozenset()

    def __init__(self, texts: list[str] | None = None):
        self.texts = texts or [f" {letter}" for letter in "abcdefghijklm"]
        self.vocab = len(self.texts)
        self.has_chat = False

    def encode(self, text: str) -> list[int]:
        return [ord(x) % 13 for x in text]

    def piece(self, token: int) -> str:
        return self.texts[token]

    def bytes_of(self, token: int) -> bytes:
        return self.texts[token].encode("utf-8", "replace")

    def same_ids(self, other: Words, rows: int) -> None:
        return None


class ToyPlay(RunService):
    """A RunService for tests.

    pausing: whether a run pauses before its first step, so that a test can look at it while it runs.
    """

    pausing = False

    def _launch(
        self, names: Mapping[str, str], make: Make, visitor: str, paused: bool = False, **more: Any
    ) -> RecordStream:
        return super()._launch(names, make, visitor, paused or self.pausing, **more)

    def launch(self, names: Mapping[str, str], make: Make) -> RecordStream:
        with self._lock:
            return super()._launch(names, make, "")


def toy_play(folder: Path, texts: list[str] | None = None) -> ToyPlay:
    """A lab with a toy target and its draft model."""
    torch.set_num_threads(1)  # many threads that wait for each other are slower on such a small model
    target, draft = toys.target(), toys.draft()
    target.tokenizer = draft.tokenizer = Words(texts)
    draft.fingerprint = "1" * 16  # its weights differ
    made = ToyPlay("toy", "toy-draft", folder)
    made.models.put(target=target, draft=draft)
    return made


@contextmanager
def occupied(play: ToyPlay) -> Iterator[RecordStream]:
    """Start somebody else's run, keep the worker in one of its steps until the block ends, then stop it."""
    free, before = Event(), play.pausing
    play.pausing = True
    channel = play.start(speculative(max_new=100), "somebody else")
    play.pausing = before
    eventually(lambda: channel.status == "paused")
    play.pause_at(channel, lambda step: free.wait(60) and False)
    play.act(channel, "resume")
    eventually(lambda: channel.status == "running")
    try:
        yield channel
    finally:
        free.set()
        play.act(channel, "stop")
        assert play._jobs[channel.run].wait(60)


def speculative(prompt: str = "hello", max_new: int = 32, **more: Any) -> RunChoice:
    """The choice of a run with a small tree at temperature 1."""
    names = {"drafter": "draft_model", "sampler": ["temperature"]}
    return RunChoice(
        prompt,
        names,
        {"drafter": {"max_draft_tokens": 3, "width": 2}, "temperature": {"temperature": 1.0}},
        max_new=max_new,
        **more,
    )


def finished(play: RunService, **more: Any) -> Any:
    """Start a run and wait until it is over."""
    channel = play.start(speculative(**more))
    assert play._jobs[channel.run].wait(300)
    return channel


def guarded(play: RunService, page: bool = False, body: int = BODY, **settings: Any) -> Guard:
    """The application that the server serves, here on the port PORT; settings: who may come in."""
    return Guard(build_app(play, page=page), PORT, AccessSettings(**settings), body)
