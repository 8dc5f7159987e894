"""Folder writer: tensors and their config in one folder, as heads and adapters are kept."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor


def write_folder(folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    """Write model.safetensors and config.json to `folder`, each file whole under another name first.

    tensors: contiguous, on the CPU. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors.partial").write_bytes(save(dict(tensors), {"format": "pt"}))
    (folder / "config.json.partial").write_text(json.dumps(config, indent=2) + "\n")
    for name in ("model.safetensors", "config.json"):
        os.replace(folder / f"{name}.partial", folder / name)
