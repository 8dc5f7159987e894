"""How many processors a command's passes share out their work to."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decodescope.engine.decoding.shared.thread_count import ThreadCount
    from decodescope.engine.session.load import Model


def choose_threads(args: argparse.Namespace, model: Model) -> ThreadCount:
    """The threads of a command that decodes with a model it has loaded, which torch has from here on: as many as --threads or
    the environment says, else as many as are best for it by timing."""
    from decodescope.engine.decoding.shared.thread_count import ThreadCount

    threads = ThreadCount(args.threads)
    threads.choose(model.decoder)
    return threads


@contextmanager
def restore_threads() -> Iterator[None]:
    """In the end torch has the number of threads that it had, where this process has used it before."""
    torch = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    try:
        yield
    finally:
        if torch is not None and before != torch.get_num_threads():
            torch.set_num_threads(before)
