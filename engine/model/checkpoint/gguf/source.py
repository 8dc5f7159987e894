"""From a GGUF file to a folder that reads like any other model's: its config, its tokenizer, and a note of where the file is.

The folder lies in the user's data folder and is called by the digest of the file. Its weights stay where they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from decodescope.engine.core.files import data_folder

from ...layers.gguf_matrix import unpack_rows
from ..folder import LoadError, read_json
from .families import FACTORS, GgufConfig, checkpoint_tensors, config_from_header
from .header import SPLIT, SUFFIX, GgufHeader, GgufTensor, model_name, read_header
from .tokenizer import tokenizer_files

RECORD = "gguf.json"
EDGE = 1 << 20  # bytes of a file's data that are hashed at its beginning and at its end
SAMPLES = 64  # in between, spread evenly, each at a whole MiB
SAMPLE = 1 << 16  # bytes of a sample
MOST_PAIRS = 1 << 12  # numbers of the tensor of rotation factors
PROJECTOR = "mmproj"  # how files begin that hold the part of a model that sees pictures
# how names end that repeat the type of the numbers: SmolLM2-135M-Instruct.Q4_1
TYPE_IN_NAME = re.compile(r"[.-](I?Q\d\w*|TQ\d\w*|MXFP4\w*|BF16|F16|F32)$", re.IGNORECASE)


class FileState(NamedTuple):
    """A file as it was: whatever writes to it changes one of these."""

    path: str
    size: int
    changed: int  # nanoseconds


@dataclass(frozen=True)
class GgufRecord:
    """What a derived folder notes of its file.

    name:    of the model;  types: in which its matrices are stored
    files:   all of its files
    digest:  of its tensors, for the model's fingerprint
    remarks: sentences about keys that were not read
    maker:   of the code that wrote the folder
    """

    name: str
    types: str
    files: tuple[FileState, ...]
    digest: str
    remarks: tuple[str, ...]
    maker: str

    @property
    def title(self) -> str:
        """The name of the model without the type of its numbers."""
        return TYPE_IN_NAME.sub("", self.name)

    @property
    def path(self) -> Path:
        """The model's file, or the first of them."""
        return Path(self.files[0].path)

    def verified_path(self) -> Path:
        """The same, if nothing has changed since. Raises LoadError."""
        for one in self.files:
            path = Path(one.path)
            if not path.is_file():
                raise LoadError(
                    f"{path}, the file of {self.name}, is gone; put it back, or name another model."
                )
            if _state(path) != one:
                raise LoadError(
                    f"{path}, the file of {self.name}, has changed; name the model by this file again."
                )
        return self.path


def derived_folders() -> Path:
    """The folder that holds the derived ones."""
    return data_folder() / "gguf"


def find_gguf(path: Path) -> Path | None:
    """The GGUF file that a path names: the file itself, or the only one in a folder without other weights.

    Raises LoadError for a folder with several.
    """
    if path.is_file():
        return path.absolute() if path.suffix.lower() == SUFFIX else None
    if not path.is_dir() or any(path.glob("model*.safetensors*")):
        return None
    models = models_among([x.name for x in path.iterdir() if x.is_file()])
    if len(models) > 1:
        some = ", ".join(models[:5])
        raise LoadError(f"{path} holds {len(models)} GGUF models ({some}); name one of the files.")
    return (path / models[0]).absolute() if models else None


def models_among(names: list[str]) -> list[str]:
    """The GGUF models among file names: of a model in parts the first part; what only sees pictures is none."""
    files = [x for x in sorted(names) if x.lower().endswith(SUFFIX) and not x.startswith(PROJECTOR)]
    return [x for x in files if (part := SPLIT.fullmatch(x)) is None or int(part[2]) == 1]


def parts_of(name: str) -> list[str]:
    """The names of all files of the model that a file's name names."""
    part = SPLIT.fullmatch(name)
    if part is None:
        return [name]
    return [f"{part[1]}-{i + 1:05}-of-{part[3]}.gguf" for i in range(int(part[3]))]


def source_record(folder: Path) -> GgufRecord | None:
    """What a derived folder notes; None for any other folder, whatever it holds."""
    if folder.absolute().parent != derived_folders().absolute():
        return None
    try:
        noted = read_json(folder, RECORD) or {}
    except LoadError:
        return None
    texts, files = [noted.get(x) for x in ("name", "types", "digest", "maker")], noted.get("files")
    fits = isinstance(files, list) and all(
        isinstance(x, list) and list(map(type, x)) == [str, int, int] for x in files
    )
    if not files or not fits or not all(isinstance(x, str) for x in [*texts, *noted.get("remarks", [])]):
        return None
    noted |= {"files": tuple(FileState(*x) for x in files), "remarks": tuple(noted.get("remarks", []))}
    return GgufRecord(**{x.name: noted[x.name] for x in fields(GgufRecord)})


