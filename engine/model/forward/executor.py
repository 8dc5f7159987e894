"""Executor: runs a decoder's passes on one device, times them, and names what can go wrong on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.probe import Probe

from ..layers.faults import EngineFault as EngineFault  # who runs passes asks for it here
from ..layers.faults import not_finite_reason as not_finite_reason
from ..layers.faults import row_maxima
from ..layers.partial_pass import DepthRule, ExecutedLayers, Skip
from ..stores.cache import KVCache
from .decoder import Decoder
from .feed import Feed

T = TypeVar("T")


class Executor:
    """The eager executor: runs the decoder as written, under inference mode.

    On CUDA durations come from events and are read by `elapsed_us` when the step has already waited for the result.
    together: how many runs the last pass was for; None: for one alone
    """

    together: int | None = None

    def __init__(self, device: torch.device | str):
        self.device = torch.device(device)
        self._events = self.device.type == "cuda"

    def run(
        self,
        decoder: Decoder,
        feed: Feed,
        cache: KVCache | None,
        probe: Probe | None = None,
        skip: Skip | None = None,
        depth: DepthRule | None = None,
        ran: ExecutedLayers | None = None,
    ) -> Tensor:
        """Logits of the pass, float [B, T or 1, V]; raises EngineFault when memory or device fail."""
        return catch_device_faults(lambda: decoder.forward(feed, cache, probe, skip, depth, ran), self.device)

    def row_maxima(self, logits: Tensor) -> tuple[Tensor | np.ndarray, list[int]]:
        """The row maxima of the last pass's logits, as `row_maxima` returns them."""
        return row_maxima(logits)

    def mark(self) -> float | torch.cuda.Event:
        """A moment on the device's clock."""
        if not self._events:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def elapsed_us(self, start: float | torch.cuda.Event, end: float | torch.cuda.Event) -> float:
        """Microseconds between two moments."""
        if not self._events:
            return (end - start) * 1e6  # type: ignore[operator] # two numbers
        assert isinstance(start, torch.cuda.Event) and isinstance(end, torch.cuda.Event)
        end.synchronize()
        microseconds: float = start.elapsed_time(end) * 1e3
        return microseconds


def catch_device_faults(work: Callable[[], T], device: torch.device) -> T:
    """Run `work`; turn the device's failures into EngineFault."""
    try:
        return work()
    except torch.OutOfMemoryError as e:
        raise EngineFault("out_of_memory", memory_message(device, str(e))) from None
    except RuntimeError as e:
        text = str(e)
        if "out of memory" in text or "can't allocate memory" in text or "DefaultCPUAllocator" in text:
            raise EngineFault("out_of_memory", memory_message(device, text)) from None
        if "CUDA error" in text or "device-side assert" in text or "device lost" in text:
            first = text.splitlines()[0]
            raise EngineFault(
                "device_lost", f"The device stopped answering ({first}); restart the lab."
            ) from None
        raise


def memory_message(device: torch.device, detail: str) -> str:
    """One sentence: what ran out, what is free, what to do next."""
    free = ""
    if device.type == "cuda" and torch.cuda.is_available():
        free = f" {torch.cuda.mem_get_info(device)[0] >> 20} MiB were free."
    wanted = next((line for line in detail.splitlines() if "allocate" in line), "").strip()
    wanted = f" ({wanted[:160]})" if wanted else ""
    return f"Memory ran out on {device}{wanted}.{free} Use a smaller model, a shorter prompt, or a policy with a budget."
