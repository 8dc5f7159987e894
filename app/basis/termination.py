"""Termination: the signal by which systems end a program works like an interrupt from the keyboard: nothing is lost."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

NOBODY = (signal.SIG_IGN, signal.SIG_DFL, None)


@contextlib.contextmanager
def terminate_like_interrupt() -> Iterator[list[int]]:
    """While this is open, SIGTERM does what SIGINT does at that moment: a run ends after its step and keeps what was decoded.

    The list holds the signals that came. Where nobody waits for SIGINT, as in the background of a shell, KeyboardInterrupt is
    raised.
    """
    seen: list[int] = []

    def heard(number: int, frame: object) -> None:
        seen.append(number)
        if signal.getsignal(signal.SIGINT) in NOBODY:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    try:
        before = signal.signal(signal.SIGTERM, heard)
    except ValueError:  # not the main thread, which alone gets signals
        yield seen
        return
    try:
        yield seen
    finally:
        signal.signal(signal.SIGTERM, before)
