"""Remembered models: where on this machine the folders and files of recorded runs' models lie, by fingerprint.

They stand in the user's own data and in no trace, so a shared trace names no place. A fork or a repeat finds its model by them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from decodescope.engine.core.files import data_folder, write_json
from decodescope.engine.core.paths import is_model_path
from decodescope.engine.core.reference import with_weights, without_weights
from decodescope.engine.model.checkpoint import adapter as adapters
from decodescope.engine.model.checkpoint.gguf.source import source_record

from .load import SHIPPED, Model

FILE = "model_folders.json"
MOST = 500  # models; the oldest are forgotten


def remember_models(models: Iterable[Any]) -> None:
    """Note where the files of these models lie: shipped ones and those in memory need no note.

    A data folder that cannot be written keeps the run from nothing: then a fork names its model.
    """
    places = {x.fingerprint: place for x in models if isinstance(x, Model) and (place := _place_of(x))}
    known = _read_places()
    if all(known.get(mark) == place for mark, place in places.items()):
        return
    there = {mark: place for mark, place in known.items() if mark not in places and _exists(place)}
    kept = dict(list({**there, **places}.items())[-MOST:])
    with contextlib.suppress(OSError):
        write_json(data_folder() / FILE, kept)


def remembered_model(fingerprint: Any) -> str | None:
    """The model of this fingerprint as `load` takes it; None if it was never seen here, or is gone."""
    place = _read_places().get(str(fingerprint))
    return place if place is not None and _exists(place) else None


def _place_of(model: Model) -> str:
    """Folder or file of a model with its adapter and transforms; empty for one that has none, or is found without it."""
    if model.path is None:  # made by code
        return ""
    record = source_record(model.path)
    path = (model.path if record is None else record.path).absolute()
    if model.held is not None or path.is_relative_to(SHIPPED) or not is_model_path(path):
        return ""
    return str(with_weights(adapters.join_reference(path, model.spec.adapter), model.spec.weights))


def _exists(place: str) -> bool:
    """Whether the files are still where they were."""
    return is_model_path(Path(adapters.split_reference(without_weights(place)[0])[0]))


def _read_places() -> dict[str, str]:
    """Fingerprint -> place, the oldest first; empty where the file is missing or damaged."""
    try:
        noted = json.loads((data_folder() / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(noted, dict):
        return {}
    return {mark: place for mark, place in noted.items() if isinstance(place, str)}
