"""Traces: the record of a run. Nothing in this package imports torch."""

from .check import Report, check
from .file.reader import read_header, read_records
from .file.recover import RecoveryResult, recover
from .file.trace import Trace, open_trace
from .file.writer import PARTIAL, SUFFIX, TraceWriter
from .query.tables import frame
from .records.events import LEVELS, SCHEMA, End, Header, Prefill, Record, Step
from .values.limits import OWN, UPLOADED, Limits, StorageFull, TraceError

__all__ = [
    "LEVELS",
    "OWN",
    "PARTIAL",
    "SCHEMA",
    "SUFFIX",
    "UPLOADED",
    "End",
    "Header",
    "Limits",
    "Prefill",
    "Record",
    "RecoveryResult",
    "Report",
    "Step",
    "StorageFull",
    "Trace",
    "TraceError",
    "TraceWriter",
    "check",
    "frame",
    "open_trace",
    "read_header",
    "read_records",
    "recover",
]
