"""Train draft heads on a frozen model, and write them into its folder, `assets/models/<model>/heads/<kind>/`.

    python -m decodescope.training.heads medusa
    python -m decodescope.training.heads medusa hydra eagle eagle3 kangaroo blockwise --tokens 8 --device cuda

Several kinds are trained side by side on the same batches.

The model first writes text of its own, drawn at temperature 1 after beginnings from the training text: heads are good on what
the model says, not on what others wrote. Windows of the training text are mixed in. The model reads all of it once and its
states stay in memory, in bfloat16. A step takes a few windows of them. Of each level of a draft only some places go through the
vocabulary matrix, which is most of the work.

At the end it prints how often each head and the model agree on the likeliest token of held-out text, compared with a table of
trigrams of the same training text: a head that does not beat it is broken.

Needs torch, numpy, safetensors and tokenizers, and this package: where it is not installed, put a folder on PYTHONPATH in which
`decodescope` is a link to the checkout.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.drafting.draft_vocabulary import DraftVocabularyHead
from decodescope.engine.model.heads.drafting.fspad import FspadLayer
from decodescope.engine.model.heads.drafting.p_eagle import PEagleLayer
from decodescope.engine.model.heads.drafting.parallelspec import ParallelSpecLayer
from decodescope.engine.model.heads.files import HEADS, write_head
from decodescope.engine.training.adversary import Adversary
from decodescope.engine.training.loss import loss_of
from decodescope.engine.training.measures import measure, measure_unrolled, trigram_floor
from decodescope.engine.training.optimizers import optimizers, rate
from decodescope.engine.training.shapes import frequent_ids, new_head
from decodescope.engine.training.target import ModelStates, read_states

from .net import Net

ROOT = Path(__file__).resolve().parents[1]
BUILD, MODELS = ROOT / "build" / "training", ROOT / "assets" / "models"
LENGTH, ROWS = 256, 16  # tokens a window, windows read at once
WINDOWS, PLACES = 4, 0.25  # windows a step, and of their places the share that a level's loss is taken at


SAYS = 200  # steps between two lines
UNSEEN = 64  # windows of held-out text on which heads are measured

PREFIX = (8, 64)  # tokens of a beginning after which the model writes on

TOLD = (
    "fspad",
    "parallelspec",
    "clover",
    "dflash",
    "dspark",
    "p_eagle",
    "mtp",
)  # in docs/heads.md and not shipped: the others fill the room of heads
AROUND = (FspadLayer, ParallelSpecLayer)  # nets with EAGLE's layer in them


def fit(
    head: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[], Tensor],
    steps: int,
    lr: float,
    say: Callable[[str], None],
) -> None:
    """Minimise `loss` in `steps` steps at the rate `lr` times `rate`; then freeze the head.

    `loss` reads a batch of its own at every call.
    """
    began, recent = time.time(), list[float]()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * rate(step, steps)
        value = loss()
        value.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        recent.append(float(value.detach()))
        if (step + 1) % 50 == 0 or step + 1 == steps:
            say(
                f"step {step + 1} of {steps}, loss {sum(recent) / len(recent):.4f}, {time.time() - began:.0f} s"
            )
            recent = []
    head.requires_grad_(False)


def train(  # noqa: PLR0913
    net: Net,
    heads: Sequence[Head],
    batches: Iterator[ModelStates],
    steps: int,
    lr: float = 4e-3,
    muon: float = 3e-3,
    share: float = 1.0,
    half: bool = False,
    say: Callable[[str], None] = lambda text: None,
    rivals: Sequence[Adversary] = (),
) -> None:
    """`steps` steps on batches of what the model made of some text; the model stays as it is, and no head knows of another.

    lr, muon: the highest rates of the two `optimizers`;  share: of the places, see `loss_of`;  half: products in bfloat16;
    rivals: one a head, which learns behind it in every step, or none at all
    """
    net.requires_grad_(False)
    made = [
        (o, o.param_groups[0]["lr"])
        for head in heads
        for o in optimizers(head.requires_grad_(True), lr, muon)
    ]
    began, recent = time.time(), []
    for step in range(steps):
        r, losses = next(batches), []
        for head, rival in zip(heads, rivals or [None] * len(heads), strict=True):
            with torch.autocast(r.ids.device.type, torch.bfloat16, enabled=half):
                loss = loss_of(net, head, r, share, rival)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(head.parameters(), 5.0)
            if rival is not None:
                rival.learn()
            losses.append(loss.detach())
        for optimizer, base in made:
            optimizer.param_groups[0]["lr"] = base * rate(step, steps)
            optimizer.step()
            optimizer.zero_grad()
        recent.append(torch.stack(losses))
        if (step + 1) % SAYS == 0 or step + 1 == steps:
            means = torch.stack(recent).mean(0).tolist()
            shown = ", ".join(f"{head.kind} {mean:.3f}" for head, mean in zip(heads, means, strict=True))
            told = "".join(
                f", told {rival.rate:.0%} of {head.kind} right"
                for head, rival in zip(heads, rivals, strict=False)
            )
            say(f"step {step + 1} of {steps}, loss {shown}{told}, {time.time() - began:.0f} s")
            recent = []
    for head in heads:
        head.requires_grad_(False)


def own_text(net: Net, beginnings: Tensor, length: int, seed: int) -> np.ndarray:
    """uint16 [N, length]: what the model writes after a few tokens of each row of `beginnings` (int64 [N, T])."""
    r, made = np.random.default_rng(seed), []
    draw = torch.Generator(beginnings.device).manual_seed(seed)
    for part in beginnings.split(128):
        known = int(r.integers(PREFIX[0], min(PREFIX[1], part.shape[1], length - 1) + 1))
        made.append(net.write(part[:, :known], length - known, 1.0, draw).cpu().numpy().astype(np.uint16))
    return np.concatenate(made)


def mix_text(own: np.ndarray, corpus: np.ndarray, share: float) -> Tensor:
    """int64 [N, T]: the model's own text, and so many windows of the corpus that they are a `share` of all."""
    theirs = min(len(corpus), round(len(own) * share / (1 - share)))
    return torch.from_numpy(np.concatenate([own, corpus[:theirs]]).astype(np.int64))


