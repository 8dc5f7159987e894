"""Train what stands in slots of a frozen model's own pass, and write it into its folder, `assets/models/<model>/heads/KIND/`.

    python -m decodescope.training.slot_tokens look_ahead_tokens --within 3
    python -m decodescope.training.slot_tokens bita --within 3

PaSS's look-ahead tokens are embeddings: Monea et al. 2023, arXiv:2311.13581. They follow random places of the text. Each is to
have the distribution that the model has of the later token when it has read all before it: cross-entropy with that
distribution, the mean over them. On text that the model wrote this is on average the cross-entropy of the token that the paper
has [recalled], with less noise. Adam, 1e-2, up over a twentieth and down a half cosine.

The model reads the text once without gradients; its keys and values serve all slots of the step. The text is what the model
writes, with some of the training text (heads.py). BiTA's mask tokens (Lin et al. 2024, arXiv:2401.12522) are trained alike, and
with them a prefix that they see; it begins as the keys and values of random ids.

The rate falls by the share of the minutes that the processor has spent, so a slower machine makes fewer steps, and a busy one
as many as an idle one. Results so far are kept every `KEEPS` steps in build/training, and the same command goes on from there.

At the end it prints how often each guess is the model's likeliest token of held-out text, compared with a table of trigrams
that gets the same tokens: slots that do not beat it are broken.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.model.heads.drafting.slot_tokens import SlotTokens, slot_mask
from decodescope.engine.model.heads.files import SLOTTED, write_head
from decodescope.engine.training.measures import RANKS, trigram_floor
from decodescope.engine.training.optimizers import rate

from .heads import BUILD, MODELS, load_texts, mix_text
from .net import Net, Past, apply_rotary

WINDOWS, PLACES = 2, 48  # windows a step, and places in each behind which slots hang
SHAPES: dict[str, dict[str, int]] = {
    "look_ahead_tokens": dict(heads=3),
    "bita": dict(heads=3, tokens=16),
}  # but for what is the model's
LR = 1e-2
KEEPS = 25  # steps between two files of what was reached, and two lines


def slot_logits(net: Net, head: SlotTokens, past: Past, places: Tensor) -> Tensor:
    """float [B, P, K, V]: the logits of all K slots behind each of P places int64 [P] of the text that `past` holds.

    The places are the same in every window. Each slot sees the text up to its place, its line of slots, and the prefix if there
    is one.
    """
    P = len(places)
    K = head.shape["heads"]
    E = head.embeds.shape[1]
    rows = head.rows([K] * P).to(places.device)  # [3, S]
    stand = places[rows[0]] + 1 + rows[1]
    before = torch.arange(past.length, device=places.device) <= places[rows[0]][:, None]
    sees = torch.cat([before, slot_mask(rows)], 1)  # [S, T + S]
    turn, s = (net.cosine[stand], net.sine[stand]), net.shape
    x = head(rows).expand(past.keys.shape[1], -1, -1)  # [B, S, D]
    for i, layer in enumerate(net.layers):
        y, a = layer.input_layernorm(x), layer.self_attn
        bare, k, v = (
            p(y).unflatten(2, (n, s.head_width)).transpose(1, 2)
            for p, n in ((a.q_proj, s.heads), (a.k_proj, s.kv_heads), (a.v_proj, s.kv_heads))
        )
        q, k = apply_rotary(bare, turn), apply_rotary(k, turn)
        k = torch.cat([past.keys[i, :, :, : past.length].to(k.dtype), k], 2)
        v = torch.cat([past.values[i, :, :, : past.length].to(v.dtype), v], 2)
        if head.prefix_kv is None:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=sees, enable_gqa=True)
        else:
            y = _with_prefix(q, bare, k, v, head.prefix_kv[i], sees)
        x = x + a.o_proj(y.transpose(1, 2).flatten(2))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return net.head(x).unflatten(1, (P, K, E)).mean(3)


def _with_prefix(q: Tensor, bare: Tensor, k: Tensor, v: Tensor, prefix: Tensor, sees: Tensor) -> Tensor:
    """Attention [B, H, S, d] of q over k and v [B, G, T + S, d] where `sees` [S, T + S] allows it, and over a prefix.

    The queries before their rotation, `bare`, read the prefix [2, G, P, d], which all of them see.
    """
    G = k.shape[1]
    q, bare = (x.unflatten(1, (G, -1)) for x in (q, bare))  # [B, G, g, S, d]
    own = (q @ k[:, :, None].mT).masked_fill(~sees, -torch.inf)
    shared = bare @ prefix[0].to(bare.dtype)[:, None].mT
    weights = (torch.cat([own, shared], -1).float() * q.shape[-1] ** -0.5).softmax(-1).to(v.dtype)
    y = (
        weights[..., : k.shape[2]] @ v[:, :, None]
        + weights[..., k.shape[2] :] @ prefix[1].to(v.dtype)[:, None]
    )
    return y.flatten(1, 2)


@torch.no_grad()
def read_context(net: Net, ids: Tensor) -> tuple[Past, Tensor]:
    """What the model holds after ids int64 [B, T], and its final features [B, T, D]."""
    past = Past(net.shape, len(ids), ids.shape[1], net.cosine)
    return past, net.model.norm(net.states(ids, past)[-1])


def target_logits(net: Net, features: Tensor, places: Tensor, count: int) -> Tensor:
    """float [B, P, K, V]: the model's logits of the tokens that K = `count` slots behind places int64 [P] guess.

    Number k behind t guesses t + 2 + k; the logits of that token are at t + 1 + k.
    """
    at = places[:, None] + 1 + torch.arange(count, device=places.device)  # [P, K]
    return F.linear(features[:, at], net.model.embed_tokens.weight).float()


@torch.no_grad()
def measure(net: Net, head: SlotTokens, windows: Tensor, stride: int = 5) -> list[list[float]]:
    """Per slot, at what share of the places of int64 [N, T] its guess of rank 0, 1, ... is the model's likeliest."""
    K = head.shape["heads"]
    places = torch.arange(0, windows.shape[1] - 1 - K, stride, device=windows.device)
    hits = torch.zeros(K, min(RANKS, net.shape.vocabulary), dtype=torch.float64)
    for ids in windows.split(8):
        past, features = read_context(net, ids)
        top = slot_logits(net, head, past, places).topk(hits.shape[1]).indices  # [B, P, K, R]
        hits += (
            (top == target_logits(net, features, places, K).argmax(-1, keepdim=True))
            .sum((0, 1))
            .double()
            .cpu()
        )
    return (hits / (len(windows) * len(places))).tolist()


