"""Adapters: adapters/NAME in a model's folder, low-rank deltas of its matrices and rows of its embedding.

An adapter is merged into each matrix as that is read, before it is laid out for the processor, so a pass costs what one of the
base costs. config.json holds `rank`, `alpha`, `base` (the fingerprint of the weights that it was trained on) and, for embedding
rows, `rows`: the ids by tensor. model.safetensors holds, by the checkpoint's names, NAME.A [rank, in] and NAME.B [out, rank]
of a matrix, NAME.rows [ids, d] of an embedding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.paths import is_model_path

from .folder import LoadError, member_file, read_json
from .folder_writer import write_folder
from .keys import Config, unread_key_remarks

NAME = re.compile(r"[\w-]{1,64}")
FOLDER = "adapters"
PEFT = "adapter_config.json"
MOST_RANK = 1024
MOST_ALPHA = 1e6
NOTES = ("made_with", "measured")  # of config.json, for people
EMBEDDINGS = ("model.embed_tokens.weight", "lm_head.weight")
CPU = torch.device("cpu")

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Adapter:
    """W becomes W + alpha / rank * B A (Hu et al. 2021, arXiv:2106.09685, section 4.1); a row of an embedding is replaced.

    deltas: matrix -> A float64 [rank, in] and B float64 [out, rank];  rows: embedding -> ids int64 [k] and rows float64 [k, d]
    remarks: sentences about the keys of its config.json that are not read
    """

    scale: float
    deltas: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    rows: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def changes(self, name: str) -> bool:
        """True if the tensor `name` of a checkpoint is another with this adapter."""
        return name in self.deltas or name in self.rows

    def merge(self, name: str, stored: Tensor) -> Tensor:
        """The tensor `name` of a checkpoint with its change, in float64; `stored` itself where it has none."""
        if name in self.deltas:
            a, b = self.deltas[name]
            stored = torch.addmm(stored.double(), b, a, alpha=self.scale)
        if name in self.rows:
            ids, rows = self.rows[name]
            stored = stored.double().index_copy(0, ids, rows)
        return stored


def split_reference(reference: str | Path) -> tuple[str | Path, str]:
    """A model's reference without its adapter, and the name of that: `lab+cllm` is `lab` and `cllm`; empty where it names none,
    or where a folder is called so."""
    base, plus, name = str(reference).rpartition("+")
    if not plus or not base or not NAME.fullmatch(name) or is_model_path(reference):
        return reference, ""
    return (Path(base) if isinstance(reference, Path) else base), name


def join_reference(reference: str | Path, adapter: str) -> str:
    """The inverse of `split_reference`."""
    return f"{reference}+{adapter}" if adapter else str(reference)


def adapter_names(model: Path) -> list[str]:
    """The adapters in a model's folder, ascending."""
    home = model / FOLDER
    there = sorted(home.iterdir()) if home.is_dir() else []
    return [x.name for x in there if NAME.fullmatch(x.name) and (x / "config.json").is_file()]


def refuse_peft(folder: Path) -> None:
    """Raises LoadError if the folder holds an adapter in the form of PEFT, which is not read."""
    if member_file(folder, PEFT) is not None:
        what = f"{folder} holds an adapter, which would be left out ({PEFT}, the form of PEFT)"
        raise LoadError(f"{what}; merge it into the weights of its model first.")


def adapter_folder(model: Path, title: str, adapter: str) -> Path:
    """The folder of an adapter of the model called `title`. Raises LoadError if there is none, or if it is elsewhere."""
    known = adapter_names(model)
    if adapter not in known:
        refuse_peft(model / FOLDER / adapter)
        some = f"it has {', '.join(known[:9])}" if known else "it has none"
        raise LoadError(
            f"{title} has no adapter {adapter[:64]!r} ({some}); name the model without it, or train one."
        )
    path = model / FOLDER / adapter
    if not path.resolve().is_relative_to(model.resolve()):
        raise LoadError(
            f"{path} is a link that leads out of the model's folder; copy the adapter into it instead."
        )
    return path


def read_settings(path: Path) -> dict[str, Any]:
    """The adapter's config.json, its own words checked. Raises LoadError."""
    config = read_json(path, "config.json")
    if config is None:
        raise LoadError(f"{path} has no config.json; give the folder of a trained adapter.")
    rank = config.get("rank")
    alpha = config.get("alpha")
    rows = config.setdefault("rows", {})
    if type(rank) is not int or not 1 <= rank <= MOST_RANK:
        raise LoadError(
            f"{path}: rank = {str(rank)[:40]} must be a whole number from 1 to {MOST_RANK}; train it again."
        )
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha <= MOST_ALPHA:
        raise LoadError(
            f"{path}: alpha = {str(alpha)[:40]} must be a number up to {MOST_ALPHA:g}; train the adapter again."
        )
    if not isinstance(config.get("base"), str):
        raise LoadError(
            f"{path} does not say which model it is for: base must be that model's fingerprint; train it again."
        )
    if not isinstance(rows, dict) or not all(
        isinstance(x, list) and all(type(i) is int for i in x) for x in rows.values()
    ):
        raise LoadError(
            f"{path}: rows must be lists of ids by the embedding's name; train the adapter again."
        )
    return config


def key_remarks(path: Path, config: Mapping[str, Any]) -> list[str]:
    """A sentence about the keys of the adapter's config.json that are not read; none where there are no such keys."""
    tracked = Config(config)
    tracked.skip("rank", "alpha", "base", "rows", *NOTES)
    return unread_key_remarks(tracked, str(path), "the adapter is merged all the same")


def expected_shapes(
    path: Path, config: Mapping[str, Any], said: Mapping[str, Shape], base: Mapping[str, Shape]
) -> dict[str, Shape]:
    """The tensors that the adapter has to hold, with their shapes, for those that its file names (`said`) and the model's own
    (`base`). Raises LoadError for a change of what the model has not."""
    shapes: dict[str, Shape] = {}
    for name in sorted(said):
        matrix, _, part = name.rpartition(".")
        shape = base.get(matrix, ())
        if part not in ("A", "B", "rows") or len(shape) != 2 or (part == "rows" and matrix not in EMBEDDINGS):
            raise LoadError(
                f"{path} holds {name[:80]}, which changes no matrix of this model; train it on this very model."
            )
        if part == "rows":
            ids = config["rows"].get(matrix, [])
            if not ids or sorted(set(ids)) != ids or not 0 <= ids[0] <= ids[-1] < shape[0]:
                raise LoadError(
                    f"{path}: rows of {matrix} must be ascending ids below {shape[0]}; train the adapter again."
                )
            shapes[name] = (len(ids), shape[1])
        else:
            shapes |= {f"{matrix}.A": (config["rank"], shape[1]), f"{matrix}.B": (shape[0], config["rank"])}
    return shapes


def write(
    folder: Path,
    tensors: Mapping[str, Tensor],
    rank: int,
    alpha: float,
    base: str,
    rows: Mapping[str, list[int]] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write an adapter to `folder` (.../adapters/NAME) in bfloat16, each file whole under another name first; `base`: the
    fingerprint of the model that it belongs to; `notes` join the config."""
    assert math.isfinite(alpha) and NAME.fullmatch(folder.name)
    config = {"rank": rank, "alpha": alpha, "base": base, "rows": dict(rows or {}), **(notes or {})}
    kept = {name: x.detach().to("cpu", torch.bfloat16).contiguous() for name, x in tensors.items()}
    write_folder(folder, kept, config)
