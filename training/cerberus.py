"""Fit Cerberus' gate beside Hydra's heads, and write it into the model's folder, `assets/models/<model>/heads/cerberus/`.

    python -m decodescope.training.cerberus

It uses the model's own text. At each place t the gate sees entropy and largest probability of the model's distribution of token
t + 1, which will be the root. It learns whether the likeliest guess of Hydra's first head is the model's likeliest token t + 2.
A logistic regression of three numbers, by Newton's method; the model and its heads stay as they are.

On held-out text of the model's own it reports the area under the curve, and, by threshold, how many steps would draft and how
often their first token is right. It takes minutes on two CPU cores, most of them for the model's text.

Where this package is not installed, put a folder on PYTHONPATH in which `decodescope` is a link to the checkout.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.drafting.cerberus import CerberusGate
from decodescope.engine.model.heads.files import write_head
from decodescope.engine.training.guesses import head_guesses
from decodescope.engine.training.target import read_states

from .correctness import auc
from .heads import MODELS, ROWS, UNSEEN, load_texts, mix_text
from .net import Net

WINDOWS = 256  # of the text, evenly spread: three numbers need no more
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@torch.no_grad()
def examples(net: Net, head: Head, windows: Tensor) -> tuple[Tensor, Tensor]:
    """float64 [N, 2], what the gate sees at all places of int64 [M, T]; bool [N], whether the head's first guess is right."""
    seen, right = [], []
    for part in windows.split(ROWS):
        r = read_states(net, part)
        s, x = head_guesses(head, r)[0]
        seen.append(
            CerberusGate.distribution_features(net.unembed(s.align(r.feature, 0))).double().flatten(0, 1)
        )
        right.append(
            (net.unembed(x).argmax(-1) == net.unembed(s.align_target(r.feature)).argmax(-1)).flatten()
        )
    return torch.cat(seen), torch.cat(right)


def fit_gate(gate: CerberusGate, seen: Tensor, right: Tensor, steps: int = 25, ridge: float = 1e-3) -> None:
    """Newton's method on the mean cross-entropy of `right` (bool [N]), for float64 [N, 2]; `ridge` weighs the squares of w."""
    x, y = torch.cat([seen, seen.new_ones(len(seen), 1)], 1), right.double()
    w, pull = x.new_zeros(3), torch.diag(x.new_tensor([ridge, ridge, 0.0]))
    for _ in range(steps):
        p = (x @ w).sigmoid()
        curve = (x * (p * (1 - p))[:, None]).T @ x / len(x) + pull
        w = w - torch.linalg.solve(
            curve + 1e-9 * torch.eye(3, dtype=x.dtype), x.T @ (p - y) / len(x) + pull @ w
        )
    with torch.no_grad():
        gate.weigh.weight.copy_(w[None, :2])
        gate.weigh.bias.copy_(w[2:])


def evaluate_gate(gate: CerberusGate, seen: Tensor, right: Tensor) -> dict[str, object]:
    """The quality of the gate on held-out places.

    It has the share of pairs of a right and a wrong place in which the gate is surer of the right one. By threshold it has the
    share of steps that draft, and among these the share whose first token is right.
    """
    chance = gate.weigh(seen.to(gate.dtype))[:, 0].sigmoid()
    rows = []
    for least in THRESHOLDS:
        drafts = chance >= least
        if not drafts.any():
            break
        rows.append(
            [least, round(float(drafts.double().mean()), 4), round(float(right[drafts].double().mean()), 4)]
        )
    return {
        "auc": round(auc(chance[::4], right[::4]), 4),
        "right": round(float(right.double().mean()), 4),
        "thresholds": rows,
    }


def main() -> None:
    """Fit, measure, and keep the gate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="lab", help="a folder of assets/models, with heads/hydra in it")
    parser.add_argument(
        "--text", type=float, default=0.25, help="of the model's own text, in millions of tokens"
    )
    parser.add_argument("--unseen", type=int, default=UNSEEN, help="windows of held-out text to measure on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--into", type=Path, help="folder to write; by default the model's heads/cerberus")
    args = parser.parse_args()

    from decodescope.engine.model.heads.files import load_head as read_head
    from decodescope.engine.session.load import describe, fingerprint

    folder = MODELS / args.model
    made_for, net = fingerprint(folder), Net.from_folder(folder).requires_grad_(False)
    head = read_head(folder / "heads" / "hydra", describe(folder, folder.name), "hydra")
    corpus, own, held_out = load_texts(net, made_for, args.text, args.seed, args.unseen)
    gate = CerberusGate(d=net.shape.width)
    text = mix_text(own, corpus, 0.25)
    fit_gate(gate, *examples(net, head, text[:: max(1, len(text) // WINDOWS)]))
    gate.requires_grad_(False)
    figures = evaluate_gate(gate, *examples(net, head, held_out))
    for name, x in figures.items():
        print(f"{name}: {x}", flush=True)
    gate.made_for = made_for
    write_head(
        gate,
        args.into or folder / "heads" / "cerberus",
        {**figures, "made_with": {"text": args.text, "seed": args.seed}},
    )


if __name__ == "__main__":
    main()
