"""Checkpoint: the state of a training in one file, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from decodescope.engine.model.heads.base import Head

from .answers import TrainingError


def write_checkpoint(
    path: Path, head: Head, optimizers: Sequence[torch.optim.Optimizer], place: Mapping[str, Any]
) -> None:
    """Write weights, the state of the optimizers, and `place`, numbers that say how far the training is.

    Raises TrainingError where the file cannot be written; then the checkpoint before it stays.
    """
    state = {
        "head": head.state_dict(),
        "optimizers": [x.state_dict() for x in optimizers],
        "place": dict(place),
    }
    part = path.with_name(f"{path.name}.partial")
    try:
        with part.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink()
        cause = (
            error if isinstance(error, OSError) else error.__context__
        )  # torch reports its own error instead
        if not isinstance(cause, OSError) or not isinstance(error, OSError | RuntimeError):
            raise
        raise TrainingError(
            f"The checkpoint {path} could not be written ({cause.strerror or cause}): the one before it is kept, if there was "
            "one; make room, or choose another folder."
        ) from None


def read_checkpoint(
    path: Path, head: Head, optimizers: Sequence[torch.optim.Optimizer]
) -> dict[str, Any] | None:
    """Load weights and optimizers, and return the place; None if there is no checkpoint. Raises TrainingError."""
    if not path.exists():
        return None
    try:
        state = torch.load(path, map_location=head.device, weights_only=True)
        head.load_state_dict(state["head"])
        for optimizer, values in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(values)
        return dict(state["place"])
    except (RuntimeError, ValueError, KeyError, EOFError, OSError, UnpicklingError) as error:
        raise TrainingError(
            f"The checkpoint {path} cannot be read ({type(error).__name__}): remove it to train from the beginning."
        ) from None