def store_states(net: Net, text: Tensor, heads: Sequence[Head]) -> ModelStates:
    """`read_states` of all of text (int64 [N, T]), on the processor and in bfloat16.

    No embeddings are stored, since they are looked up again, and only the states that these heads read.
    """
    device = next(net.parameters()).device
    layer = max(head.shape.get("layer", 0) for head in heads)
    fuses, parts = any(isinstance(head, DraftVocabularyHead) for head in heads), []
    for part in text.split(ROWS):
        with torch.autocast(device.type, torch.bfloat16):
            r = read_states(net, part.to(device), layer)
        kept = (
            r.embedded[..., :0],
            r.early if layer else r.early[..., :0],
            r.feature,
            r.fused if fuses else r.fused[..., :0],
        )
        parts.append([x.to("cpu", torch.bfloat16) for x in kept])
    return ModelStates(text, *(torch.cat(x) for x in zip(*parts, strict=True)))


def batches(net: Net, memory: ModelStates, windows: int, seed: int) -> Iterator[ModelStates]:
    """Batches of so many random `windows` of what is remembered, without end; each window comes once in an epoch."""
    r, device = np.random.default_rng(seed), next(net.parameters()).device
    while True:
        for some in torch.from_numpy(r.permutation(len(memory.ids))).split(windows):
            ids = memory.ids[some].to(device)
            states = (x[some].to(device).float() for x in (memory.early, memory.feature, memory.fused))
            yield ModelStates(ids, net.model.embed_tokens(ids).float(), *states)


def windows_of(stream: np.ndarray, count: int, seed: int) -> np.ndarray:
    """uint16 [count, LENGTH]: random windows of a stream."""
    at = np.random.default_rng(seed).integers(len(stream) - LENGTH, size=count)
    return np.stack([stream[x : x + LENGTH] for x in at])


