"""References of models with transforms behind them: `lab+cllm@int4 group=64`. No torch, unless there is an @."""

from __future__ import annotations

import re
from pathlib import Path

from .component import registry
from .paths import is_model_path


def with_weights(reference: str | Path, weights: str) -> str | Path:
    """A model's reference with these transforms behind those that it may name."""
    if not weights.strip():
        return reference
    base, before = without_weights(reference)
    return f"{base}@{before}+{weights}" if before else f"{base}@{weights}"


def without_weights(reference: str | Path) -> tuple[str | Path, str]:
    """A model's reference without its transforms, and the transforms.

    `lab+cllm@int4 group=64` is `lab+cllm` and `int4 group=64`.

    The transforms are empty where it names none, or where a folder has this name.
    """
    text = str(reference)
    if "@" not in text or is_model_path(text):
        return reference, ""
    at = next((x.start() for x in re.finditer("@", text) if _names_transform(text[x.end() :])), None)
    at = text.index("@") if at is None and re.fullmatch(r"[\w+-]+@.+", text) else at
    return (reference, "") if not at else (text[:at].rstrip(), text[at + 1 :].strip())


def _names_transform(text: str) -> bool:
    return re.split(r"[\s+]", text.strip(), maxsplit=1)[0] in registry("weights")
