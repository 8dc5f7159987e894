"""Trainings: the routes that show the heads that are trained on this machine, and how a folder of heads is read.

GET /ds/trainings   those in the user's folder, the one that changed last first, each with its measurements so far,
                    and the key of its folder once the head is saved
GET /ds/heads       ?key=: what was read of an offered folder of heads: facts, the lines of its config in groups, remarks
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response

from decodescope.app.runs.catalogue.head_offers import read_head_folder, trained_key
from decodescope.app.runs.run_service import RunService
from decodescope.engine.training import records

from .hardware import json_response

MOST = 50  # trainings that are listed
ODD = "The folder of this training is damaged, or of another version: remove it, or train the head again."


def add(api: FastAPI, play: RunService) -> None:
    """Add the routes to the application."""

    @api.get("/ds/trainings")
    def listed() -> Response:
        return json_response({"rows": [_training_row(folder) for folder in _training_folders()]})

    @api.get("/ds/heads")
    def heads(key: str = "") -> Response:
        return json_response(read_head_folder(play.models, key))


def _training_folders() -> list[Path]:
    """The folders of trainings, the one that changed last first."""
    home = records.default_folder()
    try:
        folders = [(x.stat().st_mtime, x.parent) for x in home.glob(f"*/{records.RUN}")]
        folders = [(max(when, _change_time(x / records.METRICS)), x) for when, x in folders]
    except OSError:
        return []
    return [folder for _, folder in sorted(folders, reverse=True)][:MOST]


def _change_time(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0


def _training_row(folder: Path) -> dict[str, Any]:
    """A training in the list; `trouble`: why it cannot be shown."""
    try:
        saved = (folder / "config.json").is_file()
        return records.summarize_training(folder) | ({"folder": trained_key(folder)} if saved else {})
    except (ValueError, LookupError, OSError):
        return {"name": folder.name, "trouble": ODD}
