"""Library: the traces in the folder, their descriptions, and the actions on them. No page library."""

from __future__ import annotations

import contextlib
import filecmp
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from decodescope.app.basis.refusal import RequestRefusal, explain_error, sentence
from decodescope.app.basis.storage import NAME, STAR, UNCHECKED, remove_stale_uploads
from decodescope.engine.core.files import write_whole
from decodescope.engine.trace import PARTIAL, SUFFIX, UPLOADED, Trace, TraceError, open_trace
from decodescope.engine.trace import Limits as TraceLimits
from decodescope.engine.trace.encoding import disk
from decodescope.engine.trace.query.comparability import (
    comparison_key,
    describe_divergence,
    exactness_mark_text,
    is_plain,
)
from decodescope.engine.trace.query.prompt_reading import prompt_reading
from decodescope.engine.trace.query.summary import summarise
from decodescope.engine.trace.query.titles import title
from decodescope.engine.trace.records import parts

from .catalogue.examples import examples
from .run_service import RUN, RunService
from .upload_check import CheckBudget, UploadVerdict, check_upload, give_back_memory

BIN = "deleted"  # subfolder of deleted traces, until they are erased
GONE = ".gone"  # marker next to a trace in this folder, as old as the deletion
MARKS = (STAR, NAME, UNCHECKED)  # what lies next to a trace and goes with it
UNDO_S = 3600.0  # seconds that a deleted trace can be brought back
LONGEST = 80  # characters of a name
TEXT = 2000  # characters of a trace's text that the filter looks through
BARS = 48  # columns of the small picture of tokens per step
SUMMED = 64 << 20  # bytes of a trace that is summarised for its row; of a larger one only the header is read
LONG = 4 << 20  # bytes of a trace that is read for its row by a thread
AT_ONCE_S = 1.0  # seconds of reading for one answer; the rest comes with the next


class _RowReader:
    """Reads a long trace for its row, while the list is shown without it."""

    def __init__(self, path: Path, mark: tuple[int, int]):
        self.path, self.mark = path, mark
        self.row: dict[str, Any] = {}
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        try:
            self.row = _trace_row(self.path)
        except Exception as error:  # nobody else would hear of it
            self.row = {"trouble": _shorten(explain_error(error), self.path)}


