"""What only a CUDA device can show: the same text as on the CPU, memory that is freed there, traces that agree."""

from __future__ import annotations

import pytest
import torch
import toys

from decodescope.engine import Method, Session, run
from decodescope.engine.load import Model
from decodescope.engine.trace import check

pytestmark = pytest.mark.gpu

COMPOSITIONS = [
    ({}, {}),
    ({"drafter": "prompt_lookup"}, {}),
    ({"drafter": "draft_model"}, {"drafter": {"width": 3}}),
    ({"drafter": "token_recycling"}, {}),
    ({"drafter": "layer_skip"}, {}),
    ({"policy": "h2o"}, {"policy": {"heavy": 6, "recent": 6}}),
    ({"policy": "streaming_llm"}, {"policy": {"sinks": 2, "recent": 10}}),
    ({"strategy": "jacobi"}, {}),
]


def on(model: Model, device: str) -> Model:
    """The toy model on another device."""
    return toys.model(model.decoder.to(device=device))


@pytest.mark.parametrize(("names", "settings"), COMPOSITIONS, ids=lambda x: "-".join(map(str, x)) or "plain")
def test_the_device_writes_what_the_cpu_writes(names: dict, settings: dict) -> None:
    method = Method.named(names, settings)
    here, there = toys.target(torch.float64), on(toys.target(torch.float64), "cuda")
    draft = toys.draft(torch.float64)
    a = run(here, method, toys.PROMPT, draft=draft, max_new_tokens=32)
    b = run(there, method, toys.PROMPT, draft=on(draft, "cuda"), max_new_tokens=32)
    assert a.tokens == b.tokens
    assert check(b.trace).ok


def test_eviction_frees_the_devices_memory() -> None:
    model = on(toys.target(), "cuda")
    session = Session(model, Method.named({"policy": "window"}, {"policy": {"size": 16}}), [1] * 400, max_new_tokens=8)
    before = torch.cuda.memory_allocated()
    session.start()
    assert torch.cuda.memory_allocated() - before < session.target.cache.nbytes + (1 << 20)
    assert session.target.cache.held <= 16
