"""The course is copied into the reader's folder, and the reader's own files are never overwritten."""

from __future__ import annotations

import _thread
import asyncio
import json
import threading
from pathlib import Path

import pytest

from decodescope.app.cli import main
from decodescope.app.commands import notebooks
from decodescope.app.commands.notebooks import COURSE

BAD_INPUT = 2


def test_the_course_is_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my" / "course"
    assert main(["notebooks", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    names = {path.name for path in folder.iterdir()}
    assert names == set(told["files"]) == {path.name for path in COURSE.glob("*.ipynb")} | {"README.md"}
    assert all((folder / name).read_bytes() == (COURSE / name).read_bytes() for name in names)
    assert main(["notebooks", str(folder)]) == 0, "what is there already is the same"
    assert "jupyterlab" in capsys.readouterr().out


def test_what_the_reader_wrote_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "03_trees.ipynb"
    mine.write_text("my answers")
    assert main(["notebooks", str(tmp_path)]) == BAD_INPUT
    assert mine.read_text() == "my answers" and [*tmp_path.iterdir()] == [mine]
    assert "03_trees.ipynb of its own" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["notebooks", str(tmp_path / "file" / "course")]) == BAD_INPUT
    assert "cannot be written" in capsys.readouterr().err


class Running:
    """A notebook client whose notebook runs until its kernel is shut down."""

    def __init__(self) -> None:
        self.km, self.has_kernel, self.ended = self, True, asyncio.Event()

    async def async_execute(self, **_: object) -> None:
        _thread.interrupt_main()
        await self.ended.wait()
        raise RuntimeError("the kernel died")

    async def shutdown_kernel(self, *, now: bool) -> None:
        assert now
        self.ended.set()

    def _cleanup_kernel(self) -> None:
        raise AssertionError("the kernel has ended")


def test_an_interrupt_stops_the_kernel_of_a_notebook_and_goes_on() -> None:
    """Regression: the interrupt once reached nbclient's own handler and ended in an AssertionError."""
    client = Running()
    with pytest.raises(KeyboardInterrupt):
        notebooks._execute(client, {})  # type: ignore[arg-type] # a substitute for the client
    assert client.ended.is_set()
    left = [x for x in threading.enumerate() if x.name == "decodescope-notebook"]
    for thread in left:
        thread.join(5)  # it has said that it is done, and now ends
    assert not any(x.is_alive() for x in left)
