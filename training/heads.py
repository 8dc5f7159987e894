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
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.drafting.clover import CloverHeads
from decodescope.engine.model.heads.drafting.eagle import EagleLayer
from decodescope.engine.model.heads.drafting.eagle3 import Eagle3Layer, fused_layers, scatter_logits
from decodescope.engine.model.heads.drafting.fspad import FspadLayer
from decodescope.engine.model.heads.drafting.kangaroo import KangarooAdapter
from decodescope.engine.model.heads.drafting.medusa import MedusaHeads
from decodescope.engine.model.heads.drafting.parallelspec import ParallelSpecLayer
from decodescope.engine.model.heads.drafting.shift import HeadShift, head_shifts
from decodescope.engine.model.heads.files import HEADS, write_head

from .adversary import Adversary
from .net import Net

ROOT = Path(__file__).resolve().parents[1]
BUILD, MODELS = ROOT / "build" / "training", ROOT / "assets" / "models"
LENGTH, ROWS = 256, 16  # tokens a window, windows read at once
WINDOWS, PLACES = 4, 0.25  # windows a step, and of their places the share that a level's loss is taken at
RANKS = 10  # guesses with recorded accuracy
LEVELS = 5  # of a draft at which EAGLE is measured
SAYS = 200  # steps between two lines
UNSEEN = 64  # windows of held-out text on which heads are measured
UNROLLED = 3  # levels of a draft on which EAGLE-3 is trained; seven in the original
PREFIX = (8, 64)  # tokens of a beginning after which the model writes on

# sizes, but for the width of the model's states: all that are shipped take less than 7.8 MiB in bfloat16 at a width of 384
SHAPES = {
    "medusa": dict(heads=3),
    "hydra": dict(heads=3, rank=192),
    "eagle": dict(n_heads=4, n_kv_heads=2, head_dim=64, d_ff=128),
    "eagle3": dict(
        vocab=4096, kept=2048, n_heads=2, n_kv_heads=1, head_dim=64, d_ff=64, rank=128
    ),  # vocab: the model's
    "kangaroo": dict(layer=2, n_heads=4, n_kv_heads=2, head_dim=64),
    "blockwise": dict(heads=3, hidden=384),
    "mlp_speculator": dict(heads=3, inner=256),
    "redrafter": dict(heads=3, inner=144, blocks=2),
    "fspad": dict(n_heads=4, n_kv_heads=2, head_dim=64, d_ff=128, rank=64),
    "parallelspec": dict(masks=3, n_heads=4, n_kv_heads=2, head_dim=64, d_ff=128),
    "clover": dict(heads=3, gates=4, gate_dim=32, n_heads=2, n_kv_heads=1, head_dim=64, d_ff=128, rank=128),
}
TOLD = (
    "fspad",
    "parallelspec",
    "clover",
)  # in docs/heads.md and not shipped: the others fill the room of heads
AROUND = (FspadLayer, ParallelSpecLayer)  # nets with EAGLE's layer in them
FEATURES = ("eagle", "fspad", "parallelspec")  # they guess features


@dataclass
class ModelStates:
    """The frozen model's values for ids int64 [B, T].

    They are embeddings, the states that enter a layer, the final features [B, T, d] each, and the states of three layers that
    EAGLE-3 fuses [B, T, 3 d]. The feature is the last layer's output after the final norm; the unembedding turns it into the
    model's distribution of the next token.
    """

    ids: Tensor
    embedded: Tensor
    early: Tensor
    feature: Tensor
    fused: Tensor


@torch.no_grad()
def read_states(net: Net, ids: Tensor, layer: int = 0) -> ModelStates:
    """Run the model over ids; `layer`: the layer whose input states are wanted."""
    states = net.states(ids)
    feature = net.model.norm(states[-1])
    fused = torch.cat([states[i] for i in fused_layers(net.shape.layers)], -1)
    return ModelStates(ids, states[0].float(), states[layer].float(), feature.float(), fused.float())


def unembed(net: Net, feature: Tensor) -> Tensor:
    """Logits [..., V] of final features [..., d]."""
    return F.linear(feature, net.model.embed_tokens.weight)


