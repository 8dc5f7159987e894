"""A model that transformers holds in memory: its config and tokenizer as files, its tensors as they are.

The files lie in a folder of this process, which goes with it. So all that reads a model's folder reads this one too.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.arguments import format_value
from decodescope.engine.core.spec import ModelSpec

from .folder import LoadError, read_json
from .weights import FREQUENCIES, TensorSource

RECORD = "in_memory.json"
EMBEDDING = "model.embed_tokens.weight"
TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
SAMPLES = 4096  # numbers of a tensor that are hashed, spread evenly


@dataclass(frozen=True)
class InMemoryModel:
    """A model of transformers and its tokenizer. folder: their files, without weights"""

    name: str
    folder: Path
    model: Any
    tokenizer: Any

    @property
    def embedding(self) -> Tensor:
        """Its embedding, which tells its type and device."""
        weight: Tensor = self.model.get_input_embeddings().weight.detach()
        return weight


def is_transformers_model(value: Any) -> bool:
    """Whether a value is a model of transformers, which need not be installed."""
    return isinstance(value, torch.nn.Module) and hasattr(getattr(value, "config", None), "to_json_string")


def hold_model(model: Any, tokenizer: Any = None) -> InMemoryModel:
    """Write config and tokenizer of a model to a folder of this process. Raises LoadError for what cannot be decoded."""
    called = str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
    name = (
        re.sub(r"[^\w.-]", "-", called.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1])
        or type(model).__name__
    )
    config = json.loads(model.config.to_json_string())
    config["architectures"] = [type(model).__name__]
    held = InMemoryModel(name, _folders() / secrets.token_hex(8) / name, model, tokenizer)
    held.folder.mkdir(parents=True)
    files: dict[str, Any] = {"config.json": config, RECORD: {"digest": _digest(_tensors(model, name))}}
    generation = getattr(model, "generation_config", None)
    if generation is not None:
        files["generation_config.json"] = json.loads(generation.to_json_string())
    for file, content in files.items():
        (held.folder / file).write_text(json.dumps(content), encoding="utf-8")
    if tokenizer is not None:
        _write_tokenizer(tokenizer, held)
    return held


def stored_digest(folder: Path) -> str:
    """The digest of the tensors of a model in memory, by its folder; empty for any other folder."""
    if folder.absolute().parent.parent != _folders():
        return ""
    return str((read_json(folder, RECORD) or {})["digest"])


class InMemoryTensors(TensorSource):
    """The tensors of a model in memory. share: the embedding may be used as it is, where its type and device fit."""

    described_by = "its config"

    def __init__(self, held: InMemoryModel, share: bool = True):
        super().__init__(Path(held.name))  # refusals name the model
        self._tensors = _tensors(held.model, held.name)
        self._share = share
        self.shapes = {name: tuple(x.shape) for name, x in self._tensors.items()}

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name].to("cpu")

    def tensors_equal(self, one: str, other: str) -> bool:
        same = self._tensors[one].data_ptr() == self._tensors[other].data_ptr()
        return same or super().tensors_equal(one, other)

    def read(self, names: list[str], dtype: torch.dtype, device: torch.device, add: float = 0.0) -> Tensor:
        if names == [EMBEDDING] and self.shares(dtype, device) and self._tensors[EMBEDDING].isfinite().all():
            return self._tensors[EMBEDDING]
        return super().read(names, dtype, device, add)

    def shares(self, dtype: torch.dtype, device: torch.device) -> bool:
        """Whether the embedding is used as it is."""
        embed = self._tensors[EMBEDDING]
        return self._share and embed.dtype == dtype and embed.device == device and embed.is_contiguous()

    def shared_bytes(self, spec: ModelSpec, dtype: torch.dtype, device: torch.device) -> int:
        """Bytes that are not held a second time."""
        return spec.vocab * spec.d_model * dtype.itemsize if self.shares(dtype, device) else 0

    def remarks(self, name: str, dtype: torch.dtype) -> list[str]:
        held = sum({x.data_ptr(): x.nbytes for x in self._tensors.values()}.values())
        embed = self._tensors[EMBEDDING]
        how = "only the embedding is shared" if self.shares(dtype, embed.device) else "nothing is shared"
        return [
            f"{name} was given as a model in memory: its weights are held twice, {held / 2**20:.0f} MiB by transformers and "
            f"once more here; {how}."
        ]


def _tensors(model: Any, name: str) -> dict[str, Tensor]:
    """The tensors of a model by their names. Raises LoadError for those that cannot be read."""
    tensors = {key: x.detach() for key, x in model.state_dict().items() if not key.endswith(FREQUENCIES)}
    if EMBEDDING not in tensors:
        raise LoadError(
            f"{name} is a {type(model).__name__} without {EMBEDDING}; give a decoder with a head, such as LlamaForCausalLM."
        )
    for key, x in tensors.items():
        if x.device.type == "meta":
            raise LoadError(
                f"{name} does not hold the numbers of {key[:80]} in memory; load it without offloading."
            )
        if x.dtype not in TYPES:
            what = str(x.dtype).removeprefix("torch.")
            raise LoadError(
                f"{name} holds {key[:80]} as {what}, which cannot be read; load it without quantisation."
            )
    return tensors


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """A digest of names, types, shapes and samples of the numbers."""
    digest = hashlib.sha256()
    for name, x in sorted(tensors.items()):
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        flat = x.reshape(-1)
        places = torch.arange(0, flat.numel(), max(1, flat.numel() // SAMPLES), device=flat.device)
        digest.update(flat[places].double().cpu().numpy().tobytes())
    return digest.hexdigest()


def _write_tokenizer(tokenizer: Any, held: InMemoryModel) -> None:
    """The files of a tokenizer of transformers, or of the tokenizers library. Raises LoadError for one without a fast form."""
    if hasattr(tokenizer, "to_str"):
        (held.folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
        return
    if not hasattr(getattr(tokenizer, "backend_tokenizer", None), "to_str"):
        raise LoadError(
            f"The tokenizer {format_value(type(tokenizer).__name__)} has no fast form; give one that AutoTokenizer makes."
        )
    tokenizer.save_pretrained(held.folder)


@cache
def _whole() -> tempfile.TemporaryDirectory[str]:
    """The folder of this process; the system removes it when the process ends."""
    return tempfile.TemporaryDirectory(prefix="decodescope-")


def _folders() -> Path:
    return Path(_whole().name)