def derived_folder(path: Path) -> Path:
    """The folder that is derived from the GGUF model in the file `path`; written if it is not there. Raises LoadError."""
    states = tuple(_state(path.with_name(x)) for x in parts_of(path.name))
    folder = _derive_folder(states)
    record = source_record(folder)
    if record is None or record.files != states:  # it is gone, or a copy of the file was named since
        _derive_folder.cache_clear()
        folder = _derive_folder(states)
    return folder


@lru_cache(maxsize=64)
def _derive_folder(states: tuple[FileState, ...]) -> Path:
    header = read_header(Path(states[0].path))
    digest = _tensor_digest(header)
    folder = derived_folders() / hashlib.sha256(f"{header.digest} {digest}".encode()).hexdigest()[:16]
    _write_folder(folder, header, digest, states)
    return folder


class GgufShape(NamedTuple):
    """What a list shows of a model. config: as config.json has it;  types: in which its matrices are stored
    tensors: by the names of a checkpoint"""

    config: dict[str, Any]
    types: str
    tensors: Mapping[str, GgufTensor]


def read_gguf_shape(path: Path) -> GgufShape:
    """The shape of the model in a GGUF file, by its header alone. Raises LoadError."""
    return _read_shape(_state(path))


@lru_cache(maxsize=256)
def _read_shape(state: FileState) -> GgufShape:
    path = Path(state.path)
    header = read_header(path)
    return GgufShape(_config(header, model_name(path)).config, header.types, checkpoint_tensors(header))


def _config(header: GgufHeader, name: str) -> GgufConfig:
    """The config of a model, with the factors of its rotation."""
    factors: dict[str, torch.Tensor] = {}
    for tensor in FACTORS:
        if (one := header.tensors.get(tensor)) is None:
            continue
        if one.numbers > MOST_PAIRS or one.type not in ("F32", "F16"):
            raise LoadError(
                f"{name} stores {tensor} as {one.numbers} numbers of the type {one.type}; it is damaged."
            )
        data = np.fromfile(one.path, np.uint8, one.size, offset=one.start)
        factors[tensor] = torch.empty(1, one.numbers, device="cpu")
        unpack_rows(data.reshape(1, -1), one.type, factors[tensor])
    return config_from_header(header, name, factors)


def _write_folder(folder: Path, header: GgufHeader, digest: str, states: tuple[FileState, ...]) -> None:
    """Write the files of a derived folder, unless they are there and of this very file and this very code."""
    name = model_name(header.paths[0])
    before = source_record(folder)
    if before is not None and before.maker == _maker() and before.files == states:
        return
    derived = _config(header, name)
    record = GgufRecord(name, header.types, states, digest, tuple(derived.remarks), _maker())
    files: dict[str, Mapping[str, Any]] = {
        "config.json": derived.config,
        "generation_config.json": derived.generation,
    }
    if before is None or before.maker != _maker():
        files |= _tokenizer_files(header.metadata)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in (
            files | {RECORD: asdict(record)}
        ).items():  # the record last: it says that all are there
            part = folder / f".{secrets.token_hex(8)}.part"
            try:
                part.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
                os.replace(part, folder / file)
            finally:
                part.unlink(missing_ok=True)
    except OSError as error:
        raise LoadError(
            f"{folder} cannot be written ({error.strerror}), where the config and tokenizer of {name} belong; make room, or "
            "set XDG_DATA_HOME to another folder."
        ) from None


def _tokenizer_files(metadata: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """tokenizer.json and tokenizer_config.json; none where the metadata has no tokenizer."""
    if "tokenizer.ggml.model" not in metadata:
        return {}
    return tokenizer_files(metadata)


@cache
def _maker() -> str:
    """A digest of the code that derives folders: one that other code has written is written again."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(x.read_bytes() for x in sources)).hexdigest()[:16]


def _state(path: Path) -> FileState:
    try:
        status = path.stat()
    except OSError as error:
        raise LoadError(f"{path} cannot be read ({error.strerror}); see that the file is there.") from None
    return FileState(str(path.absolute()), status.st_size, status.st_mtime_ns)


def _tensor_digest(header: GgufHeader) -> str:
    """A digest of names, shapes and types of all tensors, and of samples of their numbers."""
    number = {path: i for i, path in enumerate(header.paths)}  # a copy may have another name
    names = {
        name: [number[x.path], x.shape, x.type, x.start - header.starts[x.path]]
        for name, x in header.tensors.items()
    }
    digest = hashlib.sha256(json.dumps(names, sort_keys=True).encode())
    for path in header.paths:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            for first, count in _sample_places(header.starts[path], size):
                file.seek(first)
                digest.update(file.read(count))
    return digest.hexdigest()


def _sample_places(start: int, end: int) -> list[tuple[int, int]]:
    """Where the numbers of a file are looked at, as (place, bytes)."""
    length = end - start
    if length <= 2 * EDGE + SAMPLES * SAMPLE:
        return [(start, max(length, 0))]
    between = [start + length * (i + 1) // (SAMPLES + 1) // EDGE * EDGE for i in range(SAMPLES)]
    return [(start, EDGE), *((x, SAMPLE) for x in between), (end - EDGE, EDGE)]
