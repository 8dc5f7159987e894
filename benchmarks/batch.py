"""Tokens a second against the number of texts that are decoded at once, beside `transformers.generate` with the same batch.

    python benchmarks/batch.py [--dtype bfloat16] [--threads 2] [--batches 1,2,4,8,16,32] [--new-tokens 32]
                               [--prompt-tokens N] [--prompts 32] [--json]
    python benchmarks/batch.py --random 300M [--dtype bfloat16] [--threads 1] [--batches 1,4,8,16]

The prompts are the first turns of LabBench's questions as raw text, without a chat template, spread over its kinds, and cut to
N tokens if that is asked for; greedy, no stop token. There are as many as the largest batch, or as --prompts says, so that a
table can be made in pieces with the same texts.

The time is that of the whole call, the prompts included. Sessions that run together (`engine/session/batch/shared_passes.py`)
write plainly, with `prompt_lookup` and with `draft_model` (4 tokens). "prefix" is `decodescope batch` without a method, which
pads prompts and shares their common prefixes. `generate` gets them padded on the left, and uses no setting of the model's
folder. "same text" counts the texts of `generate` that equal those of plain sessions; for the others the times of two texts are
compared. After a warm-up all take turns at every batch, `--rounds` times, and the median counts.

The script also shows where drafting stops paying: its measured gain over plain sessions of the same batch, and SmartSpec's
goodput. That is tokens by time, (1 - a^(k + 1)) / (1 - a) / (t(rows) + k t_draft). `a` is the share that was accepted in these
runs, and the times of their passes are fitted by least squares, fixed + rows + sequences: here for 4 drafted tokens, instead of
none. `k` is the length that it would choose, 0: no drafting.

`--random N` asks where that is for a larger target: N random weights, and a tenth as a draft model, behind 64 entries each.
Their texts mean nothing, so nothing is drafted. Passes that several sequences share are timed, of 1 row each and of 5 (in
turns, the median of `--rounds`). The gain is computed with the share of `lab-draft`'s tokens that `lab` accepted, or with
another (`--accepted`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from decodescope.app.basis.arguments import parameter_count
from decodescope.app.commands.shared.bench import unused_settings
from decodescope.app.commands.shared.output import table
from decodescope.engine import Session
from decodescope.engine.bench.clock.speed import Reference
from decodescope.engine.bench.labbench import QUESTIONS
from decodescope.engine.bench.models import random_decoder
from decodescope.engine.bench.questions.questions import read_questions
from decodescope.engine.cost.speedup import expected_tokens
from decodescope.engine.decoding.bases.state import StoppingCriteria
from decodescope.engine.model.forward.batched import PassRequest as Pass
from decodescope.engine.model.forward.batched import forward_batched
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.session.batch.decode import BatchSettings, decode_batch
from decodescope.engine.session.batch.shared_passes import (
    SharedExecutor,
    SharedPass,
    SharedPassStats,
    decode_together,
)
from decodescope.engine.session.load import Model, load
from decodescope.engine.session.method import Method
from decodescope.engine.timing.measure import machine_name
from decodescope.engine.trace import Trace

LENGTH, MOST = 4, 8  # tokens that draft_model drafts, and the most that goodput may choose
HELD = 64  # entries of each sequence before a pass of random weights
METHODS = {
    "plain": Method.from_names(),
    "prompt_lookup": Method.from_names({"drafter": "prompt_lookup"}),
    "draft_model": Method.from_names({"drafter": "draft_model"}, {"drafter": {"max_draft_tokens": LENGTH}}),
}


class Bench:
    """The contestants. passes: what those of sessions took, by model;  judged, accepted: drafted tokens of draft_model"""

    def __init__(self, model: Model, draft: Model, most: int, new: int, cut: int | None):
        self.model = model
        self.draft = draft
        self.new = new
        assert model.tokenizer is not None
        questions, _ = read_questions(QUESTIONS)
        step = max(1, len(questions) // most)
        self.prompts = [model.tokenizer.encode(x.turns[0])[:cut] for x in questions[::step][:most]]
        reference = Reference(model, None)
        self.theirs, self.set_aside = reference.model, reference.set_aside
        self.texts: dict[str, list[list[int]]] = {}  # what a contestant wrote last
        self.passes: dict[str, list[SharedPass]] = {model.name: [], draft.name: []}
        self.judged = self.accepted = 0
        self.contestants: dict[str, Callable[[int], float]] = {
            **{name: lambda count, name=name: self.sessions(name, count) for name in METHODS},
            "prefix": self.plainly,
            "generate": self.generate,
        }

    def sessions(self, name: str, count: int) -> float:
        """Seconds for so many prompts as sessions that go together."""
        began = time.perf_counter()
        made = []
        traces = []
        for prompt in self.prompts[:count]:
            session = Session(
                self.model,
                METHODS[name],
                prompt,
                models={"draft": self.draft} if name == "draft_model" else {},
                max_new_tokens=self.new,
                stop_tokens=[],
                level="summary",
                executor=SharedExecutor(self.model.decoder.device),
            )
            traces.append(Trace())
            session.sink = traces[-1]
            made.append(session)
        figures = decode_together(made, count)
        took = time.perf_counter() - began
        assert all(len(x.tokens) - x.prompt == self.new for x in made)
        self.texts[name] = [x.tokens[x.prompt :] for x in made]
        self._learn(figures, traces if name == "draft_model" else [])
        return took

    def _learn(self, figures: SharedPassStats, traces: Sequence[Trace]) -> None:
        for one in figures.passes:
            if one.rows <= (MOST + 1) * one.sequences:  # the others read prompts
                self.passes[one.model].append(one)
        for step in (x for trace in traces for x in trace.steps):
            self.accepted += step.accepted
            self.judged += min(step.accepted + 1, step.drafted)

    def plainly(self, count: int) -> float:
        """Seconds of `decodescope batch` without a method."""
        began = time.perf_counter()
        done = decode_batch(
            self.model,
            self.prompts[:count],
            BatchSettings(METHODS["plain"].sampler, StoppingCriteria(), self.new, max_draft_tokens=count),
        )
        assert all(len(x.tokens) == self.new for x in done.texts)
        return time.perf_counter() - began

    def generate(self, count: int) -> float:
        """Seconds of transformers, padded on the left."""
        began, prompts = time.perf_counter(), self.prompts[:count]
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(x)) + x for x in prompts])
        mask = torch.tensor([[0] * (longest - len(x)) + [1] * len(x) for x in prompts])
        with torch.inference_mode():
            written = self.theirs.generate(ids, attention_mask=mask, max_new_tokens=self.new, do_sample=False)
        took = time.perf_counter() - began
        self.texts["generate"] = written[:, longest:].tolist()
        return took

    def goodput(self, count: int) -> list[float]:
        """Tokens a second of a batch by SmartSpec's formula, for drafts of 0, 1, ... tokens."""
        target, draft = (fitted(self.passes[x.name]) for x in (self.model, self.draft))
        alpha = self.accepted / self.judged
        times = [target(count * (k + 1), count) + k * draft(count, count) for k in range(MOST + 1)]
        return [count * expected_tokens(alpha, k) / seconds for k, seconds in enumerate(times)]


