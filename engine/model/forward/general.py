"""General: the layers of a pass one after the other, each for all rows.

Nothing is decided here. A probe, a window, sinks, a prefix, a special store: each is a matter of the attention block
(`attention_block.py`), and which kernel runs is a matter of `attention/dispatch.py`.
"""

from __future__ import annotations

from torch import Tensor

from .attention_block import AttentionBlock


def run(block: AttentionBlock, x: Tensor, until: int) -> Tensor:
    """The states [B, T, d_model] that enter layer `until`; the number of layers means those after the last one.

    x: the states in the same shape that enter the first layer, `Feed.enter`. Each layer below `until` gets T pending rows, and
    the probe the states that it asks for.
    """
    probe = block.probe
    for i in range(block.feed.enter, until):
        if probe is not None and i in probe.needs.hidden:
            probe.hidden[i] = x
        x = block.stack.ffn(i, block.attend(i, x))
    if probe is not None and until in probe.needs.hidden:
        probe.hidden[until] = x
    return x