def head_logits(net: Net, head: Head, x: Tensor) -> Tensor:
    """Logits [..., V] of the features [..., d] that a head made."""
    if isinstance(head, Eagle3Layer):
        return scatter_logits(draft_vocabulary_logits(net, head, x), head.ids, net.shape.vocabulary)
    return unembed(net, head.unembedding_input(x))


def draft_vocabulary_logits(net: Net, head: Eagle3Layer, x: Tensor) -> Tensor:
    """EAGLE-3's logits [..., kept] over its draft vocabulary, of its outputs [..., d]."""
    return head.choices(
        x, net.model.embed_tokens.weight[head.ids] if head.words is None else head.own_vocabulary
    )


def count_levels(head: Head) -> int:
    """How many levels of a draft it guesses in training."""
    return UNROLLED if head.kind == "eagle3" else head.shape.get("heads", head.shape.get("masks", 0) + 1)


def head_guesses(head: Head, r: ModelStates, noise: float = 0.0) -> list[tuple[HeadShift, Tensor]]:
    """Each head's shift and the features [B, rows, d] that it makes; every row gets the text before it.

    noise: half the width of the uniform noise on EAGLE's input, in units of the features' root mean square
    """
    table = head_shifts(head.kind, count_levels(head))
    if isinstance(head, Eagle3Layer):
        told = [s.align(r.embedded, s.reads[0]) for s in table]
        return list(zip(table, head.unroll(head.enter(table[0].align(r.fused, 0)), told), strict=True))
    if isinstance(head, CloverHeads):
        told = [s.align(r.embedded, s.reads[-1]) for s in table]
        return list(zip(table, head.unroll(table[0].align(r.feature, 0), told), strict=True))
    if head.kind == "medusa":
        return [(s, cast(MedusaHeads, head).head(k, s.align(r.feature, 0))) for k, s in enumerate(table)]
    if head.kind == "blockwise":
        return [(s, s.align(x, 0)) for s, x in zip(table, head(r.feature), strict=True)]
    if head.kind in ("mlp_speculator", "redrafter"):
        told = [torch.stack([s.align(r.embedded, x) for x in s.reads], -2) for s in table]
        return [(s, head(s.align(r.feature, 0), told[k])[k]) for k, s in enumerate(table)]
    if head.kind == "hydra":
        told = [
            torch.stack([s.align(r.embedded, x) for x in s.reads], -2) for s in table
        ]  # [B, rows, k + 1, d]
        return [(s, head(k, s.align(r.feature, 0), told[k])) for k, s in enumerate(table)]
    s = table[0]
    if head.kind == "kangaroo":
        return [(s, head(s.align(r.early, 0)))]
    f = s.align(r.feature, 0)
    f = f + (torch.rand_like(f) * 2 - 1) * noise * f.square().mean().sqrt() if noise else f
    if isinstance(head, ParallelSpecLayer):
        rows = [s.rows(r.ids.shape[1]) for s in table]
        return list(zip(table, head.unroll_groups(f, s.align(r.embedded, s.reads[0]), rows), strict=True))
    return [(s, head(f, s.align(r.embedded, s.reads[0])))]


def sample_places(count: int, share: float, device: torch.device) -> Tensor | slice:
    """A random `share` of `count` places, at least one; all in order for 1."""
    return slice(None) if share >= 1 else torch.randperm(count, device=device)[: max(1, round(share * count))]


