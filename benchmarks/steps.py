"""Where the time of a method's steps goes, function by function.

    python benchmarks/steps.py token_recycling draft_model sequoia [--overhead] [--dtype bfloat16] [--rows 15]
    python benchmarks/steps.py --from found.json       # the three with the least gain, of decodescope bench speculation --out
    python benchmarks/steps.py --shares eagle sequoia "eagle (drawn)"     # no name: all methods of bench speculation

A method is a name or NAME=RECIPE, as for decodescope bench speculation. Each decodes the same question twice: once to warm
up, once under Python's profiler, which makes every call of Python dearer and no product of matrices: read which functions are
many or heavy, not how long a step takes. `own` is the time inside a function itself, without what it calls; operations of
torch are functions too. Times in the table are processor time of the main thread, so that other programs do not count; what a
GPU or further threads do is not in them. With --overhead the profiler looks away while a model or a draft head works: what is
left is what drafting, deciding and keeping books cost.

With --shares there is no profiler, and a row for each method instead: what a step takes beside passes and draft heads, its
share of the step (median of five rounds), and the operators of torch that it calls there, the same on every machine. With
--processor these times are processor time of the main thread too, which other programs disturb less than a clock on the wall.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from decodescope.app.basis.refusal import sentence
from decodescope.app.commands.bench.speculation import parse_variants
from decodescope.app.commands.shared.output import table
from decodescope.engine import Method, load
from decodescope.engine.bench.clock.head_clock import HeadClock, attach_clock
from decodescope.engine.bench.figures.speculation import VERSION
from decodescope.engine.bench.labbench import QUESTIONS, Bench
from decodescope.engine.bench.questions.questions import BenchQuestion, read_questions
from decodescope.engine.bench.speculation import SpecEntry, SpeculationBench
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.session.session import Session
from decodescope.engine.trace.records.events import Step

SLOWEST = 3
ROUNDS = 5  # rounds; shares are their medians


def slowest(path: Path) -> dict[str, Method]:
    """The methods of a result with the least gain, greedy ones, the slowest first."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refusal(
            f"{path} cannot be read ({str(error)[:80]}): give what bench speculation --out wrote."
        ) from None
    if not isinstance(found, dict) or found.get("speculation") != VERSION:
        raise Refusal(
            f"{path} holds no result of version {VERSION}: give what bench speculation --out wrote."
        )
    gains = {
        name: one["ratio"]["median"]
        for name, one in found["methods"].items()
        if one["side"] == "decodescope" and one["ratio"] and not one["drawn"] and not one["plain"]
    }
    worst = sorted(gains, key=lambda name: gains[name])[:SLOWEST]
    return {name: Method.from_record(found["methods"][name]["parts"]) for name in worst}


class Operators(TorchDispatchMode):
    """Counts the operators of torch between `enable` and `disable`, as a profiler does with functions."""

    count, on = 0, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += self.on
        return func(*args, **(kwargs or {}))

    def enable(self) -> None:
        """Count."""
        self.on = True

    def disable(self) -> None:
        """Look away."""
        self.on = False


class Away(HeadClock):
    """A clock that stops the profiler `watch` while passes run or heads work."""

    watch: cProfile.Profile | Operators | None = None

    def enter(self, work: Any = None, given: Sequence[Any] = ()) -> None:
        """Look away."""
        if self.watch is not None:
            self.watch.disable()
        super().enter(work, given)

    def leave(self, counts: bool = True) -> None:
        """Look again, if nothing else is going on."""
        super().leave(counts)
        if self.watch is not None and self._deep == 0:
            self.watch.enable()


def profiled(
    bench: Bench, method: Method, question: BenchQuestion, new: int, overhead: bool
) -> tuple[pstats.Stats, list[Step]]:
    """Statistics of the steps alone, and their records; the prompt is read before."""
    with attach_clock(Away(bench.model, bench.models(method))) as away:
        return _profiled(bench, method, question, new, away, overhead)


def _profiled(
    bench: Bench, method: Method, question: BenchQuestion, new: int, away: Away, overhead: bool
) -> tuple[pstats.Stats, list[Step]]:
    for _ in range(2):
        session = _begun(bench, method, question, new, away)
        watch = cProfile.Profile(time.thread_time)
        away.watch = watch if overhead else None
        watch.enable()
        steps = list(session.stream())
        watch.disable()
        away.watch = None
    return pstats.Stats(watch), steps


def _begun(bench: Bench, method: Method, question: BenchQuestion, new: int, away: Away) -> Session:
    """A session that has read the question."""
    prompt, stops = bench.first_prompt(question), bench.model.stop_tokens
    session = Session(
        away.model, method, prompt, models=away.drafts, max_new_tokens=new, stop_tokens=stops, level="summary"
    )
    session.start()
    return session