def fitted(passes: Sequence[SharedPass]) -> Callable[[int, int], float]:
    """Seconds of a pass by its rows and sequences: least squares of relative errors, no coefficient below 0."""
    seconds = np.array([x.seconds for x in passes])
    columns = np.array([(1, x.rows, x.sequences) for x in passes]) / seconds[:, None]
    kept = [0, 1, 2]
    while (
        weights := np.linalg.lstsq(columns[:, kept], np.ones(len(passes)), rcond=None)[0]
    ).min() < 0 and len(kept) > 1:
        kept.pop(int(weights.argmin()))
    return lambda rows, sequences: float(weights @ np.array([1, rows, sequences])[kept])


def measured(bench: Bench, batches: Sequence[int], rounds: int) -> list[dict[str, Any]]:
    """A row for each batch: tokens a second of each contestant, and what goodput says."""
    names = [*bench.contestants]
    for name in names:  # a warm-up
        bench.contestants[name](2)
    rows = []
    for count in batches:
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(rounds):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                seconds[name].append(bench.contestants[name](count))
        same = sum(a == b for a, b in zip(bench.texts["plain"], bench.texts["generate"], strict=True))
        rates = {name: count * bench.new / statistics.median(x) for name, x in seconds.items()}
        rows.append({"batch": count, "same": same, **rates})
    for row in rows:
        by_length = bench.goodput(row["batch"])
        row |= {"k": int(np.argmax(by_length)), "goodput": by_length[LENGTH] / by_length[0]}
        row |= {"gain": row["draft_model"] / row["plain"], "lookup": row["prompt_lookup"] / row["plain"]}
        row["ratio"] = row["plain"] / row["generate"]
    return rows


