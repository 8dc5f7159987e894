"""The header of a GGUF file: its metadata and its list of tensors, read in one walk with fixed limits. No tensor is read here.

The layout is that of docs/gguf.md in github.com/ggml-org/ggml, versions 2 and 3, little endian.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ..folder import LoadError

SUFFIX = ".gguf"
MAGIC = b"GGUF"
VERSIONS = (2, 3)
HEADER_BYTES = 64 << 20  # metadata and list of tensors of one file
KEYS = 4096
ITEMS = 1 << 22  # of all arrays of a file together; the largest vocabularies have 2^18 tokens
STRING_BYTES = 1 << 20  # a chat template may be long
NAME_BYTES = 1024  # of a key; ggml allows 64 for a tensor
TENSORS = 10_000  # of all files of a model
AXES = 4
FILES = 1000  # of one model
ALIGNMENT = 32  # of the tensors, where the metadata does not say otherwise
MOST_ALIGNMENT = 1 << 16
EMBEDDING = "token_embd.weight"
READ = 1 << 20  # bytes that are read at a time

# number of a type of metadata -> its code for `struct`
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
FLOAT32 = 6
STRING = 8
ARRAY = 9
SPLIT = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


class GgufTensor(NamedTuple):
    """A tensor in a file. shape: outermost axis first;  type: its name in ggml, such as "Q4_1";  start, size: bytes"""

    path: Path
    shape: tuple[int, ...]
    type: str
    start: int
    size: int

    @property
    def numbers(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF model says before its numbers; a model may be split into several files.

    metadata: of its first file: numbers, strings, and lists of them, by key
    starts:   file -> where its tensors begin
    digest:   SHA-256 of the headers of its files, in hex
    """

    paths: tuple[Path, ...]
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]
    starts: Mapping[Path, int]
    digest: str

    @property
    def types(self) -> str:
        """The types in which its matrices are stored: "Q4_K and Q6_K (embedding Q8_0)"."""
        count: dict[str, int] = {}
        for name, one in self.tensors.items():
            if len(one.shape) == 2 and name != EMBEDDING:
                count[one.type] = count.get(one.type, 0) + one.numbers
        names = sorted(count, key=lambda x: -count[x])
        words = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
        embedding = self.tensors[EMBEDDING].type if EMBEDDING in self.tensors else ""
        return (
            words if embedding in ("", *names[:1]) and len(names) == 1 else f"{words} (embedding {embedding})"
        )


class StorageType(NamedTuple):
    """How ggml stores numbers. run: how many are stored together;  size: bytes of a run"""

    name: str
    run: int
    size: int


@cache
def storage_types() -> dict[int, StorageType]:
    """ggml's number of a type -> the type, as the package `gguf` lists them."""
    from gguf.constants import GGML_QUANT_SIZES

    return {kind.value: StorageType(kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}


def model_name(path: Path) -> str:
    """The name of the model in a file: that of the file, without its ending and the number of a part."""
    part = SPLIT.fullmatch(path.name)
    return part[1] if part else path.name[: -len(SUFFIX)]


def read_header(path: Path) -> GgufHeader:
    """The header of a model, of all its files. Raises LoadError."""
    metadata, tensors, starts, digest = _read_file(path)
    count = metadata.get("split.count", 1)
    if type(count) is int and count > 1:
        return _read_parts(path, count)
    return GgufHeader((path,), metadata, tensors, {path: starts}, digest)


def _read_parts(path: Path, count: int) -> GgufHeader:
    """The header of a model that is split into `count` files, one of them `path`."""
    name = SPLIT.fullmatch(path.name)
    if name is None or int(name[3]) != count or count > FILES:
        raise LoadError(
            f"{path} is one of {count} parts of a model, which must be called NAME-00001-of-{count:05}.gguf and so on, at "
            f"most {FILES}; give them their names."
        )
    paths = tuple(path.with_name(f"{name[1]}-{i + 1:05}-of-{count:05}.gguf") for i in range(count))
    digest = hashlib.sha256()
    first: Mapping[str, Any] = {}
    tensors: dict[str, GgufTensor] = {}
    starts: dict[Path, int] = {}
    for i, part in enumerate(paths):
        metadata, more, starts[part], mark = _read_file(part)
        if metadata.get("split.count") != count or metadata.get("split.no") != i:
            raise LoadError(f"{part} is not part {i + 1} of {count} by its own metadata; download it again.")
        if (twice := tensors.keys() & more.keys()) or len(tensors) + len(more) > TENSORS:
            what = f"holds {sorted(twice)[0][:80]!r} a second time" if twice else "brings too many tensors"
            raise LoadError(f"{part} {what}; download the parts of this model again.")
        tensors |= more
        digest.update(mark.encode())
        first = first or metadata
    return GgufHeader(paths, first, tensors, starts, digest.hexdigest())


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, GgufTensor], int, str]:
    """Metadata, tensors, where these begin, and the digest of what lies before, of one file."""
    try:
        with path.open("rb") as file:
            return _HeaderReader(path, file).read()
    except OSError as error:
        raise LoadError(f"{path} cannot be read ({error.strerror}); see that the file is there.") from None


