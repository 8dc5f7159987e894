"""Lessons: prompts and small tables that the notebooks share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from decodescope.engine.bench.questions.prompts import PROMPTS
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import PassShape, pass_cost
from decodescope.engine.cost.hardware import HardwareProfile

if TYPE_CHECKING:
    from pandas import DataFrame

POINT = PROMPTS["class"]  # it repeats itself, as code does: the next method looks much like the last one
# As in LabBench: chat turns with an answer that nearly repeats their own text, and beginnings of stories, where all is new.
EDITS = (
    'Write brown instead of white.\nJulia went to the station with a white box. "Is this your white box?" asked Noah. Noah and '
    "Julia ate beans. Julia put the white box on the table. Noah liked the box of Julia very much.",
    'Write this again with Grace instead of Arthur.\nArthur went to the cave with a golden wheel. "Is this your golden wheel?" '
    "asked Jill. Jill and Arthur ate berries. Then Jill helped Arthur to carry the wheel home.",
    'Replace purple by black.\nMarco went to the valley with a purple bottle. There Marco met Lotte. "Yes," said Marco. Lotte '
    "and Marco ate cherries. Then Lotte helped Marco to carry the bottle home.",
)
STORIES = (
    "In a small town by the sea lived a careful girl called Luna who wanted to know everything.",
    "Once upon a time there was a quiet duck named Carl.",
    "Not long ago there was a small beaver called Kira who wanted to be a sailor.",
)


def cost_table(
    specs: Sequence[ModelSpec], tokens: Sequence[int] = (1,), held: int = 128, bits: int = 32
) -> DataFrame:
    """The cost of a pass over some tokens, after `held` entries of the cache, by the cost model."""
    import pandas

    rows = []
    for spec in specs:
        for n in tokens:
            cost = pass_cost(
                spec, PassShape(n, held, logits=n, weight_bits=bits, act_bits=bits, kv_bits=bits)
            )
            sizes = (cost.weight_bytes / 1e6, cost.bytes / 1e6, cost.flops / 1e6)
            rows.append((spec.name, spec.params / 1e6, n, *sizes, cost.intensity))
    names = [
        "model",
        "parameters, M",
        "tokens",
        "weights read, MB",
        "all bytes, MB",
        "MFLOP",
        "FLOP per byte",
    ]
    return pandas.DataFrame(rows, columns=names).round(2)


def time_table(
    spec: ModelSpec, machines: Sequence[HardwareProfile], held: int = 128, bits: int = 16
) -> DataFrame:
    """The minimum time of one token on each machine, by its data sheet: calculated, not measured."""
    import pandas

    cost = pass_cost(spec, PassShape(1, held, weight_bits=bits, act_bits=bits, kv_bits=bits))
    rows = []
    for one in machines:
        reading, counting = cost.bytes / one.bandwidth * 1e3, cost.flops / one.peak() * 1e3
        rows.append(
            (
                one.name,
                one.bandwidth / 1e9,
                one.peak() / 1e12,
                reading,
                counting,
                1e3 / max(reading, counting),
            )
        )
    names = ["machine", "GB/s", "TFLOP/s", "reading, ms", "arithmetic, ms", "tokens/s at most"]
    return pandas.DataFrame(rows, columns=names).round(2)
