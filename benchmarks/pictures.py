"""How many cells of a picture a pass writes: speculative Jacobi decoding on `lab-digits`, with and without LANTERN; ZipAR's
rows there, and RandAR's groups on `lab-digits-any`.

    python benchmarks/pictures.py
    python benchmarks/pictures.py --seeds 1 --classes 2

Ten classes, so many seeds of each, temperature 1, whole pictures. What is counted (tokens, passes, rows) is the same on every
machine and under any load, up to ties in the last bit of a sum; nothing is timed. The table goes to standard output.
"""

from __future__ import annotations

import argparse
from typing import Any

from decodescope.app.commands.shared.output import table
from decodescope.engine.session.load import Model, load
from decodescope.engine.session.method import Method
from decodescope.engine.session.run import run

WINDOWS: dict[str, dict[str, Any]] = {
    "8 (usual)": {},
    "8, repeat": {"initial_guess": "repeat"},
    "16 (the authors')": {"window": 16},
    "16, repeat": {"window": 16, "initial_guess": "repeat"},
}
RULES = ("lossless", "lantern")
STRATEGIES: dict[str, tuple[str, dict[str, Any]]] = {
    "zipar, 3 (usual)": ("zipar", {"window": 3}),
    "zipar, 8: plain decoding": ("zipar", {"window": 8}),
    "randar, 24 passes (usual)": ("randar", {"steps": 24}),
    "randar, 16 passes": ("randar", {"steps": 16}),
    "randar, 64: a cell a pass": ("randar", {"steps": 64}),
}
HEAD = ("window, or strategy", "rule", "tokens", "passes", "tokens a pass", "rows a token")


def drafting(window: dict[str, Any], rule: str) -> Method:
    """Speculative Jacobi decoding with this window and rule."""
    names = {"drafter": "sjd", "sampler": "temperature", "acceptance": rule}
    return Method.from_names(names, {"drafter": window, "sampler": {"temperature": 1.0}})


def counted(model: Model, method: Method, seeds: int, classes: int) -> tuple[int, int, int]:
    """Tokens, passes and rows fed of all pictures; the reading of the prompt is none of them."""
    tokens = passes = rows = 0
    for seed in range(seeds):
        for label in range(classes):
            one = run(model, method, str(label), max_new_tokens=65, seed=seed)
            tokens += len(one.tokens)
            passes += sum(len(step.passes) for step in one.trace.steps)
            rows += sum(x.tokens for step in one.trace.steps for x in step.passes)
    return tokens, passes, rows


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--model", default="lab-digits", metavar="M", help="a model that writes pictures in raster order"
    )
    parser.add_argument(
        "--any", default="lab-digits-any", metavar="M", help="one that writes cells in any order"
    )
    parser.add_argument("--seeds", type=int, default=3, help="pictures of each class")
    parser.add_argument(
        "--classes", type=int, default=10, choices=range(1, 11), metavar="N", help="the first so many"
    )
    args = parser.parse_args()
    model = load(args.model, "float32", "cpu")
    other = load(args.any, "float32", "cpu")
    lines = []
    todo = [
        (name, f"`{rule}`", model, drafting(window, rule))
        for name, window in WINDOWS.items()
        for rule in RULES
    ]
    for name, (strategy, knobs) in STRATEGIES.items():
        settings = {"strategy": knobs, "sampler": {"temperature": 1.0}}
        method = Method.from_names({"strategy": strategy, "sampler": "temperature"}, settings)
        todo.append((name, "-", other if strategy == "randar" else model, method))
    for name, rule, which, method in todo:
        tokens, passes, rows = counted(which, method, args.seeds, args.classes)
        lines.append(
            [name, rule, f"{tokens:,}", f"{passes:,}", f"{tokens / passes:.2f}", f"{rows / tokens:.2f}"]
        )
    print(table(HEAD, lines))


if __name__ == "__main__":
    main()
