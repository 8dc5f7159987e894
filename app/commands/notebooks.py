"""Notebooks: the course that comes with the package, copied to a folder of the reader's, or run for its pages in a gallery."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from decodescope.engine.core.paths import expanded
from decodescope.engine.core.progress import SETTING, Progress
from decodescope.engine.core.refusal import Refusal

from .output import say_json

if TYPE_CHECKING:
    from decodescope.lab.views.chapter import Chapter

COURSE = Path(__file__).resolve().parents[2] / "notebooks"
SECONDS = 600  # that one cell may take
KERNEL = "python3"


def notebooks(args: argparse.Namespace) -> int:
    """Copy the course into a folder, which is made if it is not there. What the reader wrote there is never written over."""
    folder = expanded(args.folder)
    files = [*sorted(COURSE.glob("*.ipynb")), COURSE / "README.md"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        other = [x.name for x in files if (folder / x.name).exists() and (folder / x.name).read_bytes() != x.read_bytes()]
        if other:
            also = f" and {len(other) - 1} more" if len(other) > 1 else ""
            raise Refusal(
                f"{str(folder)[:200]} holds a {other[0]} of its own{also}, so nothing was copied: name another folder, or move "
                "yours away."
            )
        for file in files:
            shutil.copyfile(file, folder / file.name)
    except OSError as error:
        raise Refusal(f"{str(folder)[:200]} cannot be written: {error.strerror or error}.") from None
    names = [file.name for file in files]
    if args.json:
        say_json({"folder": str(folder), "files": names})
    else:
        print(f"{folder}: {len(names) - 1} notebooks. Open them with: python -m jupyterlab {folder}")
    return 0


def chapters(left: dict[str, str], folder: Path = COURSE) -> list[Chapter]:
    """The notebooks of a folder as chapters, in the order of their names; one that has no outputs is run first, with the kernel
    of this Python. One that fails is left out, and `left` takes in why. Raises Refusal where there are none, or no kernel."""
    import nbformat
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    from decodescope.lab.views.chapter import chapter

    paths = sorted(folder.glob("*.ipynb"))
    if not paths:
        raise Refusal(f"There are no notebooks in {folder}: leave --course out.")
    # a bar of progress would stay on the page
    surroundings = {**os.environ, SETTING: "0"}
    pages = []
    with Progress("notebooks", len(paths), "notebooks") as progress, TemporaryDirectory() as place:
        for path in paths:
            book = nbformat.read(path, as_version=4)
            try:
                if not any(cell.get("outputs") for cell in book.cells):
                    resources = {"metadata": {"path": place}}
                    NotebookClient(book, timeout=SECONDS, kernel_name=KERNEL, resources=resources).execute(env=surroundings)
                pages.append(chapter(path.stem.replace("_", "-"), book))
            except NoSuchKernel:
                raise Refusal("Jupyter has no kernel python3 here: python -m ipykernel install --user makes one.") from None
            except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
                left[str(path)] = str(error).strip().splitlines()[-1][:300]
            progress.add()
    return pages
