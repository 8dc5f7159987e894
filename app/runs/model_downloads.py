"""Model downloads: the page fetches models, one at a time for the whole server, and their progress outlives a page."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from decodescope.app.basis.refusal import RequestRefusal, explain_error
from decodescope.engine.model.fetched.catalogue import (
    FetchableModel,
    fetchable_models,
    find_fetchable,
    is_fetched,
)
from decodescope.engine.model.fetched.refusals import FetchStopped

if TYPE_CHECKING:
    from decodescope.engine.session.get_model import DownloadPlan

NOT_ALLOWED = (
    "This server fetches no models for those who visit it: its owner may allow that with the option --allow-get, or run "
    "`decodescope models get NAME` there."
)
LONGEST = 200  # characters of a model's name


class ModelDownloads:
    """What is being fetched, and what was last. allowed: whether visitors may fetch"""

    def __init__(self, allowed: bool = False):
        self.allowed = allowed
        self.completed = 0  # downloads of this server
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._name = ""
        self._title = ""
        self._status = "idle"  # or running, stopping, done, stopped, failed
        self._error = ""
        self._phase = ""
        self._done = 0
        self._total = 0
        self._began = 0.0
        self._first = 0  # bytes that were there when it began

    def state(self) -> dict[str, Any]:
        """The download that is going, or the last one: name, status, phase, bytes, bytes a second, error."""
        with self._lock:
            took = time.monotonic() - self._began
            speed = (self._done - self._first) / took if self._phase == "downloading" and took > 1 else 0
            return {
                "name": self._name,
                "title": self._title,
                "status": self._status,
                "phase": self._phase,
                "done": self._done,
                "total": self._total,
                "bytes_per_s": round(max(speed, 0)),
                "error": self._error,
            }

    def plan(self, name: str) -> dict[str, Any]:
        """What fetching a model takes, for the page. Raises RequestRefusal."""
        return _plan_record(self._plan(name))

    def start(self, name: str) -> dict[str, Any]:
        """Begin to fetch a model; returns the state. Raises RequestRefusal."""
        plan = self._plan(name)
        if not plan.fits:
            raise RequestRefusal(
                f"{plan.title} needs {plan.needed_bytes / 1e6:,.0f} MB on the server's disk while it is fetched, and "
                f"{plan.free_bytes / 1e6:,.0f} MB are free: make room there."
            )
        with self._lock:
            if self._status in ("running", "stopping"):
                raise RequestRefusal(
                    f"{self._title} is being fetched: wait until it is there, or cancel it.", 409
                )
            self._stop.clear()
            self._name, self._title = plan.name, plan.title
            self._status, self._error = "running", ""
            self._phase, self._total = "looking for it", plan.stored_bytes
            self._done = self._first = 0
            self._began = time.monotonic()
            self._thread = threading.Thread(
                target=self._run, args=(plan.name,), name="decodescope-get", daemon=True
            )
            self._thread.start()
        return self.state()

    def stop(self) -> dict[str, Any]:
        """Stop the download, if there is one; what was fetched is kept."""
        with self._lock:
            if self._status == "running":
                self._status = "stopping"
                self._stop.set()
        return self.state()

    def close(self) -> None:
        """Stop, and wait for the end."""
        self.stop()
        if self._thread is not None:
            self._thread.join(5)

    def _plan(self, name: str) -> DownloadPlan:
        from decodescope.engine.session.get_model import plan_download

        if not self.allowed:
            raise RequestRefusal(NOT_ALLOWED, 403)
        try:
            return plan_download(name[:LONGEST].strip())
        except ValueError as error:
            raise RequestRefusal(explain_error(error)) from None

    def _run(self, name: str) -> None:
        from decodescope.engine.session.get_model import get_model

        status, error = "done", ""
        try:
            get_model(name, self._report, self._stop.is_set)
        except FetchStopped:
            status = "stopped"
        except Exception as no:  # whatever it is, the page says it
            status, error = "failed", explain_error(no)
        with self._lock:
            self._status, self._error = status, error
            self.completed += status == "done"

    def _report(self, phase: str, done: int, total: int) -> None:
        with self._lock:
            if phase != self._phase:
                self._first = done
                self._began = time.monotonic()
            self._phase = phase
            self._done, self._total = done, total


def _plan_record(plan: DownloadPlan) -> dict[str, Any]:
    """A plan as the page gets it; the place on the disk is the owner's own business."""
    return {
        "name": plan.name,
        "title": plan.title,
        "origin": plan.origin,
        "licence": plan.licence,
        "download_bytes": plan.download_bytes,
        "stored_bytes": plan.stored_bytes,
        "needed_bytes": plan.needed_bytes,
        "free_bytes": plan.free_bytes,
        "fits": plan.fits,
        "here": plan.there,
    }


def table_rows() -> list[dict[str, Any]]:
    """The models of the table, as the page lists them."""
    return [
        {
            "name": x.name,
            "title": x.title,
            "about": x.about,
            "licence": x.licence,
            "download_bytes": x.download_bytes,
            "stored_bytes": x.bytes,
            "here": is_fetched(x),
        }
        for x in fetchable_models()
    ]


def missing_model(name: str) -> FetchableModel | None:
    """The model of the table that a record or a link names, if it is not on this machine yet."""
    known = find_fetchable(name)
    return None if known is None or is_fetched(known) else known