class Library:
    """The traces behind the page: those of `play.folder`, and the examples that come with the package.

    An incomplete recording, left by a run after its program ended, is listed too, as far as it is whole.
    """

    def __init__(self, play: RunService, budget: Callable[[], CheckBudget] = CheckBudget):
        self.play = play
        self._budget = budget  # for each check of an upload
        self._known: dict[
            Path, tuple[tuple[int, int], dict[str, Any]]
        ] = {}  # path -> (time, size), description
        self._lock = threading.Lock()
        self._reader: _RowReader | None = None  # of a long trace

    def listing(self) -> dict[str, Any]:
        """Every trace, the newest first, then the examples; bytes held, and the limit above which the oldest are removed.

        Rows that could not be read in AT_ONCE_S have no figures yet, and `more` says so: ask again.
        """
        self._erase_old()
        paths = sorted(self._paths(), key=_modified_time, reverse=True)
        until = time.monotonic() + AT_ONCE_S
        rows = []
        held = 0
        with self._lock:
            for path in paths:
                with contextlib.suppress(OSError):  # removed meanwhile
                    row = self._row(path, _run_of(path), until)
                    held += row["size"]
                    row = {**row, "title": _read_name(path), "star": _marker_path(path, STAR).exists()}
                    unchecked = _read_marker(path, UNCHECKED)
                    rows.append(row | ({"unchecked": unchecked} if unchecked else {}))
            for example in examples():
                row = self._row(example.path, example.run, until + AT_ONCE_S)
                rows.append({**row, "title": example.title, "about": example.about, "example": True})
            self._known = {path: said for path, said in self._known.items() if path.exists()}
        _mark_divergences(rows)
        more = any(row.get("pending") for row in rows)
        return {"rows": rows, "bytes": held, "most": self.play.limits.keep << 20, "more": more}

    def _paths(self) -> Iterator[Path]:
        for path in self.play.folder.glob("*" + SUFFIX + "*"):
            run = _run_of(path)
            if RUN.fullmatch(run) and path.is_file():
                left = path.name == run + SUFFIX + PARTIAL and not path.with_suffix("").exists()
                if path.name == run + SUFFIX or (
                    left and not self._is_active(run) and not _is_being_written(path)
                ):
                    yield path

    def _is_active(self, run: str) -> bool:
        channel = self.play.channels().get(run)
        return channel is not None and channel.is_active

    def _row(self, path: Path, run: str, until: float) -> dict[str, Any]:
        """The description of a trace; read once as long as the file stays the same. A long one is read meanwhile."""
        state = path.stat()
        mark, known = (state.st_mtime_ns, state.st_size), self._known.get(path)
        row = {"run": run, "size": state.st_size, "at": state.st_mtime}
        if known is None or known[0] != mark:
            if time.monotonic() > until:
                return row | {"pending": True}
            read = _read_row(path, mark) if state.st_size < LONG else self._long_row(path, mark, until)
            if read is None:
                return row | {"pending": True}
            known = self._known[path] = (mark, read)
        return row | known[1]

    def _long_row(self, path: Path, mark: tuple[int, int], until: float) -> dict[str, Any] | None:
        """The description of a long trace, one at a time read by a thread; None: not read yet."""
        if self._reader is None:
            self._reader = _RowReader(path, mark)
        reader = self._reader
        reader.thread.join(max(0.0, until - time.monotonic()))
        if reader.thread.is_alive():
            return None
        self._known[reader.path], self._reader = (reader.mark, reader.row), None
        give_back_memory()
        return reader.row if (reader.path, reader.mark) == (path, mark) else None

    # ---- changes

    def rename(self, run: str, name: str) -> None:
        """Name a trace `name`; empty: by its number again. Raises RequestRefusal."""
        path, shown = self._own_trace(run), " ".join(name.split())
        if len(shown) > LONGEST:
            raise RequestRefusal(f"The name has {len(shown)} characters; at most {LONGEST} are kept.")
        if not shown.isprintable():
            raise RequestRefusal(
                "The name holds characters that cannot be shown: write it with letters, digits and signs."
            )
        with _refuse_os_errors():
            if shown:
                write_whole(_marker_path(path, NAME), [shown])
            else:
                _marker_path(path, NAME).unlink(missing_ok=True)

    def star(self, run: str, on: bool) -> None:
        """Always keep a trace, or no longer. Raises RequestRefusal."""
        mark = _marker_path(self._own_trace(run), STAR)
        with _refuse_os_errors():
            mark.touch() if on else mark.unlink(missing_ok=True)

    def delete(self, run: str) -> None:
        """Delete a trace; for UNDO_S it can be restored. Raises RequestRefusal, also while the run is active."""
        path = self._own_trace(run)
        self.play.release_run(run)
        with _refuse_os_errors():
            kept = self.play.folder / BIN
            kept.mkdir(exist_ok=True)
            _marker_path(kept / path.name, GONE).write_bytes(b"")
            for one in (*(_marker_path(path, mark) for mark in MARKS), path):
                if one.exists():
                    one.replace(kept / one.name)

    def restore(self, run: str) -> None:
        """Restore a deleted trace. Raises RequestRefusal."""
        path = _trace_path(self.play.folder / BIN, run)
        if RUN.fullmatch(run) and _trace_path(self.play.folder, run).is_file():
            raise RequestRefusal("This trace is already there: nothing was brought back.")
        if not RUN.fullmatch(run) or not path.is_file():
            raise RequestRefusal("This trace was erased: it cannot be brought back.")
        with _refuse_os_errors():
            for one in (path, *(_marker_path(path, mark) for mark in MARKS)):
                if one.exists():
                    one.replace(self.play.folder / one.name)
            _marker_path(path, GONE).unlink(missing_ok=True)

    def take(self, upload: Path, name: str) -> dict[str, Any]:
        """Check an untrusted upload, and move it in. Returns the run's id, and whether it was here already.

        name: the name of the visitor's file. A whole file replaces a damaged one of the same run. Raises RequestRefusal in one
        sentence that names the file.
        """
        verdict, why = self._check(upload)
        give_back_memory()
        if verdict is None:
            raise RequestRefusal(f"{name[:LONGEST]} was not taken: " + why.replace(str(upload), "the file"))
        run = verdict.run
        example = next((x.path for x in examples() if x.run == run), None)
        path = example or self.play.folder / f"{run}{SUFFIX}"
        if path.is_file():
            if filecmp.cmp(path, upload, shallow=False):
                return {"run": run, "known": True}
            if example is None and _is_complete(upload) and not _is_complete(path):
                return self._move_in(upload, path, verdict)
            ways = "which came with the package and stays" if example else "delete that one first"
            raise RequestRefusal(
                f"{name[:LONGEST]} was not taken: run {run} is here already and differs; {ways}."
            )
        return self._move_in(upload, path, verdict)

    def _check(self, upload: Path) -> tuple[UploadVerdict | None, str]:
        """The verdict on an upload, or None and why it is refused. No exception is left that would hold what was read."""
        try:
            return check_upload(upload, upload_limits(self.play.limits.upload), self._budget()), ""
        except (TraceError, RequestRefusal) as error:
            return None, sentence(error)

    def _move_in(self, upload: Path, path: Path, verdict: UploadVerdict) -> dict[str, Any]:
        """Move an uploaded file to the place of its run's trace, with a sentence on what of it was not checked."""
        self.play.release_run(verdict.run)
        mark = _marker_path(path, UNCHECKED)
        with _refuse_os_errors():
            if verdict.remark:
                write_whole(mark, [verdict.remark])
            else:
                mark.unlink(missing_ok=True)
            upload.replace(path)
        added: dict[str, Any] = {"run": verdict.run, "known": False}
        return added | ({"unchecked": verdict.remark} if verdict.remark else {})

    def _own_trace(self, run: str) -> Path:
        """The trace of that run in the folder, or RequestRefusal."""
        path = _trace_path(self.play.folder, run)
        if any(x.run == run for x in examples()):
            raise RequestRefusal(
                "The examples come with the package: they can be opened and saved, not changed."
            )
        if not RUN.fullmatch(run) or not path.is_file() or self._is_active(run):
            going = RUN.fullmatch(run) and self._is_active(run)
            raise RequestRefusal(
                "The run is still going: stop it first." if going else "This trace is not here any more."
            )
        return path

    def _erase_old(self) -> None:
        """Erase traces deleted longer than UNDO_S ago, and remains of uploads that were interrupted long ago."""
        remove_stale_uploads(self.play.folder, 3600.0 * self.play.limits.hours)
        kept = self.play.folder / BIN
        for path in [*kept.glob("*" + SUFFIX), *kept.glob("*" + SUFFIX + PARTIAL)]:
            if time.time() - _modified_time(_marker_path(path, GONE)) > UNDO_S:
                for one in (path, *(_marker_path(path, mark) for mark in (*MARKS, GONE))):
                    with contextlib.suppress(OSError):
                        one.unlink(missing_ok=True)


