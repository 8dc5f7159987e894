"""Records: what the folder of a training says of it, for those who watch it. No torch."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from decodescope.engine.core.files import data_folder

RUN = "run.json"  # what the folder is of
METRICS = "metrics.jsonl"  # a line for each measurement
LARGEST = 16 << 20  # bytes of a file that is read


def default_folder() -> Path:
    """The folder of the trainings without a folder of their own, a folder each."""
    return data_folder() / "trained"


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The measurements in a file, without a line that is cut off. Raises ValueError for what is no measurement."""
    if not path.exists():
        return []
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} is larger than {LARGEST >> 20} MiB")
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def summarize_training(folder: Path) -> dict[str, Any]:
    """A training for a list: its head and model, how far it is, and its measurements as lists, the first one first.

    Raises ValueError, LookupError or OSError where the folder does not hold a training.
    """
    path = folder / RUN
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} is larger than {LARGEST >> 20} MiB")
    record = json.loads(path.read_text(encoding="utf-8"))
    rows = read_metrics(folder / METRICS)
    if not all(isinstance(x, dict) for x in (record, *rows)) or not all(
        isinstance(row["accepted"], list) and row["accepted"] for row in rows
    ):
        raise ValueError(f"{folder} holds no training")
    return {
        "name": folder.name,
        "kind": str(record["kind"]),
        "model": str(record["model"]),
        "wanted": _number(record["tokens"]),
        "tokens": [_number(row["tokens"]) for row in rows],
        "loss": [_number(row["loss"]) for row in rows],
        "accepted": [[_number(x) for x in row["accepted"]] for row in rows],
        "tokens_per_pass": [_number(row["tokens_per_pass"]) for row in rows],
        "finished": bool(rows) and rows[-1]["step"] == rows[-1]["steps"],
    }


def _number(x: object) -> float:
    """A finite number of a record."""
    if isinstance(x, bool) or not isinstance(x, int | float) or not math.isfinite(x):
        raise ValueError("a number is missing")
    return x
