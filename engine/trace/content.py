"""The content hash: equal for runs that did the same, whenever and with whichever version they did it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from .frame import raw_array, split

# What may differ between the headers of equal runs: when, under which name, and with what.
VARYING = ("created", "run", "project", "torch", "threads")


class ContentHash:
    """SHA-256 over the records before the end record, without what varies between equal runs.

    Of each record: its JSON with sorted keys, without fields that end in `_us` at any depth, and, in the header,
    without VARYING and the parent's run; an array counts by dtype, shape and the SHA-256 of its bytes in memory.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, body: bytes) -> dict[str, Any]:
        """Count one record in. Returns its JSON, times included, arrays as dtype, shape and hash."""
        head, base = split(body)
        times: dict[str, Any] = {}

        def keep(found: dict[str, Any]) -> dict[str, Any]:
            if "$array" in found:
                raw = raw_array(found, body, base)
                return {"$array": [*found["$array"][:2], hashlib.sha256(raw).hexdigest()]}
            times.clear()  # the outermost object is the last one to come here
            kept: dict[str, Any] = {}
            for key, value in found.items():
                (times if key.endswith("_us") else kept)[key] = value
            return kept

        record: dict[str, Any] = json.loads(head, object_hook=keep)
        kept = record
        if record.get("kind") == "header":
            kept = {key: value for key, value in record.items() if key not in VARYING}
            if isinstance(kept.get("parent"), dict):
                kept["parent"] = {key: value for key, value in kept["parent"].items() if key != "run"}
        self._hash.update(json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
        self._hash.update(b"\n")
        return {**record, **times}

    def hexdigest(self) -> str:
        """The hash of what was added so far."""
        return self._hash.hexdigest()
