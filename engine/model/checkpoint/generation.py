"""generation_config.json: a sentence about the settings that would change a text in transformers and are not followed."""

from __future__ import annotations

from pathlib import Path

from .folder import read_json
from .keys import Config, unread_key_remarks

FILE = "generation_config.json"
# who wrote the file, how a library computes the same text, and what it returns with it
HARMLESS = (
    "_from_model_config",
    "cache_config",
    "disable_compile",
    "generation_kwargs",
    "output_logits",
    "token_healing",
)


def generation_remarks(folder: Path, name: str) -> list[str]:
    """A sentence about the settings of the model called `name`; none where all have values that change no text."""
    config = Config(read_json(folder, FILE) or {})
    return unread_key_remarks(config, name, "the samplers of a run alone choose its text", HARMLESS, FILE)
