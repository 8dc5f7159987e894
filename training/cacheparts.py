"""Train a part of the KV cache on a frozen model, and write it into its folder, `assets/models/<model>/heads/NAME/`.

    python -m decodescope.training.cacheparts ntk_attention --within 10
    python -m decodescope.training.cacheparts compress_then_prompt --within 10 --threads 2
    python -m decodescope.training.cacheparts duo_attention --within 10
    python -m decodescope.training.cacheparts coprocessor --within 10

The model stays as it is; only the part learns, by Adam, from the training text (corpus.py makes that first), with products in
bfloat16. The rate falls by the share of the minutes that have passed, so training ends in time on any machine, and a slower one
makes fewer steps. At the end the part as its file keeps it, in bfloat16, is measured on unseen text, and the figures go into
its config.json.

A further part is a class like those of prefix_state.py and soft_prompt.py, and a line in `PARTS`.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.files import write_head
from decodescope.engine.training.optimizers import rate

from .coprocessor import CoprocessorPart
from .head_gates import GatesPart
from .heads import MODELS, load_weights
from .net import Net
from .prefix_state import PrefixPart
from .soft_prompt import SoftPromptPart

SAYS = 25  # steps between two lines


class Trainable(Protocol):
    """A net that can be trained.

    lr: the highest rate
    """

    lr: float

    @property
    def head(self) -> nn.Module:
        """The net that learns."""
        ...

    def loss(self) -> Tensor:
        """The loss of the next batch."""
        ...


class CachePart(Trainable, Protocol):
    """A part of the KV cache that is trained."""

    @property
    def head(self) -> Head:
        """What its file keeps."""
        ...

    def measure(self) -> dict[str, Any]:
        """Figures on unseen text, with the part and without it, as plain data for the part's card."""
        ...


# name of a part, which is that of its folder -> a fresh one for a model, with a seed
PARTS: dict[str, Callable[[Net, int], CachePart]] = {
    "ntk_attention": PrefixPart,
    "compress_then_prompt": SoftPromptPart,
    "duo_attention": GatesPart,
    "coprocessor": CoprocessorPart,
}


def train(part: Trainable, seconds: float, steps: int = 1_000_000, say: Callable[[str], None] = print) -> int:
    """Run Adam until so many seconds have passed or so many steps are done; return the number of steps.

    Then the part holds what its file will: numbers of bfloat16.
    """
    weights = list(part.head.requires_grad_(True).parameters())
    optimizer = torch.optim.Adam(weights, lr=part.lr)
    began = time.monotonic()
    recent = list[float]()
    step = 0
    while step < steps and (passed := time.monotonic() - began) < seconds:
        for group in optimizer.param_groups:
            group["lr"] = part.lr * rate(int(1000 * max(passed / seconds, step / steps)), 1000)
        with torch.autocast("cpu", torch.bfloat16):
            loss = part.loss()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        recent.append(float(loss.detach()))
        step += 1
        if step % SAYS == 0:
            say(f"step {step}, loss {sum(recent) / len(recent):.4f}, {time.monotonic() - began:.0f} s")
            recent = []
    part.head.requires_grad_(False)
    for weight in weights:
        weight.copy_(weight.to(torch.bfloat16))
    return step


def main(words: Sequence[str] | None = None) -> None:
    """Train, measure, and keep the part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("name", choices=PARTS)
    parser.add_argument(
        "--within", type=float, required=True, metavar="MINUTES", help="of training; measuring comes after"
    )
    parser.add_argument("--from", dest="source", type=Path, help="folder of NAME/: go on with this part")
    parser.add_argument("--model", default="lab", help="a folder of assets/models")
    parser.add_argument("--steps", type=int, default=1_000_000, help="at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: as torch finds it")
    parser.add_argument(
        "--into", type=Path, help="folder in which NAME/ is written; by default the model's heads/"
    )
    args = parser.parse_args(words)
    if args.threads:
        torch.set_num_threads(args.threads)

    from decodescope.engine.session.load import fingerprint

    folder = MODELS / args.model
    part = PARTS[args.name](Net.from_folder(folder).requires_grad_(False), args.seed)
    earlier = {"from": load_weights(part.head, args.source)} if args.source else {}
    print(f"{sum(p.numel() for p in part.head.parameters()):,} parameters", flush=True)
    began = time.monotonic()
    steps = train(part, args.within * 60, args.steps, lambda text: print(text, flush=True))
    print(f"{steps} steps, {time.monotonic() - began:.1f} s", flush=True)
    figures = part.measure()
    print(figures, flush=True)
    part.head.made_for = fingerprint(folder)
    made_with: dict[str, Any] = {
        "within": args.within,
        "steps": steps,
        "seed": args.seed,
        "threads": torch.get_num_threads(),
    }
    made_with |= {"machine": platform.processor() or platform.machine(), **earlier}
    write_head(
        part.head, (args.into or folder / "heads") / args.name, {"measured": figures, "made_with": made_with}
    )


if __name__ == "__main__":
    main()
