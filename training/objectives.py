"""Which objective fits a draft model to its target: the same draft, taught as many tokens of the same windows by each of them.

    python -m decodescope.training.objectives --threads 1
    python -m decodescope.training.objectives fkl tvd++ koala --tokens 0.1 --seeds 1 --threads 1

The draft was trained on text alone and has seen nothing of the target yet. Every objective is used alone here, where a training
mixes several: cross-entropy of the text, a divergence from the target's distribution (`losses.py`), or forward KL together with
KOALA's discriminator (`adversary.py` of `engine/training`). They
use windows of the corpus, or what the target wrote behind their beginnings, at
temperature 1. Seeds differ in the order of the windows. Muon and AdamW take the length out of a gradient, so no objective
learns faster because its numbers are larger.

The target reads the windows once: its final features are remembered, and every step computes its distributions from them again.
The fit is measured on held-out text, of the corpus and of the target's own. Finished results are kept in the file `--out`, so
the same command goes on after a stop.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.training.adversary import Adversary

from .acceptance import own_text, tau
from .data import BUILD, held_out_windows, training_stream
from .heads import LENGTH, MODELS, ROWS, load_texts, windows_of
from .losses import DIVERGENCES, divergence
from .net import Net
from .train import optimizers, rate

WINDOWS, WARMUP = 8, 20  # windows a step; steps in which the rate rises
RATES = (0.003, 0.004)  # Muon's, AdamW's
SHOWN = 0.25  # of a step's places, the share that the discriminator sees
PROMPT, NEW = 64, 128  # tokens of a held-out beginning, and how many the target writes behind it
FIGURES = ("overlap, corpus", "overlap, target's text", "same first choice", "tau drawn", "tau greedy")


@dataclass(frozen=True)
class DraftObjective:
    """What a draft is taught.

    divergence: from the target's distribution, one of `losses.DIVERGENCES`; "": cross-entropy of the text; own: the text is the
    target's;  rival: KOALA's weight of the loss against the discriminator, 0 without one.
    """

    divergence: str = ""
    own: bool = False
    rival: float = 0.0


GOALS = {
    "text": DraftObjective(),
    **{name: DraftObjective(name) for name in DIVERGENCES},
    "koala": DraftObjective("fkl", rival=0.1),
    "target-text": DraftObjective(own=True),
    **{f"{name}-target-text": DraftObjective(name, own=True) for name in ("fkl", "tvd", "tvd++")},
}


@dataclass
class TargetText:
    """A text int64 [N, T], and the target's final features of it but for the last token, bfloat16 [N, T - 1, d]."""

    ids: Tensor
    features: Tensor


@torch.no_grad()
def read_target(target: Net, ids: np.ndarray | Tensor) -> TargetText:
    """What the target makes of rows of text."""
    rows, parts = torch.as_tensor(np.asarray(ids).astype(np.int64)), []
    for part in rows.split(ROWS):
        with torch.autocast("cpu", torch.bfloat16):
            parts.append(target.model.norm(target.states(part[:, :-1])[-1]).to(torch.bfloat16))
    return TargetText(rows, torch.cat(parts))


def loss_of(
    goal: DraftObjective, target: Net, draft: Net, ids: Tensor, features: Tensor, rival: Adversary | None
) -> Tensor:
    """The loss of windows int64 [B, T], with the target's features [B, T - 1, d] of them."""
    with torch.autocast("cpu", torch.bfloat16):
        logits = draft(ids[:, :-1]).float()  # [B, T - 1, V]
    if not goal.divergence:
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        wanted = target.unembed(features).float().log_softmax(-1)
    loss = divergence(goal.divergence, wanted, logits.log_softmax(-1)).mean()
    if rival is None:
        return loss
    some = torch.randperm(features.shape[0] * features.shape[1])[
        : round(SHOWN * features.shape[0] * features.shape[1])
    ]
    return loss + rival.adversarial_loss(wanted.flatten(0, 1)[some], logits.flatten(0, 1)[some])


