"""Summary: the figures of a run, recomputed from its steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from decodescope.engine.core.exactness import Exactness

from ..file.trace import Trace
from ..records.events import Step
from ..records.phases import is_deciding_pass
from .causes import causes_shown
from .comparability import guidance_record


@dataclass(frozen=True)
class Summary:
    """The figures of a run. Decode figures exclude the prompt; no figure includes model loading.

    tau: tokens per target pass;  accepted, drafted: nodes;  acceptance: share of trials that were accepted (None: none)
    tokens_per_s: decode only
    kv_bytes_held: memory of the target's cache after the last step, free room in its pages included;  kv_bytes_kept,
    kv_bytes_full: its entries alone, and those of a cache that keeps every entry
    exactness: how the text relates to plain decoding of the original model (`engine/core/exactness.py`);  causes: why it is
    not lossless, in words
    law: guidance that replaces the target's own distribution, empty: none
    loaded: tokens of the prompt with entries from a file
    end: why the run ended, empty: it has not; "stop_text" where the record says "stop_token" and a text to stop at was written
    """

    tokens: int
    steps: int
    target_passes: int
    tau: float
    accepted: int
    drafted: int
    acceptance: float | None
    prefill_s: float
    decode_s: float
    wall_s: float
    tokens_per_s: float
    kv_bytes_held: int
    kv_bytes_peak: int
    kv_bytes_kept: int
    kv_bytes_full: int
    exactness: Exactness
    end: str
    loaded: int = 0
    law: str = ""
    causes: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def summarise(trace: Trace, see: Callable[[Step], object] = lambda step: None) -> Summary:
    """The figures of `trace`, finished or growing. see: is called with each step, so that nobody has to read them again."""
    emitted = passes = accepted = drafted = tried = passed = 0
    decode_us = 0.0
    last = trace.prefill.cache if trace.prefill is not None else []
    read = sum(c.appended for c in last if c.lane == "target")
    peak = max([0, *(c.peak_bytes or c.held_bytes for c in last if c.lane == "target")])
    count = 0
    for step in trace.steps:
        count += 1
        see(step)
        emitted += len(step.emitted)
        accepted += step.accepted
        drafted += step.drafted
        decode_us += step.wall_us
        passes += sum(map(is_deciding_pass, step.passes))
        if step.trials is not None:
            tried += len(step.trials.ok)
            passed += sum(step.trials.ok)
        read += sum(c.appended for c in step.cache if c.lane == "target")
        peak = max([peak, *(c.peak_bytes or c.held_bytes for c in step.cache if c.lane == "target")])
        last = step.cache or last
    target = next((c for c in last if c.lane == "target"), None)
    prefill_us = trace.prefill.wall_us if trace.prefill is not None else 0.0
    return Summary(
        emitted,
        count,
        passes,
        emitted / passes if passes else 0.0,
        accepted,
        drafted,
        passed / tried if tried else None,
        prefill_us / 1e6,
        decode_us / 1e6,
        (prefill_us + decode_us) / 1e6,
        emitted / (decode_us / 1e6) if decode_us else 0.0,
        target.held_bytes if target else 0,
        peak,
        target.kept_bytes(read) if target else 0,
        target.full_bytes if target else 0,
        trace.header.exactness,
        _end_reason(trace),
        (trace.header.loaded or {}).get("entries", 0),
        str((guidance_record(trace.header) or {}).get("name", "")),
        tuple(causes_shown(trace.header)),
    )


def _end_reason(trace: Trace) -> str:
    """Why the run ended. A record does not distinguish a stop text from a stop token, but its last token does."""
    header, end = trace.header, trace.end
    if end is None:
        return ""
    by_text = header.stop_texts and end.tokens and end.tokens[-1] not in header.stop_tokens
    return "stop_text" if end.reason == "stop_token" and by_text else end.reason
