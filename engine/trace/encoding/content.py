"""The content hash: equal for runs that did the same, whenever and with whichever version they did it."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from .frame import raw_array, split

# What may differ between the headers of equal runs: when, under which name, and with what; what parts say of themselves follows
# from the method, what transforms found from the model, and of a user's turn the tokens count that the prompt has of it.
VARYING = (
    "created",
    "run",
    "project",
    "torch",
    "threads",
    "machine",
    "tells",
    "parts",
    "tellings",
    "details",
    "turn",
    "reports",
    "batch",
)


class ContentHash:
    """SHA-256 over the records before the end record, without what varies between equal runs.

    Of each record: its JSON with sorted keys, without fields that end in `_us` at any depth, without a step's `environment`.
    In the header also without VARYING, the parent's run and the run that a fork comes from. An array counts by dtype, shape and
    the SHA-256 of its bytes in memory.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, body: bytes) -> dict[str, Any]:
        """Count one record in. Returns its JSON."""
        head, base = split(body)
        record: dict[str, Any] = orjson.loads(head)

        def kept(value: Any) -> Any:
            if isinstance(value, dict):
                if "$array" in value:
                    raw = raw_array(value, body, base)
                    return {"$array": [*value["$array"][:2], hashlib.sha256(raw).hexdigest()]}
                return {key: kept(inner) for key, inner in value.items() if not key.endswith("_us")}
            if isinstance(value, list):
                return [kept(inner) if isinstance(inner, dict | list) else inner for inner in value]
            return value

        content = kept(record)
        content.pop("environment", None)  # of a step: what other programs did to its times
        if record.get("kind") == "header":
            content = {key: value for key, value in content.items() if key not in VARYING}
            if isinstance(content.get("parent"), dict):
                content["parent"] = {key: value for key, value in content["parent"].items() if key != "run"}
            if isinstance(content.get("fork"), dict):
                content["fork"] = _strip_run_names(content["fork"])
        self._hash.update(orjson.dumps(content, option=orjson.OPT_SORT_KEYS))
        self._hash.update(b"\n")
        return record

    def hexdigest(self) -> str:
        """The hash of what was added so far."""
        return self._hash.hexdigest()


def _strip_run_names(fork: dict[str, Any]) -> dict[str, Any]:
    """A fork's record without the numbers of runs, and without the descriptions of parts."""
    nameless = {key: value for key, value in fork.items() if key != "of"}
    base = nameless.get("base")
    if isinstance(base, dict):
        base = {key: value for key, value in base.items() if key != "parts"}
        if isinstance(base.get("fork"), dict):
            base["fork"] = _strip_run_names(base["fork"])
        nameless["base"] = base
    return nameless
