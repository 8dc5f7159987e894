"""Threads: the number of processors that share the work of a command's passes, and what passes cost with them."""

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
    """Set torch's threads for a command that decodes with a model it has loaded.
    The number is given by --threads or the environment; else it is the fastest by timing."""
    from decodescope.engine.decoding.shared.thread_count import ThreadCount

    threads = ThreadCount(args.threads)
    threads.choose(model.decoder)
    return threads


def measure_passes(*models: Model) -> None:
    """Measure what passes of loaded models cost by their rows, if that was not done before: 0.3 s for a small model.

    Runs and reports read it later (`engine/cost/pass_curve.py`). A model whose passes could not be measured runs all the same,
    and has a remark that says why.
    """
    from decodescope.engine.decoding.shared.verify_cost import measure_curve
    from decodescope.engine.model.forward.executor import EngineFault

    for model in models:
        try:
            measure_curve(model.decoder)
        except (EngineFault, OSError, RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            model.remarks.append(f"What its passes cost here could not be measured: {reason}")


@contextmanager
def restore_threads() -> Iterator[None]:
    """Restore torch's number of threads at the end, if this process has used torch before."""
    torch = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    try:
        yield
    finally:
        if torch is not None and before != torch.get_num_threads():
            torch.set_num_threads(before)