def loss_of(net: Net, head: SlotTokens, ids: Tensor, places: Tensor) -> Tensor:
    """Nats: the cross-entropy of each guess with the model's own distribution of its token, the mean over guesses."""
    past, features = read_context(net, ids)
    law = target_logits(net, features, places, head.shape["heads"]).softmax(-1)
    return F.cross_entropy(slot_logits(net, head, past, places).float().flatten(0, 2), law.flatten(0, 2))


def new_head(kind: str, net: Net, seed: int = 0, **shape: int) -> SlotTokens:
    """Fresh slots: the embeddings of random ids, and the keys and values of other random ids.

    The keys are turned back to where they meet queries that are not rotated.
    """
    s, draw = net.shape, torch.Generator().manual_seed(seed)
    of_model = (
        dict(n_layers=s.layers, n_kv_heads=s.kv_heads, head_dim=s.head_width)
        if SLOTTED[kind].of_target
        else {}
    )
    head = SLOTTED[kind](d=s.width, **{**SHAPES[kind], **of_model, **shape})
    assert isinstance(head, SlotTokens)
    ids = torch.randint(s.vocabulary, head.embeds.shape[:2], generator=draw)
    with torch.no_grad():
        head.embeds.copy_(net.model.embed_tokens.weight[ids])
        if head.prefix_kv is not None:
            count = head.prefix_kv.shape[3]
            past = read_context(net, torch.randint(s.vocabulary, (1, count), generator=draw))[0]
            # [L, G, P, d]
            keys = torch.cat([apply_rotary(x, (net.cosine[:count], -net.sine[:count])) for x in past.keys])
            head.prefix_kv.copy_(torch.stack([keys, past.values[:, 0]], 1))
    return head


