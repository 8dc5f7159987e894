"""How fast a real model is decoded: beside transformers and llama.cpp, and with drafters on Spec-Bench's questions.

    python benchmarks/real_model.py peers FOLDER_OR_GGUF... [--dtype bfloat16] [--threads 2]
    python benchmarks/real_model.py questions FOLDER_OR_GGUF --questions question.jsonl [--each 10]

`peers` prints tokens a second of plain decoding and milliseconds of a pass of some rows. transformers takes part where a folder
is given, llama.cpp where a GGUF file is given and `llama_cpp` can be imported. They take turns, and the fastest turn counts.

`questions` asks the first questions of each of Spec-Bench's tasks (conversation: the first of each category, then the second of
writing and coding), all turns, greedily. Later turns follow on plain decoding's answers. A method's speed is tokens a second of
whole calls, prompts included, over those of plain decoding, which answers each question at once before it. Settings
follow the drafter's name: `anpd:max_draft_tokens=3`, `draft_model:schedule=goodput:schedule.machine=here`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from decodescope.engine import load
from decodescope.engine.bench.questions.spec_bench import TALKS, TASK_OF, TASKS
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.decoding.shared.verify_cost import pass_us
from decodescope.engine.kernels.choice import OneThreadForTorch, set_pass_threads
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import KINDS, Method
from decodescope.engine.session.run import Run, prepare_run, read_prompt

ROWS = (1, 2, 4, 8, 16)
HELD, PROMPT, WRITTEN = 100, 512, 96  # tokens
IDS = list(range(1000, 1000 + PROMPT))
SECOND = ("writing", "coding")  # categories of conversation that are asked twice among the first ten


# ---- peers


def fastest(turn: Callable[[], float], turns: int) -> float:
    """The least seconds of several turns."""
    return float(min(turn() for _ in range(turns)))


def our_times(model: Model, turns: int) -> tuple[float, list[float], float]:
    """Seconds a token of plain decoding, of a pass of each of ROWS, and of a prompt."""
    decoder = model.decoder

    def plain() -> float:
        run = decode(model, None, IDS[:HELD], WRITTEN)
        return sum(x.wall_us for x in run.trace.steps) / 1e6 / len(run.tokens)

    def prompt() -> float:
        lane = Lane("timed", decoder, CachePolicy())
        began = time.perf_counter()
        lane.read(IDS)
        return time.perf_counter() - began

    token = fastest(plain, turns)
    with torch.inference_mode(), OneThreadForTorch(decoder.dtype, decoder.device):
        lane = Lane("timed", decoder, CachePolicy())
        lane.read(IDS[:HELD])
        passes = [fastest(partial(pass_us, lane, rows), 4 * turns) / 1e6 for rows in ROWS]
        return token, passes, fastest(prompt, turns)


def their_times(model: Any, turns: int) -> tuple[float, list[float], float]:
    """The same of a model of transformers."""
    from transformers import DynamicCache

    ids = torch.tensor([IDS], device=model.device)

    def plain() -> float:
        began = time.perf_counter()
        model.generate(
            ids[:, :HELD],
            attention_mask=torch.ones_like(ids[:, :HELD]),
            max_new_tokens=WRITTEN,
            min_new_tokens=WRITTEN,
            do_sample=False,
        )
        return (time.perf_counter() - began) / WRITTEN

    def read(cache: DynamicCache, rows: int) -> float:
        began = time.perf_counter()
        model(ids[:, :rows], past_key_values=cache)
        seconds = time.perf_counter() - began
        cache.crop(-rows)
        return seconds

    with torch.inference_mode():
        token = fastest(plain, turns)
        cache = DynamicCache()
        model(ids[:, :HELD], past_key_values=cache)
        passes = [fastest(partial(read, cache, rows), 4 * turns) for rows in ROWS]
        return token, passes, fastest(lambda: read(DynamicCache(), PROMPT), turns)


def llama_times(llama: Any, turns: int) -> tuple[float, list[float], float]:
    """The same of a model of llama.cpp."""

    def read(first: int, rows: int) -> float:
        llama.n_tokens = first
        began = time.perf_counter()
        llama.eval(IDS[:rows])
        return time.perf_counter() - began

    def plain() -> float:
        read(0, HELD)
        return sum(read(HELD + i, 1) for i in range(WRITTEN)) / WRITTEN

    token = fastest(plain, turns)
    passes = [fastest(partial(read, HELD, rows), 4 * turns) for rows in ROWS]
    return token, passes, fastest(lambda: read(0, PROMPT), turns)


def print_times(name: str, times: tuple[float, list[float], float]) -> None:
    """One row of the table."""
    token, passes, prompt = times
    cells = [f"{1 / token:.1f}", *(f"{1e3 * x:.1f}" for x in passes), f"{1e3 * prompt:.0f}"]
    print("|", " | ".join([name, *cells]), "|", flush=True)


def compare_peers(args: argparse.Namespace) -> None:
    """Print the table of `peers`."""
    print("| model | tokens/s |", *(f"{rows} |" for rows in ROWS), f"prompt of {PROMPT} |")
    print("|---" * (3 + len(ROWS)) + "|")
    for name in args.models:
        path = Path(name)
        model = load(path, args.dtype, "cpu")
        print_times(f"{model.name}, {args.dtype}, DecodeScope", our_times(model, args.turns))
        if path.suffix == ".gguf":
            with_llama(path, args)
        else:
            from transformers import AutoModelForCausalLM

            peer = AutoModelForCausalLM.from_pretrained(
                path, dtype=model.decoder.dtype, local_files_only=True
            )
            print_times(f"{model.name}, {args.dtype}, transformers", their_times(peer.eval(), args.turns))


def with_llama(path: Path, args: argparse.Namespace) -> None:
    """The row of llama.cpp, where it is installed."""
    try:
        llama_cpp = importlib.import_module("llama_cpp")
    except ImportError:
        print(f"| {path.stem}: llama_cpp is not installed |")
        return
    threads = {"n_threads": args.threads, "n_threads_batch": args.threads}
    llama = llama_cpp.Llama(str(path), n_ctx=1024, verbose=False, **threads)
    print_times(f"{path.stem}, llama.cpp", llama_times(llama, args.turns))


# ---- questions


def first_questions(path: Path, each: int) -> list[tuple[str, list[str]]]:
    """Task and turns of the first `each` questions of every task."""
    by_task: dict[str, list[tuple[str, list[str]]]] = {task: [] for task in TASKS}
    for line in path.read_text(encoding="utf-8").splitlines():
        question = json.loads(line)
        by_task[TASK_OF[question["category"]]].append((question["category"], question["turns"]))
    chosen = []
    for task, asked in by_task.items():
        ordered = talks_in_order(asked) if task == TALKS else [turns for _, turns in asked]
        chosen += [(task, turns) for turns in ordered[:each]]
    return chosen


def talks_in_order(asked: Sequence[tuple[str, list[str]]]) -> list[list[str]]:
    """The first question of each category, the second of SECOND, then all others."""
    by_category: dict[str, list[list[str]]] = {}
    for category, turns in asked:
        by_category.setdefault(category, []).append(turns)
    heads = [talks[0] for talks in by_category.values()]
    seconds = [by_category[category][1] for category in SECOND]
    rest = [x for c, talks in by_category.items() for x in talks[1 + (c in SECOND) :]]
    return [*heads, *seconds, *rest]


def decode(model: Model, method: Method | None, ids: Sequence[int], tokens: int) -> Run:
    """A whole greedy run."""
    run = prepare_run(model, method, ids, max_new_tokens=tokens, level="summary")
    read_prompt(run.session)
    for _ in run.session.stream():
        pass
    return run


class Count:
    """Seconds of whole calls and of steps, tokens, steps, equal texts and answers of one method on one task."""

    def __init__(self) -> None:
        self.seconds = self.step_seconds = 0.0
        self.tokens = self.steps = self.equal = self.answers = 0

    def add(self, seconds: float, run: Run, plain: Sequence[int]) -> None:
        """Count an answer. plain: the tokens of plain decoding"""
        self.seconds += seconds
        self.step_seconds += sum(x.wall_us for x in run.trace.steps) / 1e6
        self.tokens += len(run.tokens)
        self.steps += len(run.trace.steps)
        self.equal += run.tokens == list(plain)
        self.answers += 1

    def join(self, other: Count) -> None:
        """Add another's figures."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


