"""Ended: what a slow transform of weights ended with, kept in the user's folder, so that the next load need not look again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from decodescope.engine.core.files import data_folder
from decodescope.engine.core.note import Finding
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.layers.gates import Gates
from decodescope.engine.trace.encoding.record_decoder import read_dataclass
from decodescope.engine.trace.values.limits import TraceError

VERSION = 1
BYTES = 16 << 20  # of a file
FILES = 256  # that are kept, the newest
TABLES = ("head", "ffn", "sub")


def default_folder() -> Path:
    """The folder of these files, next to the user's other data."""
    return data_folder() / "ended"


@dataclass(frozen=True)
class TransformResult:
    """The content of a file: no weights, but the decisions about them.

    words: the transform, as people write it;  closed: "head", "ffn" or "sub" -> [layer, place] of the gates that are 0
    findings: what it reported of its look
    """

    words: str
    closed: dict[str, list[list[int]]]
    findings: dict[str, Finding] = field(default_factory=dict)

    @classmethod
    def from_gates(cls, words: str, gates: Gates, findings: dict[str, Finding]) -> TransformResult:
        """Of hard gates."""
        tables = {name: table for name in TABLES if (table := getattr(gates, name)) is not None}
        return cls(words, {name: (table == 0).nonzero().tolist() for name, table in tables.items()}, findings)

    def gates(self, spec: ModelSpec) -> Gates:
        """Those of a model of this shape. Raises ValueError if a place is not in it."""
        wide, tables = {"head": spec.n_heads, "ffn": spec.d_ff, "sub": 2}, dict[str, torch.Tensor]()
        for name, places in self.closed.items():
            if name not in wide:
                raise ValueError(f"there are no gates {name[:20]!r}")
            if not all(len(x) == 2 and 0 <= x[0] < spec.n_layers and 0 <= x[1] < wide[name] for x in places):
                raise ValueError(f"a gate of {name} is in no layer of {spec.name}")
            tables[name] = torch.ones(spec.n_layers, wide[name])
            for layer, place in places:
                tables[name][layer, place] = 0
        for name, finding in self.findings.items():
            if why := finding.shape_problem(spec.n_layers, spec.n_heads):
                raise ValueError(f"the finding {name[:20]!r} {why}")
        return Gates(**tables)


class TransformCache:
    """The result of one transform of one model, if an earlier load saved it.

    key: all that it depends on: the given model, the transform's knobs, the text
    taken: True if it was there;  remarks: sentences about that
    """

    def __init__(self, folder: Path, *key: str):
        self.path = folder / (hashlib.sha256(json.dumps([VERSION, *key]).encode()).hexdigest()[:16] + ".json")
        self.taken, self.remarks = False, list[str]()

    def get(self, words: str, spec: ModelSpec) -> tuple[Gates, dict[str, Finding]] | None:
        """Gates and findings; None if there are none, or the file is not what was written."""
        try:
            if self.path.stat().st_size > BYTES:
                raise ValueError(f"it is larger than {BYTES >> 20} MiB")
            kept = _from_bytes(self.path.read_bytes())
            gates = kept.gates(spec)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:  # a TraceError is one
            why = str(error).rstrip(".") if isinstance(error, TraceError) else str(error)[:120]
            self.remarks.append(f"{self.path} is damaged ({why}), so {words} was done again.")
            return None
        self.taken = True
        self.remarks.append(
            f"{words} was not done again: an earlier load left what it ended with in {self.path}."
        )
        return gates, kept.findings

    def put(self, words: str, gates: Gates, findings: dict[str, Finding]) -> None:
        """Leave it for the next load, in one piece or not at all; the oldest files go where there are many."""
        part = self.path.with_name(f".{secrets.token_hex(8)}.part")
        try:
            text = _to_bytes(TransformResult.from_gates(words, gates, findings))
            if len(text) > BYTES:
                raise OSError(f"it takes more than {BYTES >> 20} MiB")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(text)
            os.replace(part, self.path)
            _remove_old_files(self.path.parent)
        except OSError as error:
            self.remarks.append(
                f"{words} is not kept in {self.path.parent} ({error}): the next load does it again."
            )
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


def _to_bytes(kept: TransformResult) -> bytes:
    """The text of a file: with a sum over the rest."""
    plain = asdict(kept)
    return json.dumps({"ended": VERSION, **plain, "sha256": _checksum(plain)}, ensure_ascii=False).encode()


def _from_bytes(text: bytes) -> TransformResult:
    """Parse the content of a file. Raises ValueError."""
    said = json.loads(text)
    if not isinstance(said, dict) or said.pop("ended", None) != VERSION:
        raise ValueError(f"it is no file of version {VERSION}")
    if said.pop("sha256", None) != _checksum(said):
        raise ValueError("it is not what was written")
    return read_dataclass(TransformResult, said)


def _checksum(plain: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _remove_old_files(folder: Path) -> None:
    """Remove all but the newest files."""
    paths = sorted(folder.glob("*.json"), key=lambda x: x.stat().st_mtime_ns)
    for path in paths[: max(0, len(paths) - FILES)]:
        path.unlink(missing_ok=True)