def teach(
    goal: DraftObjective,
    target: Net,
    draft: Net,
    text: TargetText,
    tokens: int,
    seed: int = 0,
    rates: tuple[float, float] = RATES,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Teach the draft `tokens` tokens of the text, in an order drawn by the seed, at a rate that falls to nothing."""
    torch.manual_seed(seed)
    draw, began = np.random.default_rng(seed), time.time()
    rival = Adversary(draft.shape.vocabulary, goal.rival, seed=seed) if goal.rival else None
    steps, order = max(1, tokens // (WINDOWS * (text.ids.shape[1] - 1))), np.zeros(0, dtype=np.int64)
    made = [(o, o.param_groups[0]["lr"]) for o in optimizers(draft.requires_grad_(True), *rates)]
    for step in range(steps):
        if len(order) < WINDOWS:
            order = np.concatenate([order, draw.permutation(len(text.ids))])
        some, order = torch.from_numpy(order[:WINDOWS]), order[WINDOWS:]
        loss = loss_of(goal, target, draft, text.ids[some], text.features[some], rival)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(draft.parameters(), 1.0)
        if rival is not None:
            rival.learn()
        for optimizer, base in made:
            optimizer.param_groups[0]["lr"] = base * rate(step, WARMUP, 1 - step / steps)
            optimizer.step()
            optimizer.zero_grad()
        if (step + 1) % 50 == 0:
            say(f"step {step + 1} of {steps}, loss {float(loss.detach()):.3f}, {time.time() - began:.0f} s")
    draft.requires_grad_(False)


@torch.no_grad()
def measure_fit(target: Net, draft: Net, text: TargetText, heat: float) -> dict[str, float]:
    """Fit of a draft behind the first `PROMPT` tokens of the target's text at temperature `heat`.

    It has the overlap of the distributions, the share of places with the same first choice, and tokens that a pass of the
    target gives with five drafted ones (see acceptance.py).
    """
    came = []
    shared = []
    same = []
    for ids, features in zip(text.ids.split(ROWS), text.features.split(ROWS), strict=True):
        with torch.autocast("cpu", torch.bfloat16):
            logits = target.unembed(features[:, PROMPT - 1 :]), draft(ids[:, :-1])[:, PROMPT - 1 :]
        p, q = (x.float().softmax(-1) for x in logits)  # [B, places, V]
        shared.append(torch.minimum(p, q).sum(-1))
        same.append(p.argmax(-1) == q.argmax(-1))
        token = ids[:, PROMPT:, None]
        ratio = (q.gather(2, token) / p.gather(2, token)).clamp(max=1)[..., 0]
        came.append(ratio if heat else (q.argmax(-1) == token[..., 0]).float())
    overlap, first = torch.cat(shared).mean(), torch.cat(same).float().mean()
    return {"overlap": float(overlap), "same": float(first), "tau": tau(torch.cat(came))}


def unseen_texts(target: Net) -> list[TargetText]:
    """The texts for `measure`: held-out text of the corpus, and the target's own behind its beginnings, drawn and greedy."""
    held_out = held_out_windows(PROMPT + NEW, 64)
    written = (own_text(target, held_out[:, :PROMPT], NEW, heat) for heat in (1.0, 0.0))
    return [read_target(target, x) for x in (held_out, *written)]


def measure(target: Net, draft: Net, unseen: Sequence[TargetText]) -> dict[str, float]:
    """The `FIGURES`, on held-out text of the corpus, and what the target wrote behind its beginnings, drawn and greedily."""
    corpus, drawn, greedy = (
        measure_fit(target, draft, x, heat) for x, heat in zip(unseen, (1.0, 1.0, 0.0), strict=True)
    )
    values = (corpus["overlap"], drawn["overlap"], drawn["same"], drawn["tau"], greedy["tau"])
    return {name: round(x, 5) for name, x in zip(FIGURES, values, strict=True)}


def table(found: dict[str, dict[str, float]]) -> str:
    """Markdown: for every objective the mean over its seeds, and half the distance between the two furthest seeds."""
    rows = [f"| objective | {' | '.join(FIGURES)} |", "|---" * (len(FIGURES) + 1) + "|"]
    for goal in dict.fromkeys(key.split("/")[0] for key in found):
        runs, cells = [x for key, x in found.items() if key.split("/")[0] == goal], []
        for figure in FIGURES:
            values = [x[figure] for x in runs]
            spread = f" ± {(max(values) - min(values)) / 2:.3f}" if len(values) > 1 else ""
            cells.append(f"{sum(values) / len(values):.3f}{spread}")
        rows.append(f"| `{goal}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def text_of(target: Net, folder: Path, millions: float, own: bool) -> np.ndarray:
    """Windows of the corpus, or what the target wrote behind their beginnings, int [N, LENGTH]."""
    from decodescope.engine.session.load import fingerprint

    if own:
        return load_texts(target, fingerprint(folder), millions, 0)[1]
    return windows_of(training_stream(), int(millions * 1e6) // LENGTH, 1)


def main(words: Sequence[str] | None = None) -> None:
    """Teach every objective with every seed, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("goals", nargs="*", metavar="OBJECTIVE", help=f"all of them: {', '.join(GOALS)}")
    parser.add_argument("--target", default="lab", help="a folder of assets/models")
    parser.add_argument("--draft", default="lab-draft-plain", help="alike: what every objective begins with")
    parser.add_argument("--tokens", type=float, default=0.5, help="that each teaches, in millions")
    parser.add_argument(
        "--text",
        type=float,
        default=0.25,
        help="of the corpus and of the target's own, in millions of tokens",
    )
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--out", type=Path, default=BUILD / "objectives.json", help="file of what was measured"
    )
    args = parser.parse_args(words)
    torch.set_num_threads(args.threads)
    for name in args.goals:
        if name not in GOALS:
            parser.error(f"The objective {name!r} is not known: choose of {', '.join(GOALS)}.")

    target = Net.from_folder(MODELS / args.target).requires_grad_(False)
    unseen = unseen_texts(target)
    read: dict[bool, TargetText] = {}
    found = json.loads(args.out.read_text()) if args.out.exists() else {}
    for seed in range(args.seeds):
        for name in ["untaught", *(args.goals or GOALS)]:
            key = f"{name}/{seed if name in GOALS else 0}"
            if key in found:
                continue
            draft, began = Net.from_folder(MODELS / args.draft), time.time()
            if name in GOALS:
                goal = GOALS[name]
                if goal.own not in read:
                    read[goal.own] = read_target(
                        target, text_of(target, MODELS / args.target, args.text, goal.own)
                    )
                teach(
                    goal,
                    target,
                    draft,
                    read[goal.own],
                    int(args.tokens * 1e6),
                    seed,
                    say=lambda x: print(x, flush=True),
                )
            found[key] = measure(target, draft, unseen)
            args.out.write_text(json.dumps(found, indent=2) + "\n")
            print(f"{key}: {found[key]}, {time.time() - began:.0f} s", flush=True)
    print(table(found))


if __name__ == "__main__":
    main()
