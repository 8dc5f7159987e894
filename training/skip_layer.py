"""SkipLayer: routers in front of every sub-layer of a frozen model, and an adapter of it that does with fewer.

    python -m decodescope.training.skip_layer --within 25 --threads 1
    python -m decodescope.training.skip_layer --within 10 --resume

The routers go into `assets/models/<model>/heads/skip_layer/`, the adapter into `adapters/skip_layer/`; the model itself stays
as it is. Zeng et al. 2023, arXiv:2311.15436, train router and model from the beginning. Here the adapter learns what the frozen
model says with all layers (its distribution at every place), under gates. A gate g is 1 where the router's score and logistic
noise are above 0, else 0, and lets the gradient of the score's sigmoid through.

The budget (mean(g) - rho)^2 holds the share of sub-layers that run at rho, which falls from 1 to 0.6 over the first half; the
noise falls to nothing over the second. Rows that are left out write keys and values of the state that passes by (the depth
rule's skipped KV "propagate"). In the end all biases are moved by one number, so that without noise the share on training text
is 0.6.

Adam as in cacheparts.py; the rates fall by the share of the minutes that have passed. Results so far are kept in build/training
on the way, and `--resume` goes on from there: its minutes are further ones of the same course, at the last rho.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from decodescope.engine.model.heads.files import write_head
from decodescope.engine.model.heads.skip_layer import SkipRouters
from decodescope.engine.training.optimizers import rate

from .adapter_training import ALPHA, AdapterTraining
from .data import BUILD, held_out_windows
from .heads import MODELS, load_weights
from .lowrank import enable_deltas
from .net import Net, apply_rotary

RHO = 0.6  # share of sub-layers that run in the end
BUDGET = 100.0  # weight of the budget's loss, relative to nats
RATES = {"adapter": 3e-3, "routers": 2e-2}
KEPT = 20  # steps between two states that are kept


def forward_gated(
    net: Net, ids: Tensor, gate: Callable[[Tensor, int], Tensor], absent: bool = False
) -> tuple[Tensor, Tensor]:
    """Logits float32 [B, T, V] of ids int64 [B, T], and the gates [2 L, B, T].

    gate: states [B, T, D] in front of a sub-layer, and its number -> the factor of its output, [B, T]. absent: rows with a gate
    of 0 leave no keys and values.
    """
    x = net.model.embed_tokens(ids)
    s = net.shape
    gates = list[Tensor]()
    turn = (net.cosine[: ids.shape[1]], net.sine[: ids.shape[1]])
    before = torch.ones(ids.shape[1], ids.shape[1]).bool().tril()
    for i, layer in enumerate(net.layers):
        g = gate(x, 2 * i)
        y = layer.input_layernorm(x)
        a = layer.self_attn
        q, k, v = (
            p(y).unflatten(2, (n, s.head_width)).transpose(1, 2)
            for p, n in ((a.q_proj, s.heads), (a.k_proj, s.kv_heads), (a.v_proj, s.kv_heads))
        )
        seen = before & ((g[:, None, None] > 0) | torch.eye(ids.shape[1]).bool()) if absent else before
        y = F.scaled_dot_product_attention(
            apply_rotary(q, turn), apply_rotary(k, turn), v, attn_mask=seen, enable_gqa=True
        )
        x = x + g[..., None] * a.o_proj(y.transpose(1, 2).flatten(2))
        h = gate(x, 2 * i + 1)
        x = x + h[..., None] * layer.mlp(layer.post_attention_layernorm(x))
        gates += [g, h]
    return net.head(x).float(), torch.stack(gates)


def straight_through(score: Tensor, noise: float, draw: torch.Generator) -> Tensor:
    """1 where the score and logistic noise (the difference of two Gumbels) are above 0, else 0; the gradient is a sigmoid's."""
    u = torch.rand(score.shape, generator=draw).clamp(1e-6, 1 - 1e-6)
    score = score + noise * (u.log() - (-u).log1p())
    soft = score.sigmoid()
    return (score > 0).to(soft.dtype) + soft - soft.detach()