def _mark_divergences(rows: list[dict[str, Any]]) -> None:
    """For every run with a text that may differ, say where it departs from a plain run with the same settings, if there is one.
    Removes `wrote`, `plain` and `setting` from the rows."""
    plain = {row["setting"]: row["wrote"] for row in rows if row.get("plain") and "wrote" in row}
    for row in rows:
        if row.get("exactness") == "lossy" and "wrote" in row and row["setting"] in plain:
            row["away"] = describe_divergence(row["wrote"], plain[row["setting"]])
    for row in rows:
        for name in ("wrote", "plain", "setting"):
            row.pop(name, None)


@lru_cache(maxsize=128)
def _read_row(path: Path, mark: tuple[int, int]) -> dict[str, Any]:
    """The row of a trace of this time and size. A process that lists the same examples again does not read them again."""
    return _trace_row(path)


def _trace_row(path: Path) -> dict[str, Any]:
    """The row of a trace: its method, model, text and figures; if it cannot be read, the reason."""
    try:
        trace = open_trace(path)
    except TraceError as error:
        return {"trouble": sentence(error).replace(str(path), "The file")}
    try:
        head = trace.header
        said: dict[str, Any] = {"method": head.method, "model": str(head.model.get("name", ""))[:LONGEST]}
        said |= {
            "called": parts.method_label(head),
            "named": title(head),
            "reading": prompt_reading(head),
            "drafts": parts.part_description(head, "drafter").get("drafts", True),
        }
        said |= {
            "exactness": head.exactness,
            "mark": exactness_mark_text(head),
            "plain": is_plain(head),
            "setting": comparison_key(head),
        }
        said |= {
            "created": head.created,
            "steps": len(trace.steps),
            "damage": trace.damage and _shorten(trace.damage, path),
        }
        if path.name.endswith(PARTIAL):
            said["damage"] = f"cut off when its program ended; the first {len(trace.steps)} steps are whole"
            if trace.prefill is None:
                said["damage"] = "not begun: its program ended while the run waited"
        if path.stat().st_size > SUMMED:
            return said
        counts: list[int] = []
        summary = summarise(trace, lambda step: counts.append(len(step.emitted)))
        said["wrote"] = array("q", trace.tokens[len(head.prompt) :])
        said |= {
            "tokens": summary.tokens,
            "tau": summary.tau,
            "rate": summary.tokens_per_s,
            "end": summary.end,
        }
        return said | {
            "bars": _bars(counts),
            "text": _filter_text(trace),
        }
    except ValueError as error:  # a record in the middle is bad
        return {"trouble": _shorten(explain_error(error), path)}
    finally:
        trace.close()


