"""How many cells of a picture a pass writes: speculative Jacobi decoding on `lab-digits`, with and without LANTERN.

    python benchmarks/pictures.py
    python benchmarks/pictures.py --seeds 1 --classes 2

Ten classes, so many seeds of each, temperature 1, whole pictures. What is counted (tokens, passes, rows) is the same on every
machine and under any load, up to ties in the last bit of a sum; nothing is timed. The table goes to standard output.
"""

from __future__ import annotations

import argparse
from typing import Any

from decodescope.app.commands.output import table
from decodescope.engine.load import Model, load
from decodescope.engine.method import Method
from decodescope.engine.run import run

WINDOWS: dict[str, dict[str, Any]] = {
    "8 (usual)": {},
    "8, repeat": {"refill": "repeat"},
    "16 (the authors')": {"window": 16},
    "16, repeat": {"window": 16, "refill": "repeat"},
}
RULES = ("lossless", "lantern")
HEAD = ("window", "rule", "tokens", "passes", "tokens a pass", "rows a token")


def counted(model: Model, window: dict[str, Any], rule: str, seeds: int, classes: int) -> tuple[int, int, int]:
    """Tokens, passes and rows fed of all pictures; the reading of the prompt is none of them."""
    tokens = passes = rows = 0
    for seed in range(seeds):
        for label in range(classes):
            method = Method.named(
                {"drafter": "sjd", "sampler": "temperature", "acceptance": rule},
                {"drafter": window, "sampler": {"temperature": 1.0}},
            )
            one = run(model, method, str(label), max_new_tokens=65, seed=seed)
            tokens += len(one.tokens)
            passes += sum(len(step.passes) for step in one.trace.steps)
            rows += sum(x.tokens for step in one.trace.steps for x in step.passes)
    return tokens, passes, rows


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="lab-digits", metavar="M", help="a model that writes pictures in raster order")
    parser.add_argument("--seeds", type=int, default=3, help="pictures of each class")
    parser.add_argument("--classes", type=int, default=10, choices=range(1, 11), metavar="N", help="the first so many")
    args = parser.parse_args()
    model, lines = load(args.model, "float32", "cpu"), []
    for name, window in WINDOWS.items():
        for rule in RULES:
            tokens, passes, rows = counted(model, window, rule, args.seeds, args.classes)
            lines.append([name, f"`{rule}`", f"{tokens:,}", f"{passes:,}", f"{tokens / passes:.2f}", f"{rows / tokens:.2f}"])
    print(table(HEAD, lines))


if __name__ == "__main__":
    main()
