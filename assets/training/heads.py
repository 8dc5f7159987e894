"""Train draft heads on a frozen model, and write them into its folder, `assets/models/<model>/heads/<kind>/`.

    python assets/training/heads.py medusa
    python assets/training/heads.py medusa hydra eagle eagle3 kangaroo blockwise --tokens 8 --device cuda

Several kinds are trained side by side on the same batches, which takes little more than half the time.

The model first writes text of its own, drawn at temperature 1 after beginnings from the training text: heads are good on
what the model says, not on what others wrote. Batches mix it with windows of the training text. States are computed anew
in every step. At the end stands how often each head and the model agree on the likeliest token of held-out text, beside a
table of trigrams of the same training text: a head that does not beat it is broken.

Needs torch, numpy, safetensors and tokenizers, and this package: where it is not installed, put a folder on PYTHONPATH in
which `decodescope` is a link to the checkout.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from decodescope.engine.heads.base import Head
from decodescope.engine.heads.eagle3 import Eagle3Layer, fused_layers, spread
from decodescope.engine.heads.files import HEADS, write
from decodescope.engine.heads.shift import Shift, shifts
from net import Net
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
BUILD, MODELS = ROOT / "build" / "training", ROOT / "assets" / "models"
LENGTH, ROWS = 256, 16  # tokens a window, windows a step
RANKS = 10  # guesses whose accuracy is kept
LEVELS = 5  # of a draft at which EAGLE is measured
UNROLLED = 3  # levels of a draft on which EAGLE-3 is trained; seven in the original
PREFIX = (8, 64)  # tokens of a beginning after which the model writes on

# sizes, but for the width of the model's states: all together take less than 6 MiB in bfloat16 at a width of 384
SHAPES = {
    "medusa": dict(heads=3),
    "hydra": dict(heads=3, rank=64),
    "eagle": dict(n_heads=4, n_kv_heads=2, head_dim=64, d_ff=128),
    "eagle3": dict(vocab=4096, kept=2048, n_heads=2, n_kv_heads=1, head_dim=64, d_ff=64, rank=96),  # vocab: the model's
    "kangaroo": dict(layer=2, n_heads=4, n_kv_heads=2, head_dim=64),
    "blockwise": dict(heads=3, hidden=128),
    "mlp_speculator": dict(heads=3, inner=192),
}


@dataclass
class Read:
    """What the frozen model makes of ids int64 [B, T]: embeddings, the states that enter a layer, the final features
    [B, T, d] each, the states of three layers that EAGLE-3 fuses [B, T, 3 d], and logits [B, T, V]. The feature is the last
    layer's output after the final norm, which the unembedding reads."""

    ids: Tensor
    embedded: Tensor
    early: Tensor
    feature: Tensor
    fused: Tensor
    logits: Tensor


@torch.no_grad()
def read(net: Net, ids: Tensor, layer: int = 0) -> Read:
    """Run the model over ids; `layer`: the one whose entering states are wanted."""
    states = net.states(ids)
    feature = net.model.norm(states[-1])
    logits = unembed(net, feature)
    fused = torch.cat([states[i] for i in fused_layers(net.shape.layers)], -1)
    return Read(ids, states[0].float(), states[layer].float(), feature.float(), fused.float(), logits.float())


def unembed(net: Net, feature: Tensor) -> Tensor:
    """Logits [..., V] of final features [..., d]."""
    return F.linear(feature, net.model.embed_tokens.weight)


def said(net: Net, head: Head, x: Tensor) -> Tensor:
    """Logits [..., V] of the features [..., d] that a head made."""
    if isinstance(head, Eagle3Layer):
        return spread(choices(net, head, x), head.ids, net.shape.vocabulary)
    return unembed(net, x)


def choices(net: Net, head: Eagle3Layer, x: Tensor) -> Tensor:
    """EAGLE-3's logits [..., kept] over its draft vocabulary, of its outputs [..., d]."""
    return head.choices(x, net.model.embed_tokens.weight[head.ids] if head.words is None else head.own)


