"""saving: a prompt's cache written to a file by a model, and read from one for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from decodescope.engine.core.arguments import check_choice
from decodescope.engine.core.paths import expand_path
from decodescope.engine.saved.deltas import LEVELS
from decodescope.engine.saved.file import SavedCache, SavedCacheError, load, save

from .load import Model
from .session import Session


def save_cache(model: Model, prompt: Sequence[int], path: str | Path, quality: str = "middle") -> SavedCache:
    """Read `prompt` with the model and write its tokens, keys and values to a new file; return what reading the file gives.

    quality: how fine numbers are kept, "coarse", "middle" or "fine". Raises SavedCacheError or MethodError.
    """
    check_choice(quality, "quality", tuple(LEVELS))
    if len(prompt) < 2:
        raise SavedCacheError(
            "The prompt has one token, which is read with the first step: there is no cache to save."
        )
    if len(prompt) >= model.spec.max_positions:
        what = f"The prompt has {len(prompt)} tokens, and the model {model.spec.reading_limit}"
        raise SavedCacheError(f"{what}: shorten the prompt.")
    session = Session(model, None, prompt, max_new_tokens=1)
    session.start()
    kv = torch.stack([torch.stack([store.k[0], store.v[0]]) for store in session.target.cache.layers])
    return save(expand_path(path), model.spec, model.fingerprint, list(prompt), kv, quality)


def load_cache(model: Model, path: str | Path) -> SavedCache:
    """The cache in a file that `save_cache` wrote with this model: Session(..., saved=...) goes on from it.

    Raises SavedCacheError.
    """
    return load(expand_path(path), model.spec, model.fingerprint, model.spec.max_positions)
