"""Where a pass of the shipped models goes: products, other operators, Python between them; and what a step adds to passes.

    python benchmarks/operators.py --threads 1 [--dtype bfloat16] [--rows 1 5 16] [--entries 160]

A pass runs once under a mode of torch that writes down its operators; those that reckon are then called again from a list,
with the same arguments, which is what the pass would take if nothing stood between them. "between" is the rest: Python, and
operators that only look at a tensor in another way. Lower quartiles of 80 rounds, in turns. A step's own part is what drafting,
deciding and committing take beside passes; recording comes after that, and is given as a share of the step.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from decodescope.app.commands.shared.output import table
from decodescope.engine import load
from decodescope.engine.kernels.choice import use_kernels
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.session.load import Model
from decodescope.engine.session.session import Session
from decodescope.engine.trace.records.events import Level

ROUNDS = 80
LOOKS = (
    "view",
    "slice",
    "permute",
    "transpose",
    "select",
    "split",
    "chunk",
    "expand",
    "unflatten",
    "unsqueeze",
    "unbind",
)
STEPS = ("drafter", "recorded", "tokens a step", "step, ms", "beside passes, ms", "of the step", "recording")
PROMPT = "import os\nimport sys\n\ndef read(path):\n    with open(path) as f:\n        return f.read()\n\ndef main():\n"


class Written(TorchDispatchMode):
    """Writes down the operators that run under it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        # what was made stays, so that views of it stay too
        self.calls.append((func, args, kwargs or {}, made))
        return made


def in_turns(*work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """The lower quartile of each, in microseconds."""
    times: list[list[float]] = [[] for _ in work]
    for _ in range(ROUNDS):
        for one, taken in zip(work, times, strict=True):
            start = clock()
            one()
            taken.append(1e6 * (clock() - start))
    return [statistics.quantiles(x, n=4)[0] for x in times]


def passes(name: str, model: Model, rows: int, entries: int) -> list[str]:
    """A row of the table: a pass of so many rows over so many entries."""
    decoder, feed = model.decoder, Feed.causal_chain([7] * rows, entries)
    cache = KVCache(decoder.spec, dtype=decoder.dtype)
    decoder.forward(Feed.causal_chain([5] * entries, 0, logits="last"), cache)
    cache.commit(range(entries))

    def whole() -> None:
        decoder.forward(feed, cache)
        cache.rollback()

    whole()
    with Written() as written:
        whole()
    calls = [x[:3] for x in written.calls if not str(x[0]).split(".")[1].startswith(LOOKS)]
    products = [x for x in calls if "linear" in str(x[0])]

    def again(some: list[tuple[Any, ...]]) -> Callable[[], None]:
        return lambda: [func(*args, **more) for func, args, more in some] and None

    full, reckoned, multiplied = in_turns(whole, again(calls), again(products))
    cells = [full, multiplied, reckoned - multiplied, full - reckoned]
    return [
        name,
        str(rows),
        *(f"{x / 1e3:.2f}" for x in cells),
        f"{len(written.calls)}, {len(calls)}, {len(products)}",
    ]


def steps(model: Model, draft: Model, prompt: list[int], method: str, level: Level) -> list[str]:
    """A row of the table: the steps of a method behind a prompt."""
    rounds = []
    for _ in range(4):
        session = Session(
            model, method, prompt, models={"draft": draft}, max_new_tokens=64, stop_tokens=[], level=level
        )
        session.start()
        start = time.perf_counter()
        done = list(session.stream())
        whole = 1e6 * (time.perf_counter() - start)
        wall, own = (
            sum(x.wall_us for x in done),
            sum(x.wall_us - sum(p.wall_us for p in x.passes) for x in done),
        )
        rounds.append((whole / len(done), own / len(done), whole / wall - 1, 64 / len(done)))
    step, own, recording, tokens = min(rounds)
    return [
        method,
        level,
        f"{tokens:.2f}",
        f"{step / 1e3:.2f}",
        f"{own / 1e3:.2f}",
        f"{own / step:.1%}",
        f"{recording:.1%}",
    ]


@torch.inference_mode()
def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 5, 16])
    parser.add_argument("--entries", type=int, default=160)
    args = parser.parse_args()
    use_kernels("torch")  # whose operators are counted and timed
    torch.set_num_threads(args.threads)
    for dtype in args.dtype:
        models = {name: load(name, dtype) for name in ("lab", "lab-draft")}
        made = [
            passes(name, model, rows, args.entries) for name, model in models.items() for rows in args.rows
        ]
        head = (
            "model",
            "rows",
            "pass, ms",
            "products",
            "other operators",
            "between",
            "calls, that reckon, products",
        )
        print(f"{dtype}, {args.threads} threads, {args.entries} entries\n\n{table(head, made)}\n")
        kinds: tuple[tuple[str, Level], ...] = (("none", "summary"), ("none", "decisions"), *_drafted())
        tokenizer = models["lab"].tokenizer
        assert tokenizer is not None
        cells = [steps(models["lab"], models["lab-draft"], tokenizer.encode(PROMPT), *kind) for kind in kinds]
        print(table(STEPS, cells) + "\n")


def _drafted() -> tuple[tuple[str, Level], ...]:
    return tuple(
        (method, level) for method in ("draft_model", "prompt_lookup") for level in ("summary", "decisions")
    )


if __name__ == "__main__":
    main()
