"""A lab over toy models, whose tokens read as we like."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import toys
from decodescope.app.guard import Guard
from decodescope.app.play import Choice, Play
from decodescope.app.server import app

PORT = 7860
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

    def __init__(self, texts: list[str] | None = None):
        self.texts = texts or [f" {letter}" for letter in "abcdefghijklm"]
        self.vocab = len(self.texts)

    def encode(self, text: str) -> list[int]:
        return [ord(x) % 13 for x in text]

    def piece(self, token: int) -> str:
        return self.texts[token]

    def bytes_of(self, token: int) -> bytes:
        return self.texts[token].encode("utf-8", "replace")

    def same_ids(self, other: Words) -> None:
        return None


def toy_play(folder: Path, texts: list[str] | None = None) -> Play:
    """A lab with a toy target and its draft model."""
    target, draft = toys.target(), toys.draft()
    target.tokenizer = draft.tokenizer = Words(texts)
    return Play("toy", "toy-draft", folder).put(target=target, draft=draft)


def speculative(prompt: str = "hello", max_new: int = 48, **more: Any) -> Choice:
    """A run with a small tree at temperature 1."""
    names = {"drafter": "draft_model", "sampler": ["temperature"]}
    return Choice(
        prompt, names, {"drafter": {"length": 3, "width": 2}, "temperature": {"temperature": 1.0}}, max_new=max_new, **more
    )


def finished(play: Play, **more: Any) -> Any:
    """A run that is over."""
    channel = play.start(speculative(**more))
    assert play._jobs[channel.run].wait(60)
    return channel


def guarded(play: Play, page: bool = False, **more: Any) -> Guard:
    """What the server serves, here on the port PORT."""
    return Guard(app(play, page=page), **{"port": PORT, **more})


class Slow:
    """Lets the steps of a job through one by one: `allow(n)` more may be made."""

    def __init__(self, session: Any):
        self._left = threading.Semaphore(0)
        step = session.step

        def held() -> Any:
            self._left.acquire()
            return step()

        session.step = held

    def allow(self, n: int = 1) -> None:
        self._left.release(n)