def load_texts(
    net: Net, fingerprint: str, millions: float, seed: int, unseen: int = UNSEEN
) -> tuple[np.ndarray, np.ndarray, Tensor]:
    """The texts of a training.

    These are windows of the training text, ids [N, LENGTH], about so many `millions` of tokens; what the model writes after
    their beginnings, of the same size; and int64 [unseen, LENGTH], what it writes after held-out ones. Its own text is kept in
    build/training, under its fingerprint.
    """
    from .data import held_out_windows, training_stream

    def written(beginnings: Tensor, name: str, draws: int) -> np.ndarray:
        file, began = BUILD / f"own-{fingerprint}-{name}-{seed}.npy", time.time()
        if not file.exists():
            np.save(file, own_text(net, beginnings.to(next(net.parameters()).device), LENGTH, draws))
            print(
                f"the model wrote {beginnings.numel() / 1e6:.2f} M tokens in {time.time() - began:.0f} s",
                flush=True,
            )
        return np.load(file)

    corpus = windows_of(training_stream(), max(ROWS, int(millions * 1e6) // LENGTH), seed + 1)
    own = written(torch.from_numpy(corpus.astype(np.int64)), str(len(corpus)), seed + 2)
    held_out = written(held_out_windows(LENGTH, unseen), f"{unseen}-held-out", seed + 3)
    return corpus, own, torch.from_numpy(held_out.astype(np.int64)).to(next(net.parameters()).device)


def load_weights(head: Head, source: Path) -> dict[str, Any]:
    """Load the weights in the folder source/KIND, and return how these were made.

    A net around EAGLE's layer, if it is not there, is loaded from source/eagle, and P-EAGLE's from source/eagle3.
    """
    folder, net = source / head.kind, head
    fresh: dict[str, Tensor] = {}
    if not folder.exists() and isinstance(head, AROUND):
        folder, net = source / "eagle", head.layer
    if not folder.exists() and isinstance(head, PEagleLayer):
        folder, fresh = source / "eagle3", head.state_dict()  # its masks are fresh
    net.load_state_dict({**fresh, **load_file(folder / "model.safetensors")})
    return json.loads((folder / "config.json").read_text())["made_with"]


def main() -> None:  # noqa: PLR0915
    """Write text, train, measure, and keep the heads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("kinds", nargs="+", choices=HEADS, metavar="KIND", help=", ".join(HEADS))
    parser.add_argument("--model", default="lab", help="a folder of assets/models")
    parser.add_argument("--from", dest="source", type=Path, help="folder of KIND/: go on with these heads")
    parser.add_argument("--tokens", type=float, default=3.0, help="training tokens in millions")
    parser.add_argument(
        "--text", type=float, default=1.0, help="of the model's own text, in millions of tokens"
    )
    parser.add_argument(
        "--corpus", type=float, default=0.25, help="share of windows that come from the training text"
    )
    parser.add_argument("--unseen", type=int, default=UNSEEN, help="windows of held-out text to measure on")
    parser.add_argument(
        "--layer", type=int, default=2, help="kangaroo: the target layer before which a draft exits"
    )
    parser.add_argument(
        "--adversarial", type=float, default=0.0, help="KOALA: weight of the loss against a discriminator"
    )
    parser.add_argument("--windows", type=int, default=WINDOWS, help="a step")
    parser.add_argument(
        "--places", type=float, default=PLACES, help="share of places at which a level's loss is taken"
    )
    parser.add_argument("--lr", type=float, default=4e-3, help="of biases and norms (AdamW)")
    parser.add_argument("--muon", type=float, default=3e-3, help="of the matrices (Muon)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: as torch finds it")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument(
        "--into", type=Path, help="folder in which KIND/ is written; by default the model's heads/"
    )
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)

    from decodescope.engine.session.load import fingerprint

    folder = MODELS / args.model
    made_for = fingerprint(folder)
    net = Net.from_folder(folder).to(args.device).requires_grad_(False)
    corpus, own, held_out = load_texts(net, made_for, args.text, args.seed, args.unseen)

    kinds = list(dict.fromkeys(args.kinds))
    heads = [
        new_head(x, net, **(dict(layer=args.layer) if x == "kangaroo" else {})).to(args.device) for x in kinds
    ]
    earlier: dict[str, dict[str, Any]] = {}
    for head in heads:
        if args.source is not None:
            earlier[head.kind] = {"from": load_weights(head, args.source)}
        elif isinstance(head, DraftVocabularyHead):
            head.set_draft_vocabulary(frequent_ids(own, head.shape["kept"], net.shape.vocabulary))
            print(
                f"the draft vocabulary holds {float(head.mask[held_out].mean()):.1%} of held-out tokens",
                flush=True,
            )
    steps = max(1, round(args.tokens * 1e6 / (args.windows * LENGTH)))
    size = ", ".join(f"{head.kind} {sum(p.numel() for p in head.parameters()):,}" for head in heads)
    print(f"parameters: {size}; {steps} steps of {args.windows} windows of {LENGTH} tokens", flush=True)
    memory = store_states(net, mix_text(own, corpus, args.corpus), heads)
    print(f"the model read {memory.ids.numel() / 1e6:.2f} M tokens", flush=True)
    drawn = batches(net, memory, args.windows, args.seed + 4)
    rivals = (
        [Adversary(net.shape.vocabulary, args.adversarial).to(args.device) for _ in heads]
        if args.adversarial
        else []
    )
    train(
        net,
        heads,
        drawn,
        steps,
        args.lr,
        args.muon,
        args.places,
        True,
        lambda text: print(text, flush=True),
        rivals,
    )
    settings = {
        k: vars(args)[k] for k in ("tokens", "text", "corpus", "windows", "places", "lr", "muon", "seed")
    }
    for head in heads:
        ranks = measure(net, head, held_out)
        deeper = measure_unrolled(net, head, held_out) if head.kind in ("eagle", "fspad") else []
        trigrams, told = (
            trigram_floor(net, head.kind, len(ranks), own, held_out, root=x) for x in (False, True)
        )
        for k, (row, usual) in enumerate(zip(ranks, trigrams, strict=True)):
            print(
                f"{head.kind} {k}: the model's likeliest token at {row[0]:.1%} of held-out places; trigrams {usual:.1%}"
            )
        head.rates = tuple(tuple(round(x, 5) for x in row) for row in ranks + deeper)
        head.made_for = made_for
        made_with = (
            settings | earlier.get(head.kind, {}) | ({"adversarial": args.adversarial} if rivals else {})
        )
        notes: dict[str, Any] = {"trigrams": [round(x, 5) for x in trigrams], "made_with": made_with}
        if told != trigrams:
            notes["trigrams_with_root"] = [round(x, 5) for x in told]
        write_head(head, (args.into or folder / "heads") / head.kind, notes)


if __name__ == "__main__":
    main()
