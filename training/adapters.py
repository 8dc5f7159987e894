"""Train an adapter on a frozen model, and write it into its folder, `assets/models/<model>/adapters/NAME/`.

    python -m decodescope.training.adapters cllm --within 25 --threads 1

The model's files stay as they are; low-rank deltas of its matrices learn, by Adam, with products in bfloat16 (cacheparts.py
has the loop: the rate falls by the share of the minutes that have passed). What is reached is kept in build/training on the
way, and `--resume` begins there. At the end the adapter as its file keeps it, in bfloat16, is measured on unseen text, and the
figures go into its config.json.

A further adapter is a class like that of cllm.py, and a line in `ADAPTERS`.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from .adapter_training import ALPHA, AdapterTraining
from .cacheparts import train
from .cllm import ConsistencyAdapter
from .cloze import ClozeAdapter
from .data import BUILD
from .ditto import DittoAdapter
from .heads import MODELS
from .hyperfit import HyperfitAdapter
from .lud import LexicalUnitsAdapter
from .net import Net
from .outline import OutlineAdapter
from .skipdecode import SkipDecodeAdapter

# name of an adapter, which is that of its folder -> a fresh one for a model, with a seed and a number of texts
ADAPTERS: dict[str, Callable[[Net, int, int], AdapterTraining]] = {
    "cllm": ConsistencyAdapter,
    "cloze": ClozeAdapter,
    "ditto": DittoAdapter,
    "hyperfit": HyperfitAdapter,
    "lud": LexicalUnitsAdapter,
    "outline": OutlineAdapter,
    "skipdecode": SkipDecodeAdapter,
}
EMBEDDING = "model.embed_tokens.weight"
KEPT = 100  # steps between two states that are kept


def main(words: Sequence[str] | None = None) -> None:  # noqa: PLR0915
    """Train, measure, and keep the adapter."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("name", choices=ADAPTERS)
    parser.add_argument(
        "--within", type=float, required=True, metavar="MINUTES", help="of training; the rest comes on top"
    )
    parser.add_argument("--model", default="lab", help="a folder of assets/models")
    parser.add_argument("--steps", type=int, default=1_000_000, help="at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: as torch finds it")
    parser.add_argument("--texts", type=int, default=320, help="that the model writes to learn from")
    parser.add_argument("--from", dest="source", type=Path, help="folder of NAME/: go on with this adapter")
    parser.add_argument("--resume", action="store_true", help="go on from the state that was kept last")
    parser.add_argument(
        "--into", type=Path, help="folder in which NAME/ is written; by default the model's adapters/"
    )
    args = parser.parse_args(words)
    if args.threads:
        torch.set_num_threads(args.threads)

    folder, state = MODELS / args.model, BUILD / f"adapter-{args.model}-{args.name}.pt"
    part = ADAPTERS[args.name](Net.from_folder(folder).requires_grad_(False), args.seed, args.texts)
    earlier: dict[str, Any] = {}
    if args.source:
        part.load(load_file(args.source / args.name / "model.safetensors"))
        earlier = {"from": json.loads((args.source / args.name / "config.json").read_text())["made_with"]}
    if args.resume:
        part.load(torch.load(state, weights_only=True))
    print(f"{sum(p.numel() for p in part.head.parameters()):,} parameters", flush=True)
    began = time.monotonic()
    with torch.autocast("cpu", torch.bfloat16):
        made = part.learn()
    print(f"{made} in {time.monotonic() - began:.0f} s", flush=True)

    def say(text: str) -> None:
        print(f"{text}, {part.loss_summary()}", flush=True)
        if part.steps % KEPT == 0:
            torch.save(part.tensors(), state)

    began = time.monotonic()
    steps = train(part, args.within * 60, args.steps, say)
    print(f"{steps} steps, {time.monotonic() - began:.1f} s", flush=True)
    torch.save(part.tensors(), state)
    with torch.autocast("cpu", torch.bfloat16):
        figures = part.measure()
    print(figures, flush=True)

    from decodescope.engine.model.checkpoint.adapter import write
    from decodescope.engine.session.load import fingerprint

    made_with: dict[str, Any] = {
        "within": args.within,
        "steps": steps,
        "tokens": part.read,
        "seed": args.seed,
    }
    made_with |= {"texts": args.texts}
    made_with |= {
        "threads": torch.get_num_threads(),
        "machine": platform.processor() or platform.machine(),
        **earlier,
    }
    notes = {"measured": figures, "made_with": made_with}
    into = (args.into or folder / "adapters") / args.name
    rows = {EMBEDDING: list(part.rows)} if part.rows else {}
    write(into, part.tensors(), rank=part.rank, alpha=ALPHA, base=fingerprint(folder), rows=rows, notes=notes)


if __name__ == "__main__":
    main()