def _is_complete(path: Path) -> bool:
    """Whether a trace can be read to its end."""
    try:
        with contextlib.closing(open_trace(path, verify=True)) as trace:
            return trace.end is not None and trace.damage is None
    except TraceError:
        return False


def _shorten(said: str, path: Path) -> str:
    return " ".join(said.split()).replace(str(path), "The file")[:300]


def _filter_text(trace: Trace) -> str:
    """The end of the prompt and the model's continuation, for the filter."""
    text = trace.text()
    return text if len(text) <= TEXT else text[: TEXT // 2] + " … " + text[-TEXT // 2 :]


def _bars(counts: list[int]) -> list[float]:
    """Tokens per step, neighbours averaged so that at most BARS remain."""
    width = max(1, -(-len(counts) // BARS))
    return [
        round(sum(part) / len(part), 2)
        for i in range(0, len(counts), width)
        if (part := counts[i : i + width])
    ]


def upload_limits(mib: int) -> TraceLimits:
    """The limits of an untrusted trace, if files of so many MiB are accepted."""
    times = UPLOADED.expanded_bytes // UPLOADED.file_bytes
    return replace(UPLOADED, file_bytes=mib << 20, expanded_bytes=times * (mib << 20))


def _run_of(path: Path) -> str:
    return path.name.partition(".")[0]


def _trace_path(folder: Path, run: str) -> Path:
    """The sealed trace of a run, or else the remains of its recording."""
    sealed = folder / f"{run}{SUFFIX}"
    left = _marker_path(sealed, PARTIAL)
    return left if left.is_file() and not sealed.is_file() else sealed


def _is_being_written(path: Path) -> bool:
    """Whether another program is writing this recording."""
    try:
        with open(path, "r+b", buffering=0) as file:
            return not disk.lock(file)
    except OSError:
        return True


def _marker_path(path: Path, mark: str) -> Path:
    return path.with_name(path.name + mark)


def _read_name(path: Path) -> str:
    """The visitor's name for a trace; empty: none."""
    return _read_marker(path, NAME)[:LONGEST]


def _read_marker(path: Path, mark: str) -> str:
    """The text next to a trace; empty: none."""
    try:
        return _marker_path(path, mark).read_text(encoding="utf-8")[:300]
    except (OSError, ValueError):
        return ""


def _modified_time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


@contextlib.contextmanager
def _refuse_os_errors() -> Iterator[None]:
    """Turn errors of the file system into a sentence."""
    try:
        yield
    except OSError as error:
        raise RequestRefusal(explain_error(error)) from None