def guesses(head: Head, r: Read, noise: float = 0.0) -> list[tuple[Shift, Tensor]]:
    """Each head's shift and the features [B, rows, d] that it makes, every row given what stands before it in the text.

    noise: half the width of the uniform noise on EAGLE's input, in units of the features' root mean square
    """
    table = shifts(head.kind, UNROLLED if head.kind == "eagle3" else head.shape.get("heads", 1))
    if isinstance(head, Eagle3Layer):
        told = [s.at(r.embedded, s.reads[0]) for s in table]
        return list(zip(table, head.unrolled(head.enter(table[0].at(r.fused, 0)), told), strict=True))
    if head.kind == "medusa":
        return [(s, head.head(k, s.at(r.feature, 0))) for k, s in enumerate(table)]
    if head.kind == "blockwise":
        return [(s, s.at(x, 0)) for s, x in zip(table, head(r.feature), strict=True)]
    if head.kind == "mlp_speculator":
        told = [torch.stack([s.at(r.embedded, x) for x in s.reads], -2) for s in table]
        return [(s, head(s.at(r.feature, 0), told[k])[k]) for k, s in enumerate(table)]
    if head.kind == "hydra":
        told = [torch.stack([s.at(r.embedded, x) for x in s.reads], -2) for s in table]  # [B, rows, k + 1, d]
        return [(s, head(k, s.at(r.feature, 0), told[k])) for k, s in enumerate(table)]
    s = table[0]
    if head.kind == "kangaroo":
        return [(s, head(s.at(r.early, 0)))]
    f = s.at(r.feature, 0)
    f = f + (torch.rand_like(f) * 2 - 1) * noise * f.square().mean().sqrt() if noise else f
    return [(s, head(f, s.at(r.embedded, s.reads[0])))]


def loss_of(net: Net, head: Head, r: Read) -> Tensor:
    """What each paper minimises. Medusa: cross-entropy of the token, 0.8^k for head k; the MLP speculator the same, but without
    these weights. Hydra (as Hydra++) and Kangaroo: cross-entropy with the model's own law of that token. EAGLE: smooth L1
    distance to the true feature, and 0.1 of the cross-entropy with the model's law. EAGLE-3: cross-entropy with the model's
    law over the draft vocabulary, 0.8^k for level k of the draft, where the model's likeliest token is in it. Blockwise:
    cross-entropy of the token for one head, drawn anew for each batch, which is on average the mean over heads."""
    if head.kind == "blockwise":
        made = guesses(head, r)
        s, x = made[int(torch.randint(len(made), ()))]
        return F.cross_entropy(unembed(net, x).float().flatten(0, 1), s.at(r.ids, s.says).flatten())
    total = r.feature.new_zeros(())
    if isinstance(head, Eagle3Layer):
        for k, (s, x) in enumerate(guesses(head, r)):
            law, mine = s.law(r.logits).flatten(0, 1), choices(net, head, x).float().flatten(0, 1)
            losses = F.cross_entropy(mine, law[:, head.ids].softmax(1), reduction="none")
            total = total + 0.8**k * (losses * head.mask[law.argmax(1)]).mean()
        return total
    for k, (s, x) in enumerate(guesses(head, r, noise=0.1)):
        logits = unembed(net, x).float().flatten(0, 1)  # [B * rows, V]
        if head.kind in ("medusa", "mlp_speculator"):
            total = total + (0.8**k if head.kind == "medusa" else 1) * F.cross_entropy(logits, s.at(r.ids, s.says).flatten())
            continue
        soft = F.cross_entropy(logits, s.law(r.logits).flatten(0, 1).softmax(1))
        if head.kind == "eagle":
            soft = 0.1 * soft + F.smooth_l1_loss(x.float(), s.law(r.feature))
        total = total + soft
    return total


