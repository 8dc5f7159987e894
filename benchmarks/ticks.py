"""What pipelines of layers would save: simulated ticks on the questions of LabBench, by exit and guesses.

    python benchmarks/ticks.py [--each 2] [--new-tokens 48] [--only speed]

It runs so many questions of each kind, greedy, in float32. It prints a line for each exit d and number of branches k of
`predictive`, and for each exit of `speed`. A line has the share r of tokens that had begun before they were known, ticks a
token compared with those of plain decoding, layers run a token by all that were in flight, and how many of the texts are plain
decoding's, token by token.
"""

from __future__ import annotations

import argparse
from itertools import product

from decodescope.app.commands.shared.output import table
from decodescope.engine import Method, Session
from decodescope.engine.bench.labbench import QUESTIONS, Bench
from decodescope.engine.bench.questions.questions import read_questions, spread_over_kinds
from decodescope.engine.methods.strategies.predictive import Predictive
from decodescope.engine.methods.strategies.speed import Speed
from decodescope.engine.session.load import Model, load


def written(model: Model, method: Method, prompt: list[int], count: int) -> Session:
    """A run of at most `count` tokens, to its end."""
    session = Session(model, method, prompt, max_new_tokens=count)
    while not session.is_done:
        session.step()
    return session


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--each", type=int, default=2, help="questions of each kind")
    parser.add_argument("--new-tokens", type=int, default=48, help="the most of an answer")
    parser.add_argument("--only", choices=("predictive", "speed"), help="of the two strategies")
    args = parser.parse_args()
    model = load("lab", "float32", "cpu")
    layers, bench = model.spec.n_layers, Bench(model, {})
    questions, _ = read_questions(QUESTIONS)
    prompts = [bench.first_prompt(x) for x in spread_over_kinds(questions, args.each)]
    plain = [written(model, Method(), x, args.new_tokens).tokens for x in prompts]
    lines = []
    middle = product(range(layers // 2, layers), (1, 3, 8))
    every = [(Predictive(layers=d, branches=k), d, str(k)) for d, k in middle]
    every += [(Speed(layers=e), e, "chain") for e in range(1, layers)]
    for strategy, d, guesses in (x for x in every if args.only in (None, x[0].name)):
        runs = [written(model, Method(strategy=strategy), x, args.new_tokens) for x in prompts]
        tokens, ticks, work = (
            sum(getattr(run.scratch, x) for run in runs) for x in ("tokens", "clock", "work")
        )
        r = (layers * tokens - ticks) / (tokens * (layers - d))
        same = sum(run.tokens == text for run, text in zip(runs, plain, strict=True))
        lines.append(
            [
                strategy.name,
                d,
                guesses,
                f"{100 * r:.0f} %",
                f"{ticks / tokens:.2f}",
                f"{layers * tokens / ticks:.2f}",
            ]
        )
        lines[-1] += [f"{work / tokens:.1f}", same]
    print(f"{len(prompts)} questions, {tokens} tokens, {layers} layers")
    heads = ("strategy", "d", "guesses", "r", "ticks a token", "fewer by", "layers run", "same text")
    print(table(heads, [[*map(str, x)] for x in lines]))


if __name__ == "__main__":
    main()