PLAIN = "plain"


def ask_questions(args: argparse.Namespace) -> None:
    """Print the table of `questions`."""
    model = load(args.models[0], args.dtype, "cpu")
    assert model.tokenizer is not None
    methods: dict[str, Method | None] = {PLAIN: None, **{x: Method.of(parse_method(x)) for x in args.methods}}
    counts: dict[str, dict[str, Count]] = {name: {} for name in methods}
    for task, turns in first_questions(args.questions, args.each):
        said: list[dict[str, Any]] = []
        for turn in turns:
            said.append({"role": "user", "content": turn})
            ids = model.tokenizer.chat(said)
            answer: list[int] = []
            for name, method in methods.items():
                began = time.perf_counter()
                run = decode(model, method, ids, args.tokens)
                seconds = time.perf_counter() - began
                if name == PLAIN:
                    answer = run.tokens
                counts[name].setdefault(task, Count()).add(seconds, run, answer)
            said.append({"role": "assistant", "content": model.tokenizer.decode(answer)})
    print_counts(counts)


def parse_method(words: str) -> dict[str, Any]:
    """`drafter:knob=value:kind.knob=value`, as a mapping for `Method.of`."""
    name, *settings = words.split(":")
    method: dict[str, Any] = {"drafter": name}
    for setting in settings:
        knob, value = setting.split("=")
        if knob in KINDS:
            method[knob] = value
        else:
            method[knob if "." in knob else f"drafter.{knob}"] = int(value) if value.isdigit() else value
    return method


