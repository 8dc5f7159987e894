"""Traces: the record of a run. Nothing in this package imports torch."""

from .check import Report, check
from .events import LEVELS, SCHEMA, End, Header, Prefill, Record, Step
from .file import PARTIAL, SUFFIX, TraceWriter
from .limits import OWN, UPLOADED, Limits, StorageFull, TraceError
from .reader import read_header, read_records
from .recover import Recovered, recover
from .tables import frame
from .trace import Trace, open_trace

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
    "Recovered",
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
