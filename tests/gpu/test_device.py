"""What only a CUDA device can show: the CPU's text, memory freed on the device, consistent traces, faults that end a run."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import toys

from decodescope.engine import Method, Session, run
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.session.load import Model
from decodescope.engine.trace import Trace, check

pytestmark = pytest.mark.gpu

COMPOSITIONS = [
    ({}, {}),
    ({"drafter": "prompt_lookup"}, {}),
    ({"drafter": "draft_model"}, {"drafter": {"width": 3}}),
    ({"drafter": "token_recycling"}, {}),
    ({"drafter": "layer_skip"}, {}),
    ({"policy": "h2o"}, {"policy": {"heavy": 6, "recent": 6}}),
    ({"policy": "streaming_llm"}, {"policy": {"sink_tokens": 2, "recent": 10}}),
    ({"strategy": "jacobi"}, {}),
]


def on(model: Model, device: str) -> Model:
    """The toy model on another device."""
    return toys.model(model.decoder.to(device=device))


@pytest.mark.parametrize(("names", "settings"), COMPOSITIONS, ids=lambda x: "-".join(map(str, x)) or "plain")
def test_the_device_writes_what_the_cpu_writes(names: dict, settings: dict) -> None:
    method = Method.from_names(names, settings)
    here, there = toys.target(torch.float64), on(toys.target(torch.float64), "cuda")
    draft = toys.draft(torch.float64)
    a = run(here, method, toys.PROMPT, draft=draft, max_new_tokens=32)
    b = run(there, method, toys.PROMPT, draft=on(draft, "cuda"), max_new_tokens=32)
    assert a.tokens == b.tokens
    assert check(b.trace).ok


def test_eviction_frees_the_devices_memory() -> None:
    model = on(toys.target(), "cuda")
    session = Session(
        model,
        Method.from_names({"policy": "window"}, {"policy": {"window": 16}}),
        [1] * 400,
        max_new_tokens=8,
    )
    before = torch.cuda.memory_allocated()
    session.start()
    assert torch.cuda.memory_allocated() - before < session.target.cache.nbytes + (1 << 20)
    assert session.target.cache.fullest_length <= 16


def test_memory_that_runs_out_ends_the_run_in_a_sentence_and_keeps_its_steps() -> None:
    session = Session(on(toys.target(), "cuda"), toys.method(), toys.PROMPT, max_new_tokens=400)
    session.sink = Trace()
    session.step()
    hoard = list[torch.Tensor]()
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / torch.cuda.mem_get_info()[1])
    try:
        for size in (1 << 20, 1 << 14, 512):  # bytes; the last is the smallest allocation
            with suppress(torch.OutOfMemoryError):
                while True:
                    hoard.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        with pytest.raises(EngineFault, match="MiB were free"):
            list(session.stream())
    finally:
        hoard.clear()
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert session.end is not None and session.end.reason == "out_of_memory"
    assert session.sink.steps and check(session.sink).ok


# an index out of bounds raises an assertion on the device, which then no longer answers this process
LOST = """
import toys, torch
from decodescope.engine import Session
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.trace import Trace
session = Session(toys.model(toys.target().decoder.to(device="cuda")), toys.method(), toys.PROMPT, max_new_tokens=40)
session.sink = Trace()
session.step()
torch.zeros(1, device="cuda")[torch.tensor([5], device="cuda")]
try:
    list(session.stream())
except EngineFault as fault:
    print(fault.reason, session.end.reason, len(session.sink.steps))
"""


def test_a_device_that_is_lost_ends_the_run_and_keeps_its_steps() -> None:
    here = Path(__file__).resolve().parents[1]
    made = subprocess.run([sys.executable, "-c", LOST], cwd=here, capture_output=True, text=True, timeout=120)
    assert made.stdout.split() == ["device_lost", "device_lost", "1"], made.stderr