def print_counts(counts: dict[str, dict[str, Count]]) -> None:
    """The table: speed over plain decoding of whole calls by task, and of all what else was counted."""
    tasks = list(counts[PLAIN])
    print("| method |", *(f"{task} |" for task in tasks), "all | steps alone | tokens a step | same text |")
    print("|---" * (len(tasks) + 5) + "|")
    for by_task in counts.values():
        whole = Count()
        for one in list(by_task.values()):
            whole.join(one)
        by_task["all"] = whole
    plain = counts[PLAIN]
    for name, by_task in counts.items():
        speeds = [
            f"{one.tokens / one.seconds / (plain[task].tokens / plain[task].seconds):.2f}"
            for task, one in by_task.items()
        ]
        whole, base = by_task["all"], plain["all"]
        steps = whole.tokens / whole.step_seconds / (base.tokens / base.step_seconds)
        cells = [
            *speeds,
            f"{steps:.2f}",
            f"{whole.tokens / whole.steps:.2f}",
            f"{whole.equal} of {whole.answers}",
        ]
        print("|", " | ".join([name, *cells]), "|", flush=True)
    base = plain["all"]
    print(
        f"plain: {base.tokens / base.step_seconds:.1f} tokens/s in steps, {base.tokens / base.seconds:.1f} of whole calls"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["peers", "questions"])
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--questions", type=Path, help="Spec-Bench's question.jsonl")
    parser.add_argument("--each", type=int, default=10, help="questions of each task")
    parser.add_argument("--tokens", type=int, default=96, help="new tokens a turn")
    parser.add_argument("--methods", nargs="+", default=["prompt_lookup", "anpd", "token_recycling"])
    args = parser.parse_args()
    set_pass_threads(args.threads)
    if args.what == "peers":
        compare_peers(args)
    else:
        ask_questions(args)


if __name__ == "__main__":
    main()