def loss_of(
    net: Net, head: Head, r: ModelStates, share: float = 1.0, rival: Adversary | None = None
) -> Tensor:
    """The loss that each paper minimises, at a random `share` of the places of every level.

    Medusa and Clover: cross-entropy of the token, 0.8^k for head k; MLP speculator and ReDrafter the same, without these
    weights. Hydra (as Hydra++) and Kangaroo: cross-entropy with the model's own distribution of that token.

    EAGLE, FSPAD and ParallelSpec: smooth L1 distance to the true feature (everywhere), plus 0.1 of the cross-entropy with the
    model's distribution (in FSPAD that of the feature that it speaks), 0.8^k for place k of a group. EAGLE-3: cross-entropy
    with the model's distribution over the draft vocabulary, 0.8^k for level k of the draft, where the model's likeliest token
    is in it.

    Blockwise: cross-entropy of the token for one head, drawn again for each batch, which is on average the mean over heads.
    With a `rival` its loss is added, at the same places.
    """
    made, total = list(enumerate(head_guesses(head, r, noise=0.1))), r.feature.new_zeros(())
    for k, (s, x) in [made[int(torch.randint(len(made), ()))]] if head.kind == "blockwise" else made:
        at = sample_places(x.shape[0] * x.shape[1], share, x.device)
        mine = x.flatten(0, 1)[at]  # [n, d]
        if rival is not None:
            with torch.no_grad():
                p = unembed(net, s.align_target(r.feature).flatten(0, 1)[at])
            total = total + rival.adversarial_loss(p, head_logits(net, head, mine))
        if head.kind in ("medusa", "blockwise", "mlp_speculator", "redrafter", "clover"):
            weight = 0.8**k if head.kind in ("medusa", "clover") else 1.0
            total = total + weight * F.cross_entropy(
                unembed(net, mine).float(), s.align(r.ids, s.says).flatten()[at]
            )
            continue
        law = unembed(net, s.align_target(r.feature).flatten(0, 1)[at]).float()  # [n, V]
        if isinstance(head, Eagle3Layer):
            losses = F.cross_entropy(
                draft_vocabulary_logits(net, head, mine).float(),
                law[:, head.ids].softmax(1),
                reduction="none",
            )
            total = total + 0.8**k * (losses * head.mask[law.argmax(1)]).mean()
            continue
        soft = F.cross_entropy(head_logits(net, head, mine).float(), law.softmax(1))
        near = F.smooth_l1_loss(x.float(), s.align_target(r.feature)) if head.kind in FEATURES else None
        total = total + (soft if near is None else 0.8**k * (0.1 * soft + near))
    return total


def new_head(kind: str, net: Net, **shape: int) -> Head:
    """Fresh heads for the model. The last norms of Kangaroo and EAGLE-3 begin as the model's final one."""
    shape = {**SHAPES[kind], **shape}
    if kind == "eagle3":
        shape |= dict(vocab=net.shape.vocabulary, kept=min(shape["kept"], net.shape.vocabulary))
    head = HEADS[kind](d=net.shape.width, **shape)
    if kind in ("kangaroo", "eagle3"):
        with torch.no_grad():
            cast(KangarooAdapter | Eagle3Layer, head).last.copy_(net.model.norm.weight)
    return head


