"""Which cache still finds a pass key: right answers of a model by policy, budget and length of the prompt.

    python benchmarks/needles.py                                        every policy at a quarter of 128, 512 and 1,500 tokens
    python benchmarks/needles.py --tokens 512 --shares 0.5 0.1 0.05     at other budgets

The keys and stories are those of `bench kv` (`engine/bench/questions/passkeys.py`), greedy, float32. Answers are
counted and nothing is
timed, so a busy machine finds the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace

import torch
from labbench import table

from decodescope.engine.bench.kv import PLAIN, KVBench, default_methods
from decodescope.engine.bench.labbench import QUESTIONS
from decodescope.engine.bench.questions.passkeys import hide_key, longest_prompt, make_passkeys
from decodescope.engine.bench.questions.questions import BenchQuestion, read_questions
from decodescope.engine.bench.questions.score import score
from decodescope.engine.core.params import ParamError
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.session.load import load
from decodescope.engine.session.method import Method, MethodError
from decodescope.engine.session.run import encode_text_or_ids

ALL = "full cache"


def methods(bench: KVBench, shares: Sequence[float]) -> Iterator[tuple[str, float, Method]]:
    """The full cache, then every policy at every budget."""
    yield ALL, 1.0, PLAIN
    for name, method in default_methods(bench.model)[0].items():
        for share in shares:
            policy = copy(method.policy)
            policy.budget_share = share
            yield name, share, replace(method, policy=policy)


def prompt(bench: KVBench, key: BenchQuestion, tokens: int) -> list[int]:
    """The prompt that hides a key and asks for it, as near to `tokens` as whole sentences allow."""

    def length(turn: str) -> int:
        return len(encode_text_or_ids(bench.model, turn, True))

    turn = longest_prompt(key, length, tokens)
    if turn is None or length(hide_key(key, 0)) > tokens:
        raise SystemExit(
            f"{key.id} cannot be asked in {tokens} tokens: give more of them, and at most what its stories have."
        )
    return encode_text_or_ids(bench.model, turn, True)


def counted(
    bench: KVBench, method: Method, keys: Sequence[BenchQuestion], prompts: Sequence[list[int]]
) -> tuple[int, int]:
    """How many keys are found, and the bytes held behind all answers."""
    hits = held = 0
    for key, ids in zip(keys, prompts, strict=True):
        one = bench.answer(method, ids, key.references[0])
        assert key.scorer is not None
        hits, held = hits + (score(key.scorer, one.said, key.references[0]) == 1), held + one.kv_bytes
    return hits, held


def main() -> None:
    """Ask, count, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="lab-recall")
    parser.add_argument(
        "--tokens", type=int, nargs="+", default=[128, 512, 1500], help="lengths of the prompts"
    )
    parser.add_argument(
        "--shares", type=float, nargs="+", default=[0.25], help="budgets, as shares of a prompt"
    )
    parser.add_argument("--keys", type=int, default=20, help="pass keys of each length")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    bench = KVBench(load(args.model, "float32", "cpu"), {})
    keys = make_passkeys(read_questions(QUESTIONS)[0], args.keys)
    right: dict[tuple[str, float], list[str]] = {}
    for tokens in args.tokens:
        prompts = [prompt(bench, key, tokens) for key in keys]
        full = 1
        for name, share, method in methods(bench, args.shares):
            try:
                hits, held = counted(bench, method, keys, prompts)
            except (EngineFault, MethodError, ParamError) as error:  # a budget that this policy cannot have
                right.setdefault((name, share), []).append("-")
                print(f"{tokens} tokens, {name} {share:.0%}: {error}", flush=True)
                continue
            full = held if name == ALL else full
            right.setdefault((name, share), []).append(f"{hits} ({held / full:.0%})")
            print(f"{tokens} tokens, {name} {share:.0%}: {hits} of {len(keys)}", flush=True)
    head = ["method", "budget", *(f"{tokens:,} tokens" for tokens in args.tokens)]
    print(table(head, [[f"`{name}`", f"{share:.0%}", *cells] for (name, share), cells in right.items()]))


if __name__ == "__main__":
    main()
