"""Our policies beside NVIDIA's kvpress: same weights, prompts and budgets; what does each head keep, in what time and memory?

    python -m venv /tmp/peer && /tmp/peer/bin/pip install kvpress==0.5.5 "transformers<5.3" torch
    python benchmarks/against_kvpress.py --peer /tmp/peer/bin/python

kvpress wants an older transformers than ours, so it runs in an environment of its own (`kvpress_peer.py`), before ours and in
as many threads, float32 on both sides. It cuts when a layer has read the prompt; ours cut at the commit of the prompt's last
token, which has read all of it too. Ours is timed from the start to the end of the first step, theirs for the prompt, which
gives the first token too; then both write tokens one by one. Prompts are the longest first turns of LabBench's questions.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from decodescope.app.basis.refusal import sentence
from decodescope.app.commands.shared.output import table
from decodescope.engine import Method, Session, load
from decodescope.engine.bench.kv import select_texts
from decodescope.engine.bench.labbench import QUESTIONS, Bench
from decodescope.engine.bench.questions.questions import read_questions
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.session.load import Model, find_model

PROMPT, NEW = 1024, 32  # tokens of a prompt, and of an answer
SHARES = (0.5, 0.25, 0.1)


@dataclass(frozen=True)
class Pair:
    """A policy of ours and a press of theirs that should keep the same. ours: budget -> knobs;  press: a class;  more: its
    arguments;  wrapper: class and arguments;  fit: the budget that is compared instead of the one that was asked for."""

    policy: str
    ours: Callable[[int], dict[str, Any]]
    press: str
    more: dict[str, Any] = field(default_factory=dict)
    wrapper: tuple[str, dict[str, Any]] | None = None
    fit: Callable[[int], int] = int

    @property
    def name(self) -> str:
        """What the other side is called."""
        return self.press if self.wrapper is None else self.wrapper[0]

    def theirs(self, budget: int, prompt: int) -> list[Any]:
        """The press with that budget, for the other side."""
        ratio = 1 - (budget + 0.5) / prompt  # they round down
        wrapper = None if self.wrapper is None else list(self.wrapper)
        return [self.press, {"compression_ratio": ratio, **self.more}, wrapper]


PAIRS = (
    Pair("streaming_llm", lambda b: {"sink_tokens": 4, "recent": b - 4}, "StreamingLLMPress", {"n_sink": 4}),
    Pair("key_norm", lambda b: {"low_norm_entries": b, "recent": 0}, "KnormPress"),
    Pair("tova", lambda b: {"size": b}, "TOVAPress"),
    Pair(
        "snapkv",
        lambda b: {"prompt_budget": b - 64, "window": 64},
        "SnapKVPress",
        {"window_size": 64, "kernel_size": 5},
    ),
    Pair(
        "pyramidkv",
        lambda b: {"prompt_budget": b - 64, "window": 64},
        "PyramidKVPress",
        {"window_size": 64, "kernel_size": 5},
    ),
    Pair(
        "adakv",
        lambda b: {
            "prompt_budget": b - 64,
            "window": 64,
            "pool_radius": 2,
            "pool": "mean",
            "min_head_share": 0.5,
        },
        "SnapKVPress",
        {"window_size": 64, "kernel_size": 5},
        ("AdaKVPress", {"alpha_safeguard": 0.5}),
    ),
    Pair(
        "expected_attention",
        lambda b: {"sink_tokens": 4, "prompt_budget": b - 4, "future_positions": 512},
        "ExpectedAttentionPress",
    ),
    Pair("key_diff", lambda b: {"distinct_entries": b}, "KeyDiffPress"),
    Pair(
        "lag_kv",  # of 1,024 tokens 62 partitions are cut; sinks and the last partition stay
        lambda b: {"sink_tokens": 16, "lag": 16, "kept_share": (b - 32) / 62 / 16},
        "LagKVPress",
        {"n_sink": 16, "lag_size": 16},
        fit=lambda b: 32 + 62 * round((b - 32) / 62),
    ),
    Pair(
        "key_rerotation",
        lambda b: {"sink_tokens": 0, "prompt_budget": b, "scorer": "difference"},
        "KeyDiffPress",
        {},
        ("KeyRerotationPress", {}),
    ),
)


@dataclass(frozen=True)
class Found:
    """kept: bool [L, H_kv, n];  read_s: to the first token;  step_s: of a further token (median);  nbytes: of the cache"""

    kept: np.ndarray
    read_s: float
    step_s: float
    nbytes: int


@torch.inference_mode()
def ours(model: Model, pair: Pair, budget: int, prompt: Sequence[int]) -> Found:
    """What our policy makes of a prompt."""
    method = Method.from_names({"policy": pair.policy}, {"policy": pair.ours(budget)})
    session = Session(model, method, list(prompt), max_new_tokens=NEW + 1, stop_tokens=[], level="summary")
    begun = time.perf_counter()
    session.start()
    session.step()
    read = time.perf_counter() - begun
    kept = np.zeros((model.spec.n_layers, model.spec.n_kv_heads, len(prompt)), bool)
    for store, heads in zip(session.target.cache.layers, kept, strict=True):
        places = store.positions()[0].expand(len(heads), -1)
        here = (
            torch.ones_like(places, dtype=torch.bool)
            if store.present_mask is None
            else store.present_mask[0, :, : store.n]
        )
        for h, row in enumerate(heads):
            row[places[h][here[h]].numpy()] = True
    nbytes, seconds = session.target.cache.nbytes, []
    for _ in range(NEW):
        begun = time.perf_counter()
        session.step()
        seconds.append(time.perf_counter() - begun)
    return Found(kept, read, statistics.median(seconds), nbytes)


def theirs(
    peer: str, model: Model, threads: int, prompts: Sequence[Sequence[int]], presses: list[Any]
) -> Any:
    """The results of kvpress for all prompts under all presses: the arrays that `kvpress_peer.py` describes."""
    if model.spec.adapter:
        raise Refusal(
            f"{model.name} has an adapter, which kvpress would leave out: measure the model without it."
        )
    job = dict(
        model=str(find_model(model.name)[1]), threads=threads, new=NEW, prompts=prompts, presses=presses
    )
    with tempfile.TemporaryDirectory() as folder:
        asked, found = Path(folder) / "job.json", Path(folder) / "found.npz"
        asked.write_text(json.dumps(job))
        script = Path(__file__).with_name("kvpress_peer.py")
        done = subprocess.run(
            [peer, str(script), str(asked), str(found)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Refusal(
                f"{peer} could not run kvpress: {(done.stderr.strip().splitlines() or ['no word'])[-1][:200]}"
            )
        with np.load(found) as arrays:
            return dict(arrays)


def agreement(mine: np.ndarray, other: np.ndarray, score: np.ndarray) -> tuple[int, int, int, int]:
    """How many heads there are, how many keep the same, in how many the exchanged entries have equal scores (to a millionth of
    the head's largest below that of entries which stay in any case), and how many entries all the others exchange.

    mine, other: bool [L, H_kv, n];  score: float [L, H_kv, n], by which the other side chose
    """
    same = tied = moved = 0
    for a, b, worth in zip(*(x.reshape(-1, x.shape[-1]) for x in (mine, other, score)), strict=True):
        more, less = np.sort(worth[a & ~b]), np.sort(worth[b & ~a])
        free = worth[worth < worth.max()]
        alike = len(more) == len(less) and bool(
            (np.abs(more - less) <= 1e-6 * np.abs(free).max(initial=0)).all()
        )
        same += not (a ^ b).any()
        tied += bool((a ^ b).any()) and alike
        moved += 0 if alike else len(more)
    return mine.shape[0] * mine.shape[1], same, tied, moved


def compare(args: argparse.Namespace) -> None:
    """Run both and print."""
    torch.set_num_threads(args.threads)
    model = load(args.model, "float32")
    bench = Bench(model, {})
    chosen = [x for x in select_texts(read_questions(QUESTIONS)[0], args.texts) if x.kind == "text"]
    prompts = [bench.first_prompt(x)[:PROMPT] for x in chosen]
    entries = [(pair, pair.fit(round(share * PROMPT))) for pair in PAIRS for share in SHARES]
    other = theirs(
        args.peer, model, args.threads, prompts, [pair.theirs(budget, PROMPT) for pair, budget in entries]
    )
    rows = []
    for p, (pair, budget) in enumerate(entries):
        found = [ours(model, pair, budget, prompt) for prompt in prompts]
        told = [
            agreement(x.kept, other[f"kept.{p}.{i}"], other[f"score.{p}.{i}"]) for i, x in enumerate(found)
        ]
        heads, same, tied, moved = (sum(column) for column in zip(*told, strict=True))
        ratios = [
            statistics.median(float(other[f"{name}.{p}.{i}"]) / getattr(x, mine) for i, x in enumerate(found))
            for name, mine in (("read", "read_s"), ("step", "step_s"))
        ]
        sizes = [sum(x.nbytes for x in found), sum(int(other[f"bytes.{p}.{i}"]) for i in range(len(found)))]
        full = 2 * len(found) * model.spec.n_layers * model.spec.n_kv_heads * model.spec.head_dim * PROMPT * 4
        rows.append(
            [f"{pair.policy} / {pair.name}", str(budget), str(heads), str(same), str(tied), str(moved)]
            + [f"{100 * x / full:.1f} %" for x in sizes]
            + [f"{x:.2f}" for x in ratios]
        )
    head = (
        "ours / theirs",
        "kept",
        "heads",
        "same",
        "tied",
        "other entries",
        "our bytes",
        "their bytes",
        "reading",
        "a step",
    )
    print(
        f"{model.name}, float32, {args.threads} threads; {len(prompts)} prompts of {PROMPT} tokens, then {NEW} tokens"
    )
    print(
        "tied: what was exchanged is worth the same; bytes: of the full cache's; reading, a step: their time over ours"
    )
    print()
    print(table(head, rows))


def main() -> int:
    """Read the command line and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peer", required=True, metavar="PYTHON", help="the Python of an environment with kvpress"
    )
    parser.add_argument("--model", default="lab")
    parser.add_argument("--texts", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    try:
        compare(parser.parse_args())
    except Refusal as reason:
        print(sentence(reason), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
