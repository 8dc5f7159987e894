"""Layer schedule: how many layers each token of an answer runs, and which; later tokens run fewer.

No torch.

Del Corro et al. 2023, arXiv:2307.02628, section 3: a linear decay from `max_layers` to `min_layers`. So the work is known
before the first token, and a later token never needs an entry that an earlier one did not leave.
"""

from __future__ import annotations


def layer_count_at(position: int, most: int, least: int, horizon: int) -> int:
    """Layers that the token at `position` of the answer runs: most - (most - least) position / horizon, rounded to the nearest
    number, halves up; `least` from the horizon on."""
    fallen = 2 * (most - least) * min(position, horizon)
    return (2 * most * horizon - fallen + horizon) // (2 * horizon)


def executed_layers(count: int, warmup: int, layers: int) -> list[int]:
    """The `count` layers that run: the first `warmup` layers, and the last of the model's `layers` layers."""
    return [*range(min(warmup, count)), *range(layers - max(count - warmup, 0), layers)]


def total_layer_runs(tokens: int, most: int, least: int, horizon: int) -> int:
    """The total number of layers that the first `tokens` of an answer run, in closed form.

    An a-th layer runs as long as the decay is less than half a layer below it.
    """
    if most == least:
        return tokens * most
    last = (horizon * (2 * (most - a) + 1) // (2 * (most - least)) for a in range(least + 1, most + 1))
    return tokens * least + sum(min(tokens, x + 1) for x in last)