def new_head(kind: str, net: Net, **shape: int) -> Head:
    """Fresh heads for the model. The last norms of Kangaroo and EAGLE-3 begin as the model's final one."""
    shape = {**SHAPES[kind], **shape}
    if kind == "eagle3":
        shape |= dict(vocab=net.shape.vocabulary, kept=min(shape["kept"], net.shape.vocabulary))
    head = HEADS[kind](d=net.shape.width, **shape)
    if kind in ("kangaroo", "eagle3"):
        with torch.no_grad():
            head.last.copy_(net.model.norm.weight)
    return head


def rate(step: int, steps: int) -> float:
    """The factor on the learning rate: up over the first twentieth, then down a half cosine."""
    rise = max(1, steps // 20)
    return min(1.0, (step + 1) / rise) * 0.5 * (1 + math.cos(math.pi * step / steps))


def train(
    net: Net,
    heads: Sequence[Head],
    batches: Iterator[Tensor],
    steps: int,
    lr: float = 1e-3,
    half: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """AdamW over `steps` batches of ids int64 [B, T]; the model stays as it is, and no head knows of another. half: products
    in bfloat16."""
    net.requires_grad_(False)
    weights = [p for head in heads for p in head.requires_grad_(True).parameters()]
    optimizer = torch.optim.AdamW(weights, lr=lr, betas=(0.9, 0.95), weight_decay=0.01)
    layer = max(head.shape.get("layer", 0) for head in heads)
    began, recent = time.time(), []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * rate(step, steps)
        ids, losses = next(batches), []
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=half):
            r = read(net, ids, layer)
        for head in heads:
            with torch.autocast(ids.device.type, torch.bfloat16, enabled=half):
                loss = loss_of(net, head, r)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(head.parameters(), 0.5)
            losses.append(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        recent.append(torch.stack(losses))
        if (step + 1) % 50 == 0 or step + 1 == steps:
            means = torch.stack(recent).mean(0).tolist()
            shown = ", ".join(f"{head.kind} {mean:.3f}" for head, mean in zip(heads, means, strict=True))
            say(f"step {step + 1} of {steps}, loss {shown}, {time.time() - began:.0f} s")
            recent = []
    for head in heads:
        head.requires_grad_(False)


@torch.no_grad()
def measured(net: Net, head: Head, windows: Tensor) -> list[list[float]]:
    """Per head, at what share of the positions of int64 [N, T] its guess of rank 0, 1, ... is the model's likeliest token."""
    found: list[Tensor] = []
    for part in windows.split(ROWS):
        r = read(net, part, head.shape.get("layer", 0))
        hits = []
        for s, x in guesses(head, r):
            wanted = s.law(r.logits).argmax(-1, keepdim=True)
            top = said(net, head, x).topk(min(RANKS, net.shape.vocabulary)).indices
            hits.append((top == wanted).flatten(0, 1).sum(0).double() / (len(windows) * s.rows(windows.shape[1])))  # [RANKS]
        found.append(torch.stack(hits))
    return torch.stack(found).sum(0).tolist()


@torch.no_grad()
def unrolled(net: Net, head: Head, windows: Tensor, levels: int = LEVELS, stride: int = 12) -> list[list[float]]:
    """`measured` for EAGLE's deeper levels 1 to levels - 1: drafting from every `stride`-th place of int64 [N, T] on its own
    guessed features, with the tokens of the text."""
    hits, count = torch.zeros(levels - 1, min(RANKS, net.shape.vocabulary), dtype=torch.float64), 0
    for ids in windows.split(1):
        r, store = read(net, ids), head.attention.store()
        first = head(r.feature[:, :-1], r.embedded[:, 1:], 0, store)  # slot t guesses the feature of t + 1
        store.commit(range(first.shape[1]))
        for t in reversed(range(0, ids.shape[1] - levels - 1, stride)):
            store.truncate(t + 1)
            guess, count = first[:, t : t + 1], count + 1
            for level in range(1, levels):
                slot = t + level
                guess = head(guess, r.embedded[:, slot + 1 : slot + 2], slot, store)
                top = unembed(net, guess)[0, 0].topk(hits.shape[1]).indices
                hits[level - 1] += (top == r.logits[0, slot + 1].argmax()).double().cpu()
    return (hits / count).tolist()


class Trigrams:
    """The most frequent token at a distance behind two tokens, counted on rows of text (int [N, T]); behind the last one
    alone where the pair never came."""

    def __init__(self, text: np.ndarray, distance: int, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        text = text.astype(np.int64)
        a, b, c = text[:, : -1 - distance], text[:, 1:-distance], text[:, 1 + distance :]
        self.pairs = self._best((a * vocabulary + b).ravel(), c.ravel())
        self.singles = self._best(b.ravel(), c.ravel())

    def _best(self, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        codes, counts = np.unique(keys * self.vocabulary + values, return_counts=True)
        order = np.lexsort((-counts, codes // self.vocabulary))
        codes = codes[order]
        first = np.unique(codes // self.vocabulary, return_index=True)[1]
        return codes[first] // self.vocabulary, codes[first] % self.vocabulary

    def guess(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The guess behind each pair (a, b); -1 where b never came."""
        made = np.full(a.shape, -1)
        for (keys, values), wanted in ((self.singles, b), (self.pairs, a * self.vocabulary + b)):
            at = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
            made = np.where(keys[at] == wanted, values[at], made)
        return made


@torch.no_grad()
def floor(net: Net, kind: str, heads: int, text: np.ndarray, windows: Tensor) -> list[float]:
    """Per head, the share that a table of trigrams reaches where the head is measured, given the last two known tokens."""
    made, ids = [], windows.cpu().numpy().astype(np.int64)
    best = torch.cat([read(net, part).logits.argmax(-1) for part in windows.split(ROWS)]).cpu().numpy()  # [N, T]
    for s in shifts(kind, heads):
        table = Trigrams(text, s.says - s.known, net.shape.vocabulary)
        t = np.arange(max(0, 1 - s.known), s.rows(ids.shape[1]))
        guess = table.guess(ids[:, t + s.known - 1], ids[:, t + s.known])
        made.append(float((guess == best[:, t + s.says - 1]).mean()))
    return made


def own_text(net: Net, beginnings: Tensor, length: int, seed: int) -> np.ndarray:
    """uint16 [N, length]: what the model writes after a few tokens of each row of `beginnings` (int64 [N, T])."""
    r, made = np.random.default_rng(seed), []
    draw = torch.Generator(beginnings.device).manual_seed(seed)
    for part in beginnings.split(128):
        known = int(r.integers(PREFIX[0], min(PREFIX[1], part.shape[1], length - 1) + 1))
        made.append(net.write(part[:, :known], length - known, 1.0, draw).cpu().numpy().astype(np.uint16))
    return np.concatenate(made)


def mixed(own: np.ndarray, corpus: np.ndarray, share: float, seed: int, device: str) -> Iterator[Tensor]:
    """Batches int64 [ROWS, T] without end: random rows of the model's own text, and a `share` of the corpus's windows."""
    r, theirs = np.random.default_rng(seed), round(ROWS * share)
    while True:
        rows = [own[r.integers(len(own), size=ROWS - theirs)], corpus[r.integers(len(corpus), size=theirs)]]
        yield torch.from_numpy(np.concatenate(rows).astype(np.int64)).to(device)


def frequent(text: np.ndarray, count: int, vocabulary: int) -> list[int]:
    """The `count` ids that come most often in rows of text (int [N, T]), ascending; of equals the lower."""
    counts = np.bincount(text.ravel(), minlength=vocabulary)
    return sorted(np.argsort(-counts, kind="stable")[:count].tolist())


def windows_of(stream: np.ndarray, count: int, seed: int) -> np.ndarray:
    """uint16 [count, LENGTH]: random windows of a stream."""
    at = np.random.default_rng(seed).integers(len(stream) - LENGTH, size=count)
    return np.stack([stream[x : x + LENGTH] for x in at])


def texts(net: Net, fingerprint: str, millions: float, seed: int) -> tuple[np.ndarray, np.ndarray, Tensor]:
    """Windows of the training text, ids [N, LENGTH], about so many `millions` of tokens; what the model writes after their
    beginnings, alike, which is kept in build/training under its fingerprint; and int64 [64, LENGTH], what it writes after
    held-out ones."""
    from data import held_out_windows, training_stream

    device = next(net.parameters()).device
    corpus = windows_of(training_stream(), max(ROWS, int(millions * 1e6) // LENGTH), seed + 1)
    file = BUILD / f"own-{fingerprint}-{len(corpus)}-{seed}.npy"
    if not file.exists():
        began = time.time()
        np.save(file, own_text(net, torch.from_numpy(corpus.astype(np.int64)).to(device), LENGTH, seed + 2))
        print(f"the model wrote {len(corpus) * LENGTH / 1e6:.2f} M tokens in {time.time() - began:.0f} s", flush=True)
    unseen = held_out_windows(LENGTH, 64).to(device)
    held_out = torch.from_numpy(own_text(net, unseen, LENGTH, seed + 3).astype(np.int64)).to(device)
    return corpus, np.load(file), held_out


def main() -> None:
    """Write text, train, measure, and keep the heads."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kinds", nargs="+", choices=HEADS, metavar="KIND", help=", ".join(HEADS))
    parser.add_argument("--model", default="lab", help="a folder of assets/models")
    parser.add_argument("--tokens", type=float, default=6.0, help="training tokens in millions")
    parser.add_argument("--text", type=float, default=1.0, help="of the model's own text, in millions of tokens")
    parser.add_argument("--corpus", type=float, default=0.25, help="share of windows that come from the training text")
    parser.add_argument("--layer", type=int, default=2, help="kangaroo: the target layer before which a draft exits")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: as torch finds it")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--into", type=Path, help="folder in which KIND/ is written; by default the model's heads/")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)

    from decodescope.engine.load import fingerprint

    folder = MODELS / args.model
    made_for = fingerprint(folder)
    net = Net.from_folder(folder).to(args.device).requires_grad_(False)
    corpus, own, held_out = texts(net, made_for, args.text, args.seed)

    kinds = list(dict.fromkeys(args.kinds))
    heads = [new_head(x, net, **(dict(layer=args.layer) if x == "kangaroo" else {})).to(args.device) for x in kinds]
    for head in heads:
        if isinstance(head, Eagle3Layer):
            head.keep(frequent(own, head.shape["kept"], net.shape.vocabulary))
            print(f"the draft vocabulary holds {float(head.mask[held_out].mean()):.1%} of held-out tokens", flush=True)
    steps = max(1, round(args.tokens * 1e6 / (ROWS * LENGTH)))
    size = ", ".join(f"{head.kind} {sum(p.numel() for p in head.parameters()):,}" for head in heads)
    print(f"parameters: {size}; {steps} steps of {ROWS} windows of {LENGTH} tokens", flush=True)
    batches = mixed(own, corpus, args.corpus, args.seed + 4, args.device)
    train(net, heads, batches, steps, args.lr, half=True, say=lambda text: print(text, flush=True))
    settings = {k: v for k, v in vars(args).items() if k in ("tokens", "text", "corpus", "lr", "seed")}
    for head in heads:
        ranks = measured(net, head, held_out)
        deeper = unrolled(net, head, held_out) if head.kind == "eagle" else []
        trigrams = floor(net, head.kind, len(ranks), own, held_out)
        for k, (row, usual) in enumerate(zip(ranks, trigrams, strict=True)):
            print(f"{head.kind} {k}: the model's likeliest token at {row[0]:.1%} of held-out places; trigrams {usual:.1%}")
        head.rates = tuple(tuple(round(x, 5) for x in row) for row in ranks + deeper)
        head.made_for = made_for
        notes = {"trigrams": [round(x, 5) for x in trigrams], "made_with": settings}
        write(head, (args.into or folder / "heads") / head.kind, notes)


if __name__ == "__main__":
    main()
