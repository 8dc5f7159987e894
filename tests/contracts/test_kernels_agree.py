"""The requirements for every part with the kernels called rows: in float32 it does what it does with torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import toys
from sizes import by_turns

from decodescope.engine import Session
from decodescope.engine.kernels.choice import kernels_set_to
from decodescope.engine.session.method import Method
from decodescope.engine.trace import Trace, check

KINDS = ("policy", "kv_compression", "adaptive_depth")
PARTS = [(kind, part) for kind in KINDS for part in toys.representatives(kind)]


PROMPT = [*toys.PROMPT, *range(13), *reversed(range(13))][:40]
# equal tokens have keys of one norm in the first layer, which rounding puts in an order, so no token comes twice
SHORT = dict.fromkeys(("key_norm", "interval_eviction"), ([*range(13)], 2))


def decode(kernels: str, method: Method) -> Trace:
    """30 greedy tokens behind a prompt of 40, or fewer."""
    with kernels_set_to(kernels):
        target, models = toys.method_models(method, torch.float32)
        assert target.decoder.dtype == torch.float32
        prompt, count = SHORT.get(method.policy.name, (PROMPT, 30))
        session = Session(target, method, prompt, models=models, max_new_tokens=count)
        trace: Trace = toys.finish_session(session).sink
    assert check(trace).ok
    return trace


@pytest.mark.parametrize(("kind", "part"), by_turns(2, PARTS))
def test_both_kernels_give_the_same_text_and_probabilities(
    kind: str, part: tuple[str, dict[str, Any]]
) -> None:
    method = toys.method(**{kind: part})
    rows, theirs = (decode(kernels, method) for kernels in ("rows", "torch"))
    assert rows.end is not None and theirs.end is not None
    assert rows.end.tokens == theirs.end.tokens
    assert rows.header.kernels == "rows" and theirs.header.kernels == "torch"
    for ours, other in zip(rows.steps, theirs.steps, strict=True):
        if ours.tops is not None and other.tops is not None:
            assert np.allclose(ours.tops.p, other.tops.p, atol=1e-3)
