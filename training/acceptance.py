"""How well a draft fits its target: what speculative decoding gets from it, measured exactly and without decoding.

    python -m decodescope.training.acceptance assets/models/lab assets/models/lab-draft [MORE DRAFTS ...]

On held-out text it measures two figures. The overlap is the mean of the sum over tokens of min(p, q), the chance that one
drafted token is accepted at temperature 1. The other is the share of positions at which both rank the same token first.

On text that the target itself wrote it measures tau, the tokens a target pass gives with five drafted ones. Both distributions
are known at every position of that text, so no draft has to be drawn. Greedily, a drafted token is accepted where the draft's
first choice is the text's token. At temperature 1 the text's token, drawn from p, came from the draft with probability min(1, q
/ p) (Leviathan et al., 2211.17192: accepted tokens follow min(p, q), and the text as a whole follows p).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from . import data
from .losses import teacher_of
from .net import Net

DRAFTED = 5


@torch.no_grad()
def overlap(target: Net, draft: Net, rows: Tensor) -> tuple[float, float]:
    """Share of positions with the same first choice, and mean overlap of the distributions, on windows int64 [N, T]."""
    same = 0
    shared = 0.0
    count = 0
    for part in rows.split(4):
        p, q = (teacher_of(n, part).exp() for n in (target, draft))  # [B, T - 1, V]
        same += int((p.argmax(2) == q.argmax(2)).sum())
        shared += float(torch.minimum(p, q).sum())
        count += part[:, 1:].numel()
    return same / count, shared / count


@torch.no_grad()
def acceptance_chances(target: Net, draft: Net, rows: Tensor, temperature: float) -> Tensor:
    """float [N, T - 1]: the chance that each token of `rows` after the first came from the draft, given the token itself.

    `rows` are the target's own text at `temperature`, 0 or 1.
    """
    out = []
    for part in rows.split(4):
        p, q = (teacher_of(n, part) for n in (target, draft))
        told = part[:, 1:, None]
        out.append(
            (q.argmax(2) == told[:, :, 0]).float()
            if temperature == 0
            else (q.gather(2, told) - p.gather(2, told)).exp().clamp(max=1)[:, :, 0]
        )
    return torch.cat(out)


def tau(chance: Tensor, seed: int = 0, drafted: int = DRAFTED) -> float:
    """Tokens a target pass, for float [N, T] chances: accepted ones until the first refusal, and one of the target's own."""
    taken = torch.rand(chance.shape, generator=torch.Generator().manual_seed(seed)) < chance
    tokens = passes = 0
    for row in taken.tolist():
        at = 0
        while at + drafted < len(row):
            run = next((i for i in range(drafted) if not row[at + i]), drafted)
            at = at + run + 1
            tokens = tokens + run + 1
            passes = passes + 1
    return tokens / passes


def own_text(target: Net, rows: Tensor, new: int, temperature: float, seed: int = 0) -> Tensor:
    """int64 [N, T + new]: rows int64 [N, T] and what the target writes after them."""
    with torch.autocast(rows.device.type, torch.bfloat16):
        return target.write(rows, new, temperature, torch.Generator(rows.device).manual_seed(seed))


def measure(target: Net, draft: Net, rows: Tensor, new: int = 128, prompt: int = 96) -> dict[str, float]:
    """Overlap and same first choice on windows int64 [N, T], and tau greedily and at temperature 1 after their beginnings."""
    same, shared = overlap(target, draft, rows)
    found = {"overlap": shared, "same": same}
    for name, temperature in (("tau greedy", 0.0), ("tau T=1", 1.0)):
        written = own_text(target, rows[:, :prompt], new, temperature)
        found[name] = tau(acceptance_chances(target, draft, written, temperature)[:, prompt - 1 :])
    return found


def main() -> None:
    """Print a table by kind of text for every draft."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("target", type=Path)
    parser.add_argument("drafts", type=Path, nargs="+")
    parser.add_argument("--windows", type=int, default=12, help="of each kind")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    from .train import MIXTURE

    target, valid = Net.from_folder(args.target), data.load("valid")
    print("| draft | text | overlap | same first choice | tau greedy | tau T=1 |\n|---|---|---|---|---|---|")
    for folder in args.drafts:
        draft = Net.from_folder(folder)
        for group, kinds in data.groups(valid, MIXTURE).items():
            rows = data.windows({k: valid[k] for k in kinds}, 257, args.windows)
            m = measure(target, draft, rows)
            print(
                f"| {folder.name} | {group} | {m['overlap']:.3f} | {m['same']:.1%} | {m['tau greedy']:.2f} | "
                f"{m['tau T=1']:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