def larger(
    params: int, dtype: str, batches: Sequence[int], rounds: int, alpha: float
) -> list[dict[str, Any]]:
    """A row for each batch: milliseconds of passes of a random target and its draft model, and what drafting would gain."""
    kind = getattr(torch, dtype)
    target, draft = (random_decoder(count, kind).pack_weights() for count in (params, params // 10))
    shapes = {"plain": (target, 1), "verify": (target, LENGTH + 1), "draft": (draft, 1)}
    rows = []
    for count in batches:
        times: dict[str, list[float]] = {name: [] for name in shapes}
        passes = {name: shared(decoder, count, fed) for name, (decoder, fed) in shapes.items()}
        for _ in range(rounds + 1):  # the first warms up
            for name, work in passes.items():
                began = time.perf_counter()
                work()
                times[name].append((time.perf_counter() - began) * 1e3)
        row = {"batch": count, **{name: statistics.median(x[1:]) for name, x in times.items()}}
        row["gain"] = expected_tokens(alpha, LENGTH) * row["plain"] / (row["verify"] + LENGTH * row["draft"])
        rows.append(row)
    return rows


@torch.inference_mode()
def shared(decoder: Decoder, count: int, fed: int) -> Callable[[], None]:
    """A pass of so many rows for each of `count` sequences, each behind HELD entries, which is then forgotten."""
    spec, caches = decoder.spec, []
    for _ in range(count):
        caches.append(cache := KVCache(spec, dtype=decoder.dtype))
        for store in cache.layers:
            store.append(
                torch.randn(2, 1, spec.n_kv_heads, HELD, spec.head_dim).to(decoder.dtype),
                torch.arange(HELD)[None],
            )
        cache.commit(range(HELD))
    asked = [Pass(decoder, Feed.causal_chain([7] * fed, HELD, decoder.device), cache) for cache in caches]

    @torch.inference_mode()
    def work() -> None:
        forward_batched(asked)
        for cache in caches:
            cache.rollback()

    return work


def tell_larger(args: argparse.Namespace) -> None:
    """Print what `larger` measures."""
    rows = larger(
        args.random, args.dtype, [int(x) for x in args.batches.split(",")], args.rounds, args.accepted
    )
    about = {
        "machine": machine_name(torch.device("cpu")),
        "threads": args.threads,
        "dtype": args.dtype,
        "accepted": args.accepted,
    }
    if args.json:
        print(json.dumps({**about, "params": args.random, "rows": rows}))
        return
    names = ("plain", "verify", "draft")
    head = ("batch", *(f"{name}, ms" for name in names), f"{LENGTH + 1} rows : 1", "draft : plain")
    ratios = [(x["verify"] / x["plain"], x["gain"]) for x in rows]
    cells = [
        [str(x["batch"]), *(f"{x[name]:.1f}" for name in names), *(f"{y:.2f}" for y in ratio)]
        for x, ratio in zip(rows, ratios, strict=True)
    ]
    print(table(head, cells))
    print(", ".join(f"{name} {value}" for name, value in about.items()))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="lab")
    parser.add_argument("--draft", default="lab-draft")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", default="1,2,4,8,16,32")
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--prompt-tokens", type=int)
    parser.add_argument("--prompts", type=int, help="prompts among which those of a batch are the first")
    parser.add_argument(
        "--random", type=parameter_count, metavar="N", help="time passes of N random weights, such as 300M"
    )
    parser.add_argument(
        "--accepted", type=float, default=0.59, help="share of judged tokens that --random reckons with"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.random:
        tell_larger(args)
        return
    batches = [int(x) for x in args.batches.split(",")]
    model, draft = load(args.model, args.dtype, "cpu"), load(args.draft, args.dtype, "cpu")
    bench = Bench(model, draft, max(*batches, args.prompts or 1), args.new_tokens, args.prompt_tokens)
    rows, alpha = measured(bench, batches, args.rounds), bench.accepted / bench.judged
    lengths = [len(x) for x in bench.prompts]
    about = {
        "machine": machine_name(model.decoder.device),
        "threads": args.threads,
        "dtype": args.dtype,
        "accepted": alpha,
    }
    about |= {
        "prompts": f"{min(lengths)} to {max(lengths)} tokens, {statistics.mean(lengths):.0f} on average"
    }
    if args.json:
        print(json.dumps({**about, "set_aside": bench.set_aside, "rows": rows}))
        return
    head = (
        "batch",
        *bench.contestants,
        "plain : generate",
        "same text",
        "draft : plain",
        "lookup : plain",
        "goodput",
        "k",
    )
    shown = [
        [
            str(x["batch"]),
            *(f"{x[name]:.0f}" for name in bench.contestants),
            f"{x['ratio']:.2f}",
            str(x["same"]),
            *(f"{x[name]:.2f}" for name in ("gain", "lookup", "goodput")),
            str(x["k"]),
        ]
        for x in rows
    ]
    print(table(head, shown))
    print(
        ", ".join(
            f"{name} {value:.2f}" if isinstance(value, float) else f"{name} {value}"
            for name, value in about.items()
        )
    )
    print("".join(f"{x}.\n" for x in unused_settings(bench.set_aside)), end="")


if __name__ == "__main__":
    main()