def share(name: str, entry: SpecEntry, question: BenchQuestion, new: int) -> list[str]:
    """A method's row: steps, microseconds of a step outside passes and heads, their share, operators of torch."""
    bench, method = entry.bench, entry.method
    with attach_clock(Away(bench.model, bench.models(method))) as away:
        session, taken = _begun(bench, method, question, new, away), []
        with Operators() as operators:
            away.watch = operators
            operators.enable()
            n = len(list(session.stream()))
            away.watch = None
        for _ in range(ROUNDS):
            session = _begun(bench, method, question, new, away)
            away.take_us()
            steps = list(session.stream())
            whole = sum(x.wall_us for x in steps)
            taken.append((whole - away.take_us() - sum(p.wall_us for x in steps for p in x.passes), whole))
    us, part = statistics.median(x / n for x, _ in taken), statistics.median(x / whole for x, whole in taken)
    return [name, str(n), f"{us:.0f}", f"{part:.1%}", f"{operators.count / n:.0f}"]


def rows_of(stats: Mapping[Any, Any], steps: int, count: int) -> list[list[str]]:
    """The `count` functions with the most own time: name, calls a step, own and whole microseconds a step, share.

    stats: (file, line, function) -> (primitive calls, calls, own seconds, whole seconds, callers)
    """
    total = sum(x[2] for x in stats.values()) or 1.0
    made = []
    for (file, line, name), (_, calls, own, whole, _) in sorted(stats.items(), key=lambda x: -x[1][2])[
        :count
    ]:
        place = name.strip("<>") if file == "~" else f"{_short(file)}:{line} {name}"
        times = [f"{1e6 * x / steps:.0f}" for x in (own, whole)]
        made.append([place, f"{calls / steps:.1f}", *times, f"{100 * own / total:.1f} %"])
    return made


def _short(file: str) -> str:
    """The last two parts of a path."""
    return "/".join(Path(file).parts[-2:])


def told(name: str, stats: pstats.Stats, steps: list[Step], count: int) -> str:
    """A method's table, under how its steps divide."""
    n = len(steps)
    wall = sum(x.wall_us for x in steps) / n
    parts = {word: sum(getattr(x, f"{word}_us") for x in steps) / n for word in ("draft", "verify", "commit")}
    passes = sum(p.wall_us for x in steps for p in x.passes) / n
    head = (
        f"{name}: {n} steps of {wall:.0f} us under the profiler: "
        + ", ".join(f"{word} {us:.0f}" for word, us in parts.items())
        + f"; of it passes of models {passes:.0f}"
    )
    rows = rows_of(stats.stats, n, count)  # type: ignore[attr-defined] # its one way to the numbers
    return f"{head}\n\n" + table(
        ("function", "calls a step", "own us a step", "whole us a step", "own"), rows
    )


def main() -> None:
    """Decode, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("methods", nargs="*", metavar="METHOD", help="a name, or NAME=RECIPE")
    parser.add_argument(
        "--from", type=Path, dest="found", metavar="FOUND", help="a result, whose slowest methods are taken"
    )
    parser.add_argument(
        "--shares", action="store_true", help="a row for each method: what its steps take beside passes"
    )
    parser.add_argument(
        "--processor", action="store_true", help="with --shares: times are the main thread's on its processor"
    )
    parser.add_argument("--overhead", action="store_true", help="look away while models and draft heads work")
    parser.add_argument("--model", default="lab")
    parser.add_argument("--draft", default="lab-draft")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int)
    parser.add_argument(
        "--kind", default="code", help="of the question, the first of its kind (default: code)"
    )
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--rows", type=int, default=15, help="functions of each method (default: 15)")
    args = parser.parse_args()
    try:
        methods = {
            **({} if args.found is None else slowest(args.found)),
            **({} if args.shares else parse_variants(args.methods)),
        }
        if not methods and not args.shares:
            raise Refusal("Name a method, or give --from with a result of bench speculation.")
        torch.set_num_threads(args.threads or torch.get_num_threads())
        question = next((x for x in read_questions(QUESTIONS)[0] if x.kind == args.kind), None)
        if question is None:
            raise Refusal(
                f"No question is of the kind {args.kind}: take one of those that docs/labbench.md names."
            )
        models = load(args.model, args.dtype), load(args.draft, args.dtype)
        if args.shares:
            entries = SpeculationBench(models[0], {"draft": models[1]}).entries
            if unknown := [name for name in args.methods if name not in entries]:
                raise Refusal(
                    f"{unknown[0]} is none of the methods that bench speculation compares: {', '.join(entries)}."
                )
            with patch.object(
                time, "perf_counter", time.thread_time if args.processor else time.perf_counter
            ):
                made = [
                    share(name, entries[name], question, args.new_tokens) for name in args.methods or entries
                ]
            print(table(("method", "steps", "beside passes, us", "of a step", "operators"), made))
            return
        bench = Bench(models[0], methods, models[1])
        for name, method in methods.items():
            print(
                told(name, *profiled(bench, method, question, args.new_tokens, args.overhead), args.rows)
                + "\n"
            )
    except Refusal as error:
        sys.exit(sentence(error))


if __name__ == "__main__":
    main()
