"""The command `gallery`: recorded runs as a folder of static pages, for a web server or a file manager."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decodescope.app.basis.refusal import sentence
from decodescope.app.runs.catalogue.examples import examples
from decodescope.app.runs.catalogue.families import family, family_titles
from decodescope.app.runs.catalogue.tours import tours
from decodescope.engine.core.paths import expand_path
from decodescope.engine.core.progress import Progress
from decodescope.engine.core.refusal import Refusal

from .notebooks import chapters
from .shared.output import format_bytes, print_json, print_note

if TYPE_CHECKING:
    from decodescope.engine.trace import Trace
    from decodescope.lab.views.gallery import GalleryEntry

INDEX = "index"
PROMPT = 120  # characters of a prompt that identify its run

MOST_NAMED = 24  # examples that a refusal lists


def gallery(args: argparse.Namespace) -> int:
    """Write the pages; 1 if a damaged trace, or a notebook that failed, was left out."""
    from decodescope.lab.views.gallery import gallery as write

    paths = trace_paths(args.trace)
    folder, fresh = make_empty_folder(args.out)
    left: dict[str, str] = {}  # path -> reason why it has no page
    runs = GalleryRuns(paths, left)
    try:
        course = chapters(left) if args.course else []
        pages = write(runs.entries(), folder, family_titles(), runs.mark_damaged, course)
        if not pages:
            why = "; ".join(f"{name}: {reason}" for name, reason in left.items())
            raise Refusal(f"No trace could be read, so nothing was written. {why}")
    except BaseException as error:
        remove_output(folder, fresh)
        if isinstance(error, OSError):
            raise Refusal(f"{str(folder)[:200]} cannot be written: {error.strerror or error}.") from None
        raise
    held = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    for name, reason in left.items():
        print_note(f"Left out: {name}: {reason}")
    if args.json:
        print_json(
            {
                "out": str(folder),
                "pages": pages,
                "course": [x.name for x in course],
                "bytes": held,
                "left_out": left,
            }
        )
    else:
        notebooks = f", {len(course)} notebooks" if args.course else ""
        print(f"{folder / 'index.html'}: {len(pages)} runs{notebooks}, {format_bytes(held)}")
    return 1 if left else 0


def trace_paths(names: list[str]) -> list[Path]:
    """The files of the named traces, by path or as an example, each once; without names those of all examples."""
    known = {x.name: x.path for x in examples()}
    files: dict[Path, Path] = {}
    for name in names or known:
        path = expand_path(name)
        try:
            there = path.is_file()
        except (OSError, ValueError):
            there = False
        if not there and name not in known:
            more = len(known) - MOST_NAMED
            few = ", ".join([*known][:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
            there_are = f"examples: {few or 'none here'}"
            raise Refusal(
                f"There is no trace {name[:200]} and no example of that name, so nothing was written; {there_are}."
            )
        path = path if there else known[name]
        if path.resolve() in files:
            print_note(f"Note: {name} is there twice and gets one page.")
        files.setdefault(path.resolve(), path)
    if not files:
        raise Refusal(
            "No examples are installed here: name the traces (decodescope gallery OUT a.dstrace b.dstrace)."
        )
    return list(files.values())


def make_empty_folder(name: str) -> tuple[Path, bool]:
    """The folder for the pages, created if it does not exist, and whether it was created."""
    folder = expand_path(name)
    try:
        fresh = not folder.exists()
        folder.mkdir(exist_ok=True)
        if next(folder.iterdir(), None) is not None:
            raise Refusal(f"{name[:200]} is not empty: choose a new folder, or empty this one.")
    except (OSError, ValueError) as error:
        raise Refusal(
            f"The folder {name[:200]} cannot be used: {getattr(error, 'strerror', None) or error}."
        ) from None
    return folder, fresh


def remove_output(folder: Path, fresh: bool) -> None:
    """Remove what was written into a folder that was empty, and the folder if it was created for that."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    if fresh:
        folder.rmdir()


class GalleryRuns:
    """The runs of a gallery, opened one after another; `left` collects those that cannot be read, path -> why."""

    def __init__(self, paths: list[Path], left: dict[str, str]):
        self._paths, self._left = paths, left
        self._taken = {INDEX}  # no run's page has a name that begins like a notebook's page
        self._at = ""

    def entries(self) -> Iterator[GalleryEntry]:
        """Each run, while it is in use; a trace that is damaged from the beginning is left out."""
        from decodescope.engine.trace import open_trace
        from decodescope.engine.trace.values.limits import TraceError

        with Progress("pages", len(self._paths), "runs") as progress:
            for path in self._paths:
                self._at = str(path)
                try:
                    trace = open_trace(path)
                except TraceError as error:
                    self._left[self._at] = sentence(error)
                else:
                    with closing(trace):
                        if trace.damage:
                            print_note(
                                f"Note: {path} is damaged, its page holds what is whole: {trace.damage}"
                            )
                        yield self._entry(trace, path)
                progress.add()

    def mark_damaged(self, entry: GalleryEntry, why: str) -> None:
        """The trace in use is damaged further on."""
        self._taken.discard(entry.name)
        self._left[self._at] = " ".join(why.split())

    def _entry(self, trace: Trace, path: Path) -> GalleryEntry:
        from decodescope.lab.views.gallery import GalleryEntry

        head = trace.header
        example = next((x for x in examples() if x.run == head.run), None)
        name = path.stem if example is None else example.name
        kind = family(head)
        stops: list[dict[str, Any]] = (
            [] if example is None else [stop.record() for stop in tours().get(example.name, ())]
        )
        return GalleryEntry(
            name=self._free_name(name),
            title=name if example is None else example.title,
            about=prompt_beginning(trace) if example is None else example.about,
            family=kind.title,
            kind=kind.about,
            stops=stops,
            trace=trace,
        )

    def _free_name(self, name: str) -> str:
        """A unique name for a page, made of the letters a to z, digits and hyphens."""
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "run"
        plain = f"run-{plain}" if plain.startswith("course-") else plain
        free, i = plain, 2
        while free in self._taken:
            free, i = f"{plain}-{i}", i + 1
        self._taken.add(free)
        return free


def prompt_beginning(trace: Trace) -> str:
    """The beginning of a run's prompt."""
    prompt = trace.header.prompt.tolist()[:PROMPT]
    text = " ".join(trace.text([x for x in prompt if x in trace.pieces]).split())
    return (
        f"Prompt: {text[:PROMPT]}{'…' if len(text) > PROMPT else ''}"
        if text
        else f"Prompt of {len(prompt)} tokens."
    )