def train(  # noqa: PLR0913
    net: Net,
    head: SlotTokens,
    rows: Tensor,
    steps: int,
    seconds: float = math.inf,
    *,
    lr: float = LR,
    seed: int = 0,
    windows: int = WINDOWS,
    places: int = PLACES,
    half: bool = False,
    kept: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> int:
    """Run Adam over random windows of int64 [N, T] until so many steps are done or so many seconds of the processor were spent.

    Returns the number of steps. The model stays as it is. The windows of a step are drawn by its number, so a training that
    goes on from its file `kept` reads what it would have read. half: products in bfloat16.
    """
    net.requires_grad_(False)
    optimizer = torch.optim.Adam(head.requires_grad_(True).parameters(), lr=lr)
    step = 0
    spent = 0.0
    recent = list[float]()
    if kept is not None and kept.exists():
        state = torch.load(kept, weights_only=True)
        head.load_state_dict(state["head"])
        optimizer.load_state_dict(state["optimizer"])
        step, spent = state["step"], state["spent"]
        say(f"goes on behind step {step}, {spent:.0f} s")
    room = rows.shape[1] - 1 - head.shape["heads"]  # places behind which all guesses have a distribution
    while step < steps and spent < seconds:
        began, r = time.process_time(), np.random.default_rng((seed, step))
        ids, at = rows[r.integers(len(rows), size=windows)], torch.from_numpy(r.permutation(room)[:places])
        for group in optimizer.param_groups:
            group["lr"] = lr * rate(int(1000 * max(step / steps, spent / seconds)), 1000)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = loss_of(net, head, ids, at)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        recent.append(float(loss.detach()))
        step, spent = step + 1, spent + time.process_time() - began
        if step % KEEPS == 0:
            say(f"step {step}, loss {sum(recent) / len(recent):.4f}, {spent:.0f} s")
            recent = []
            if kept is not None:
                state = dict(head=head.state_dict(), optimizer=optimizer.state_dict(), step=step, spent=spent)
                torch.save(state, kept.with_suffix(".partial"))
                kept.with_suffix(".partial").replace(kept)
    head.requires_grad_(False)
    return step


def main(words: Sequence[str] | None = None) -> None:
    """Write text, train, measure, and keep the slots."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("kind", choices=SLOTTED)
    parser.add_argument(
        "--within", type=float, required=True, metavar="MINUTES", help="of the processor, in training alone"
    )
    parser.add_argument("--model", default="lab", help="a folder of assets/models")
    parser.add_argument("--steps", type=int, default=1000, help="at most")
    parser.add_argument(
        "--text", type=float, default=0.25, help="of the model's own text, in millions of tokens"
    )
    parser.add_argument(
        "--corpus", type=float, default=0.25, help="share of windows that come from the training text"
    )
    parser.add_argument("--lr", type=float, default=LR)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: as torch finds it")
    parser.add_argument(
        "--into", type=Path, help="folder in which KIND/ is written; by default the model's heads/"
    )
    args = parser.parse_args(words)
    if args.threads:
        torch.set_num_threads(args.threads)

    from decodescope.engine.session.load import fingerprint

    folder = MODELS / args.model
    fresh = fingerprint(folder)
    net = Net.from_folder(folder).requires_grad_(False)
    corpus, own, held_out = load_texts(net, fresh, args.text, args.seed)
    head = new_head(args.kind, net, args.seed)
    print(f"{sum(p.numel() for p in head.parameters()):,} parameters", flush=True)
    kept = BUILD / f"{args.kind}-{fresh}-{args.seed}-{args.steps}-{args.within:g}-{args.lr:g}.pt"
    steps = train(
        net, head, mix_text(own, corpus, args.corpus), args.steps, args.within * 60, lr=args.lr, seed=args.seed + 4, half=True,
        kept=kept, say=lambda text: print(text, flush=True),
    )  # fmt: skip
    ranks = measure(net, head, held_out)
    trigrams = trigram_floor(net, head.kind, len(ranks), own, held_out)
    for k, (row, usual) in enumerate(zip(ranks, trigrams, strict=True)):
        print(
            f"{head.kind} {k}: the model's likeliest token at {row[0]:.1%} of held-out places; trigrams {usual:.1%}"
        )
    head.rates, head.made_for = tuple(tuple(round(x, 5) for x in row) for row in ranks), fresh
    settings = {k: vars(args)[k] for k in ("within", "text", "corpus", "lr", "seed")} | {"steps": steps}
    notes = {"trigrams": [round(x, 5) for x in trigrams], "made_with": settings}
    write_head(head, (args.into or folder / "heads") / head.kind, notes)


if __name__ == "__main__":
    main()