def rate(step: int, steps: int) -> float:
    """The factor on the learning rate: up over the first twentieth, then down a half cosine."""
    rise = max(1, steps // 20)
    return min(1.0, (step + 1) / rise) * 0.5 * (1 + math.cos(math.pi * step / steps))


def optimizers(head: Head, lr: float, muon: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of linear maps, AdamW for all else.

    A residual block that begins at zero first has to undo the state that it is added to, which is a matrix of full rank. Muon's
    steps have full rank, Adam's hardly.
    """
    maps = [m.weight for m in head.modules() if isinstance(m, torch.nn.Linear)]
    rest = [p for p in head.parameters() if all(p is not m for m in maps)]
    made: list[torch.optim.Optimizer] = [
        torch.optim.Muon(maps, lr=muon, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    ]
    return made + ([torch.optim.AdamW(rest, lr=lr, betas=(0.9, 0.95), weight_decay=0.0)] if rest else [])


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


@torch.no_grad()
def measure(net: Net, head: Head, windows: Tensor) -> list[list[float]]:
    """Per head, at what share of the positions of int64 [N, T] its guess of rank 0, 1, ... is the model's likeliest token."""
    found: list[Tensor] = []
    for part in windows.split(ROWS):
        r = read_states(net, part, head.shape.get("layer", 0))
        hits = []
        for s, x in head_guesses(head, r):
            wanted = unembed(net, s.align_target(r.feature)).argmax(-1, keepdim=True)
            top = head_logits(net, head, x).topk(min(RANKS, net.shape.vocabulary)).indices
            hits.append(
                (top == wanted).flatten(0, 1).sum(0).double() / (len(windows) * s.rows(windows.shape[1]))
            )  # [RANKS]
        found.append(torch.stack(hits))
    return torch.stack(found).sum(0).tolist()


@torch.no_grad()
def measure_unrolled(
    net: Net, head: Head, windows: Tensor, levels: int = LEVELS, stride: int = 12
) -> list[list[float]]:
    """`measure` for the deeper levels 1 to levels - 1 of EAGLE and FSPAD: drafting from every `stride`-th place of int64
    [N, T] on guessed features, with the tokens of the text."""
    hits, count = torch.zeros(levels - 1, min(RANKS, net.shape.vocabulary), dtype=torch.float64), 0
    for ids in windows.split(1):
        r, store = read_states(net, ids), cast(EagleLayer | FspadLayer, head).attention.store()
        first = head(r.feature[:, :-1], r.embedded[:, 1:], 0, store)  # slot t guesses the feature of t + 1
        store.commit(range(first.shape[1]))
        for t in reversed(range(0, ids.shape[1] - levels - 1, stride)):
            store.truncate(t + 1)
            guess, count = first[:, t : t + 1], count + 1
            for level in range(1, levels):
                slot = t + level
                guess = head(guess, r.embedded[:, slot + 1 : slot + 2], slot, store)
                top = head_logits(net, head, guess)[0, 0].topk(hits.shape[1]).indices
                hits[level - 1] += (top == unembed(net, r.feature[0, slot + 1]).argmax()).double().cpu()
    return (hits / count).tolist()


class TrigramTable:
    """The most frequent token at a distance behind two tokens, counted on rows of text (int [N, T]).

    If the pair never occurred, it is counted behind the last token alone.
    """

    def __init__(self, text: np.ndarray, distance: int, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        text = text.astype(np.int64)
        a = text[:, : -1 - distance]
        b = text[:, 1:-distance]
        c = text[:, 1 + distance :]
        self.pairs = self._most_frequent((a * vocabulary + b).ravel(), c.ravel())
        self.singles = self._most_frequent(b.ravel(), c.ravel())

    def _most_frequent(self, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
def trigram_floor(
    net: Net, kind: str, heads: int, text: np.ndarray, windows: Tensor, root: bool = False
) -> list[float]:
    """Per head, the share that a table of trigrams reaches at the places where the head is measured.

    The table gets the last two tokens that the head itself reads something of. root: it gets the last two known tokens, though
    Medusa and blockwise do not get the root.
    """
    made, ids = [], windows.cpu().numpy().astype(np.int64)
    best = (
        torch.cat([unembed(net, read_states(net, part).feature).argmax(-1) for part in windows.split(ROWS)])
        .cpu()
        .numpy()
    )  # [N, T]
    for s in head_shifts(kind, heads):
        last = s.known if root else s.last
        table = TrigramTable(text, s.says - last, net.shape.vocabulary)
        t = np.arange(max(0, 1 - last), s.rows(ids.shape[1]))
        guess = table.guess(ids[:, t + last - 1], ids[:, t + last])
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
    fuses, parts = any(isinstance(head, Eagle3Layer) for head in heads), []
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


def frequent_ids(text: np.ndarray, count: int, vocabulary: int) -> list[int]:
    """The `count` ids that come most often in rows of text (int [N, T]), ascending; of equals the lower."""
    counts = np.bincount(text.ravel(), minlength=vocabulary)
    return sorted(np.argsort(-counts, kind="stable")[:count].tolist())


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

    A net around EAGLE's layer, if it is not there, is loaded from source/eagle.
    """
    folder, net = source / head.kind, head
    if not folder.exists() and isinstance(head, AROUND):
        folder, net = source / "eagle", head.layer
    net.load_state_dict(load_file(folder / "model.safetensors"))
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
        elif isinstance(head, Eagle3Layer):
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