class SkipLayerAdapter(AdapterTraining):
    """Adapter and routers; the figures of a step are nats from the frozen model's distribution, and the mean gate."""

    only = ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj")
    corpus_windows = 4

    def __init__(self, net: Net, seed: int) -> None:
        super().__init__(net, seed, 0)
        self.routers = SkipRouters(d=net.shape.width, n_layers=net.shape.layers)

    def gather(self) -> str:
        """The training text is all there is to learn from."""
        return "the training text is read"

    def gate(self, x: Tensor, place: int, noise: float = 0.0) -> Tensor:
        """The gates [B, T] of states in front of a sub-layer."""
        return straight_through(self.routers(x.float(), place), noise, self.draw)

    def batch(self, rho: float, noise: float) -> Tensor:
        """The loss of a batch that is to run a share `rho`."""
        texts = self.window(self.corpus_windows)
        logits, gates = forward_gated(self.net, texts, lambda x, place: self.gate(x, place, noise))
        due = self.base_logits(texts).log_softmax(2)
        nats = F.kl_div(logits.log_softmax(2), due, log_target=True, reduction="none").sum(2).mean()
        self.count(texts.numel(), nats=nats, open=gates.mean())
        return nats + BUDGET * (gates.mean() - rho) ** 2

    @torch.no_grad()
    def calibrate_biases(self, windows: int = 32) -> float:
        """Move all biases by the number that lets a share RHO of the sub-layers of training text run; return that number."""
        enable_deltas(self.head, True)
        texts = self.window(windows)
        low = -2.0
        high = 2.0
        first = self.routers.bias.clone()
        for _ in range(9):
            middle = (low + high) / 2
            self.routers.bias.copy_((first + middle).bfloat16())
            shares = [float(forward_gated(self.net, x, self.gate)[1].mean()) for x in texts.split(16)]
            low, high = (middle, high) if sum(shares) / len(shares) < RHO else (low, middle)
        return (low + high) / 2

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Figures on unseen text: nats a token, and how often the likeliest token is that of the frozen model with all layers.

        They are taken with routers, under both kinds of skipped KV, with gates drawn at the same share, and with all gates
        open.
        """
        windows = held_out_windows(self.length + 1, 64).split(16)
        best = [self.base_logits(ids[:, :-1]).argmax(2) for ids in windows]
        by_window = (forward_gated(self.net, ids[:, :-1], self.gate)[1].mean((1, 2)) for ids in windows)
        opened = cast(Tensor, sum(by_window)) / len(windows)
        share = float(opened.mean())
        drawn = torch.Generator().manual_seed(self.seed)
        gates: dict[str, tuple[bool, Callable[[Tensor, int], Tensor], bool]] = {
            "all layers, no adapter": (False, lambda x, place: x.new_ones(x.shape[:2]), False),
            "all layers": (True, lambda x, place: x.new_ones(x.shape[:2]), False),
            "routed": (True, self.gate, False),
            "routed, absent": (True, self.gate, True),
            "routed, no adapter": (False, self.gate, False),
            "drawn": (
                True,
                lambda x, place: (torch.rand(x.shape[:2], generator=drawn) < share).to(x.dtype),
                False,
            ),
        }
        figures: dict[str, Any] = {
            "windows": 64,
            "open": round(share, 4),
            "by_block": [round(x, 3) for x in opened.tolist()],
        }
        for name, (on, gate, absent) in gates.items():
            enable_deltas(self.head, on)
            nats = same = 0.0
            for ids, due in zip(windows, best, strict=True):
                logits = forward_gated(self.net, ids[:, :-1], gate, absent)[0]
                nats += float(F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()))
                same += float((logits.argmax(2) == due).float().mean())
            figures[name] = {"nats": round(nats / len(windows), 4), "same": round(same / len(windows), 4)}
        return figures | {"nats": self.nats()}

    def state(self) -> dict[str, Tensor]:
        """All that has been learnt."""
        return self.tensors() | {f"routers.{name}": x.detach() for name, x in self.routers.named_parameters()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """From a state that was kept."""
        self.load(tensors)
        self.routers.load_state_dict({name: tensors[f"routers.{name}"] for name in ("weight", "bias")})


def train(
    part: SkipLayerAdapter,
    seconds: float,
    steps: int,
    begun: float = 0.0,
    say: Callable[[str], None] = print,
    keep: Any = None,
) -> int:
    """Run Adam until so many seconds have passed or steps are done; return the number of steps.

    begun: the share of the course that is over. Then the numbers are those of bfloat16.
    """
    learn = {"adapter": list(part.head.parameters()), "routers": list(part.routers.parameters())}
    optimizer = torch.optim.Adam(
        [{"params": x, "name": name, "lr": RATES[name]} for name, x in learn.items()]
    )
    began, step = time.monotonic(), 0
    while step < steps and (passed := time.monotonic() - began) < seconds:
        share = max(passed / seconds, step / steps)
        course = begun + (1 - begun) * share
        for group in optimizer.param_groups:
            group["lr"] = RATES[group["name"]] * rate(int(1000 * share), 1000)
        with torch.autocast("cpu", torch.bfloat16):
            loss = part.batch(1 - (1 - RHO) * min(1.0, 2 * course), min(1.0, 2 - 2 * course))
        loss.backward()
        for weights in learn.values():
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % KEPT == 0:
            say(f"step {step}, {part.loss_summary()}, {time.monotonic() - began:.0f} s")
            if keep is not None:
                torch.save(
                    {**part.state(), "course": torch.tensor(course), "read": torch.tensor(part.read)}, keep
                )
    with torch.no_grad():
        for weight in (*learn["adapter"], *learn["routers"]):
            weight.copy_(weight.bfloat16())
    return step


def main(words: Sequence[str] | None = None) -> None:  # noqa: PLR0915
    """Train, calibrate, measure, and keep both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--within", type=float, required=True, metavar="MINUTES", help="of training; measuring comes after"
    )
    parser.add_argument("--model", default="lab", help="a folder of assets/models")
    parser.add_argument("--steps", type=int, default=2600, help="at most; 2600 read 2 million tokens")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: as torch finds it")
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FOLDER",
        help="of a model: go on with its routers and adapter, at the last rho",
    )
    parser.add_argument("--resume", action="store_true", help="go on from the state that was kept last")
    parser.add_argument("--into", type=Path, help="folder in the place of the model's")
    args = parser.parse_args(words)
    if args.threads:
        torch.set_num_threads(args.threads)
    folder = MODELS / args.model
    kept = BUILD / f"skip_layer-{args.model}.pt"
    begun = 0.0
    part = SkipLayerAdapter(Net.from_folder(folder).requires_grad_(False), args.seed)
    made_with: dict[str, Any] = {}
    if args.source:
        part.load(load_file(args.source / "adapters" / "skip_layer" / "model.safetensors"))
        made_with, begun = {"from": load_weights(part.routers, args.source / "heads")}, 0.5
    if args.resume:
        state = torch.load(kept, weights_only=True)
        begun, part.read = float(state.pop("course")), int(state.pop("read"))
        part.restore(state)
    print(part.learn(), flush=True)
    began = time.monotonic()
    steps = train(part, args.within * 60, args.steps, begun, lambda line: print(line, flush=True), kept)
    print(f"{steps} steps, {time.monotonic() - began:.1f} s", flush=True)
    moved = part.calibrate_biases()
    figures = part.measure()
    print(figures, flush=True)

    from decodescope.engine.model.checkpoint.adapter import write as write_adapter
    from decodescope.engine.session.load import fingerprint

    made_with |= {"within": args.within, "steps": steps, "tokens": part.read, "seed": args.seed}
    made_with |= {
        "rho": RHO,
        "moved": round(moved, 3),
        "resumed": args.resume,
        "threads": torch.get_num_threads(),
    }
    begins = f" --from {args.source}" if args.source else ""
    made_with |= {
        "command": f"python -m decodescope.training.skip_layer --within {args.within:g} --threads {args.threads}{begins}"
    }
    notes = {
        "measured": figures,
        "made_with": made_with | {"machine": platform.processor() or platform.machine()},
    }
    into, base = args.into or folder, fingerprint(folder)
    adapter, more = into / "adapters" / "skip_layer", {"rows": {}, "notes": notes}
    write_adapter(adapter, part.tensors(), rank=part.rank, alpha=ALPHA, base=base, **more)
    part.routers.made_for = fingerprint(folder, "skip_layer") if args.into is None else ""
    write_head(part.routers, into / "heads" / "skip_layer", notes)


if __name__ == "__main__":
    main()
