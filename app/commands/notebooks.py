"""Notebooks: the course that comes with the package, copied to the reader's folder, or run for its pages in a gallery."""

from __future__ import annotations

import argparse
import asyncio
import atexit
import contextlib
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from decodescope.engine.core.extras import EXTRAS, install_command, missing_packages
from decodescope.engine.core.paths import expand_path
from decodescope.engine.core.progress import SETTING, Progress
from decodescope.engine.core.refusal import Refusal

from .shared.output import print_json

if TYPE_CHECKING:
    from nbclient import NotebookClient

    from decodescope.lab.views.chapter import Chapter

COURSE = Path(__file__).resolve().parents[2] / "notebooks"
SECONDS = 600  # seconds that one cell may take
KERNEL = "python3"
PATIENCE = 30  # seconds that a kernel may take to stop


def notebooks(args: argparse.Namespace) -> int:
    """Copy the course into a folder, which is created if it does not exist. The reader's own files are never overwritten."""
    folder = expand_path(args.folder)
    files = [*sorted(COURSE.glob("*.ipynb")), COURSE / "README.md"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        other = [
            x.name
            for x in files
            if (folder / x.name).exists() and (folder / x.name).read_bytes() != x.read_bytes()
        ]
        if other:
            also = f" and {len(other) - 1} more" if len(other) > 1 else ""
            raise Refusal(
                f"{str(folder)[:200]} holds a {other[0]} of its own{also}, so nothing was copied: name another folder, or move "
                "yours away."
            )
        for file in files:
            _copy(file, folder / file.name)
    except OSError as error:
        raise Refusal(f"{str(folder)[:200]} cannot be written: {error.strerror or error}.") from None
    names = [file.name for file in files]
    if args.json:
        print_json({"folder": str(folder), "files": names})
    else:
        gone = (
            f" (install JupyterLab first: {install_command('notebooks')})"
            if missing_packages(EXTRAS["notebooks"])
            else ""
        )
        print(f"{folder}: {len(names) - 1} notebooks. Open them with: python -m jupyterlab {folder}{gone}")
    return 0


def _copy(file: Path, to: Path) -> None:
    """Copy a file, in one piece or not at all."""
    part = to.with_name(f".{to.name}.part")
    try:
        shutil.copyfile(file, part)
        os.replace(part, to)
    finally:
        part.unlink(missing_ok=True)


def _execute(client: NotebookClient, surroundings: dict[str, str]) -> None:
    """Run a notebook to its end.
    It runs in a thread of its own, where nbclient handles no interrupt itself: our handler stops the kernel first."""
    failed: list[BaseException] = []
    loop, done = asyncio.new_event_loop(), threading.Event()

    def work() -> None:
        try:
            # what a kernel writes about itself does not belong on the page
            loop.run_until_complete(client.async_execute(env=surroundings, stderr=subprocess.DEVNULL))
        except BaseException as error:  # the interrupt belongs to the waiting thread
            failed.append(error)
        finally:
            loop.close()
            done.set()

    worker = threading.Thread(target=work, name="decodescope-notebook", daemon=True)
    try:
        worker.start()
        while not done.wait(0.2):  # an interrupted `join` takes a thread that runs for one that has ended
            pass
    except KeyboardInterrupt:
        _stop(client, loop, done)
        raise
    finally:
        atexit.unregister(client._cleanup_kernel)  # nbclient leaves it if a kernel ends early
    if failed:
        raise failed[0]


def _stop(client: NotebookClient, loop: asyncio.AbstractEventLoop, done: threading.Event) -> None:
    """End the kernel of a notebook, which then ends by itself and sets `done`."""
    asked, until = False, time.monotonic() + PATIENCE
    while not done.is_set() and time.monotonic() < until:
        kernel = client.km
        if not asked and kernel is not None and kernel.has_kernel:
            asked = True
            with contextlib.suppress(RuntimeError):  # it ended at this moment, and its loop with it
                ended: Any = kernel.shutdown_kernel(now=True)  # a coroutine of the manager that nbclient uses
                asyncio.run_coroutine_threadsafe(ended, loop)
        done.wait(0.2)


def chapters(left: dict[str, str], folder: Path = COURSE) -> list[Chapter]:
    """The notebooks of a folder as chapters, in the order of their names.
    A notebook without outputs is run first, with the kernel of this Python. One that fails is left out, and `left` gets the
    reason. Raises Refusal if there are no notebooks or no kernel."""
    import nbformat
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    from decodescope.lab.views.chapter import chapter

    paths = sorted(folder.glob("*.ipynb"))
    if not paths:
        raise Refusal(f"There are no notebooks in {folder}: leave --course out.")
    # a progress bar would stay on the page
    surroundings = {**os.environ, SETTING: "0"}
    pages = []
    with Progress("notebooks", len(paths), "notebooks") as progress, TemporaryDirectory() as place:
        for path in paths:
            book = nbformat.read(path, as_version=4)
            try:
                if not any(cell.get("outputs") for cell in book.cells):
                    resources = {"metadata": {"path": place}}
                    _execute(
                        NotebookClient(book, timeout=SECONDS, kernel_name=KERNEL, resources=resources),
                        surroundings,
                    )
                pages.append(chapter(path.stem.replace("_", "-"), book))
            except NoSuchKernel:
                raise Refusal(
                    "Jupyter has no kernel python3 here: python -m ipykernel install --user makes one."
                ) from None
            except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
                left[str(path)] = str(error).strip().splitlines()[-1][:300]
            progress.add()
    return pages
