"""Lessons: prompts and small tables that the notebooks share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from decodescope.engine.bench.questions.prompts import PROMPTS
from decodescope.engine.core.files import data_folder
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
# The real model of the chapters and of the first examples: `decodescope models get NAME` fetches it.
REAL_MODEL, REAL_FILE = "smollm2-135m-instruct", "SmolLM2-135M-Instruct.Q4_1.gguf"
CODE = (
    '```python\ndef greet(name, times):\n    for i in range(times):\n        print(f"Hello, {name}!")\n```\n\n'
    "Write the same function with type hints: `name: str`, `times: int`."
)
PAGE = (
    "Town library. Opening hours: Monday to Friday from 9 am to 8 pm, on Saturday from 10 am to 4 pm. The library is "
    "closed on Sunday and on public holidays. Books can be borrowed for four weeks and renewed twice, films for one "
    "week. A card costs 12 euros a year; it is free for children and students. The reading room on the first floor "
    "has 40 seats and free internet access. Printers and copiers stand beside the stairs, and a page costs 10 cents. "
    "The café in the courtyard opens at 11 am. Rooms for groups are booked at the desk, at most two hours a day. On "
    "the first Thursday of each month there is a reading for children at 4 pm. Returns are possible at any time at "
    "the box beside the entrance."
)


def real_model_path() -> Path:
    """The file of the real model, which may be missing; DECODESCOPE_REAL_MODEL names another place."""
    named = os.environ.get("DECODESCOPE_REAL_MODEL")
    return Path(named) if named else data_folder() / "models" / REAL_MODEL / REAL_FILE


def real_or_lab() -> tuple[str, str]:
    """What a chapter loads where it shows a model that answers, and one line that says which: the real model if it was fetched,
    else `lab`."""
    path = real_model_path()
    if path.is_file():
        return str(path), f"This is {REAL_MODEL}, a real model that was fetched to this machine."
    return "lab", f"This is lab, a toy. For a model that answers run: decodescope models get {REAL_MODEL}"


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