class _HeaderReader:
    """Reads a file from its beginning, as far as the header goes and no further than HEADER_BYTES."""

    def __init__(self, path: Path, file: BinaryIO):
        self._path = path
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self._bytes = b""
        self._at = 0
        self._items = 0  # of arrays so far

    def read(self) -> tuple[dict[str, Any], dict[str, GgufTensor], int, str]:
        """As `_read_file`."""
        if self._take(4) != MAGIC:
            raise LoadError(f"{self._path} is no GGUF file (it does not begin with GGUF); download it again.")
        version = self._number("I")
        if version not in VERSIONS:
            what = "is big endian" if version >= 1 << 16 else f"has version {version} of the format"
            raise LoadError(
                f"{self._path} {what}; only versions 2 and 3 in little endian can be read, so convert the model again."
            )
        tensors, keys = self._number("Q"), self._number("Q")
        self._require(tensors <= TENSORS, f"it names {tensors} tensors, more than the limit of {TENSORS}")
        self._require(keys <= KEYS, f"it names {keys} keys, more than the limit of {KEYS}")
        metadata: dict[str, Any] = {}
        for _ in range(keys):
            key = self._string(NAME_BYTES)
            self._require(key not in metadata, f"it holds the key {key[:80]!r} twice")
            metadata[key] = self._value(key, self._number("I"))
        infos = [self._tensor_info() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", ALIGNMENT)
        fits = type(alignment) is int and 0 < alignment <= MOST_ALIGNMENT and not alignment & (alignment - 1)
        self._require(
            fits, f"general.alignment is {str(alignment)[:40]}, no power of two up to {MOST_ALIGNMENT}"
        )
        start = -(-self._at // alignment) * alignment
        digest = hashlib.sha256(memoryview(self._bytes)[: self._at]).hexdigest()
        return metadata, self._place_tensors(infos, start, alignment), start, digest

    def _tensor_info(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape, number of the type, and offset of a tensor."""
        name = self._string(NAME_BYTES)
        axes = self._number("I")
        self._require(1 <= axes <= AXES, f"{name[:80]!r} has {axes} axes; 1 to {AXES} are possible")
        shape = tuple(self._number("Q") for _ in range(axes))[::-1]
        return name, shape, self._number("I"), self._number("Q")

    def _place_tensors(
        self, infos: list[tuple[str, tuple[int, ...], int, int]], start: int, alignment: int
    ) -> dict[str, GgufTensor]:
        """The tensors by name, all of them inside the file and none over another."""
        tensors: dict[str, GgufTensor] = {}
        for name, shape, number, offset in infos:
            self._require(name not in tensors, f"it holds {name[:80]!r} twice")
            kind = storage_types().get(number)
            self._require(kind is not None, f"{name[:80]!r} has the unknown type {number}")
            assert kind is not None
            whole = min(shape) > 0 and shape[-1] % kind.run == 0
            self._require(whole, f"{name[:80]!r} has the shape {list(shape)}, which {kind.name} cannot store")
            size = math.prod(shape) // kind.run * kind.size
            inside = offset % alignment == 0 and start + offset + size <= self._size
            self._require(inside, f"{name[:80]!r} does not lie in the file, which has {self._size} bytes")
            tensors[name] = GgufTensor(self._path, shape, kind.name, start + offset, size)
        end = start
        for name, one in sorted(tensors.items(), key=lambda x: x[1].start):
            self._require(one.start >= end, f"{name[:80]!r} lies over another tensor")
            end = one.start + one.size
        return tensors

    def _value(self, key: str, kind: int) -> Any:
        """A value of the metadata."""
        if kind == STRING:
            return self._string(STRING_BYTES)
        if kind != ARRAY:
            return self._scalar(key, kind)
        inner, count = self._number("I"), self._number("Q")
        self._items += count
        self._require(
            self._items <= ITEMS, f"its lists hold {self._items} entries, more than the limit of {ITEMS}"
        )
        self._require(inner != ARRAY, f"{key[:80]!r} is a list of lists")
        if inner == STRING:
            return list(self._strings(count))
        self._require(inner in SCALARS, f"{key[:80]!r} has the unknown type {inner}")
        kind_of_numbers = np.dtype(f"<{SCALARS[inner]}")
        return np.frombuffer(self._take(count * kind_of_numbers.itemsize), kind_of_numbers).tolist()

    def _scalar(self, key: str, kind: int) -> int | float | bool:
        self._require(kind in SCALARS, f"{key[:80]!r} has the unknown type {kind}")
        value: int | float | bool = self._number(SCALARS[kind])
        # the shortest decimal that is this float32: 1e-05, where its float64 would be 9.999999747378752e-06
        return float(str(np.float32(value))) if kind == FLOAT32 else value

    def _number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}")))[0]

    def _string(self, limit: int) -> str:
        size = self._number("Q")
        self._require(size <= limit, f"a string in it has {size} bytes, more than the limit of {limit}")
        return self._take(size).decode("utf-8", "replace")

    def _strings(self, count: int) -> Iterator[str]:
        """So many strings; a list of a vocabulary is long, so this is the loop that has to be fast."""
        self._require(count * 8 <= self._size - self._at, "it ends inside its metadata")
        length = struct.Struct("<Q").unpack_from
        data, at = self._bytes, self._at
        end = len(data)
        for _ in range(count):
            size = length(data, at)[0] if at + 8 <= end else end
            stop = at + 8 + size
            if stop <= end and size <= STRING_BYTES:
                yield data[at + 8 : stop].decode("utf-8", "replace")
                at = stop
            else:
                self._at = at
                yield self._string(STRING_BYTES)
                data, at = self._bytes, self._at
                end = len(data)
        self._at = at

    def _take(self, count: int) -> bytes:
        """The next bytes of the file."""
        stop = self._at + count
        self._require(stop <= self._size, "it ends inside its metadata")
        self._require(stop <= HEADER_BYTES, f"its header has more than {HEADER_BYTES} bytes")
        if stop > len(self._bytes):
            # twice as much each time, so that all of it is copied twice at most
            more = max(stop - len(self._bytes), READ, len(self._bytes))
            self._bytes += self._file.read(more)
            self._require(stop <= len(self._bytes), "it ends inside its metadata")
        taken, self._at = self._bytes[self._at : stop], stop
        return taken

    def _require(self, holds: bool, otherwise: str) -> None:
        """Raises LoadError with that reason, unless `holds`."""
        if not holds:
            raise LoadError(f"{self._path} is no whole GGUF file: {otherwise}; download it again.")
