"""Versions: which schemas this reader reads. There is one major version; any other is refused."""

from __future__ import annotations

from ..records.events import SCHEMA
from ..values.limits import TraceError


class SchemaVersionError(TraceError):
    """The trace was written in another major version of the schema, so nothing else of it can be read."""


def check_schema(schema: str) -> None:
    """Refuse a schema that is no `major.minor`, and one of another major version. A newer minor version is read: what it adds
    is left out. Raises TraceError, SchemaVersionError for another major version."""
    major, _, minor = schema.partition(".")
    if not (major.isdecimal() and minor.isdecimal() and len(schema) < 12):
        raise TraceError(f"its schema {schema[:20]!r} is no version like {SCHEMA!r}")
    own = SCHEMA.partition(".")[0]
    if int(major) != int(own):
        raise SchemaVersionError(
            f"its schema is {schema}, and this version of DecodeScope reads {own}.x; record the run again"
        )
