"""Train `lab-mdm`, the model without a causal mask that fills in <|mask|>, from nothing or further.

    python -m decodescope.training.infill --within 55
    python -m decodescope.training.infill --from assets/models/lab-mdm --within 20

The objective is LLaDA's (2502.09992, equation 3 and, for answers, 5): of every window a share t of the answer's tokens,
drawn evenly from 0 to 1, is masked, each by itself with that chance; the loss is the cross entropy at the masks, divided by
the chance and by the answer's length. The prompt is never masked. The shares of a batch are spread evenly (one random
offset), which changes no mean and calms the gradient. Rates, checkpoints and the fall of the rate are those of train.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from decodescope.engine.bench.questions.parallel_tasks import (
    LISTS,
    SETTLED,
    ParallelQuestion,
    is_right_text,
    make_questions,
)

from . import data, train
from .infill_data import InfillSource, InfillWindows
from .net import MASK, Net, NetShape

NAME = "lab-mdm"
SHAPE = NetShape(layers=6, width=96, heads=4, kv_heads=4, head_width=32, inner=256, context=256, causal=False)
RATES = (0.006, 0.008)  # Muon's, AdamW's
EPSILON = 1e-3  # the least chance of a mask
STAGES = {  # tokens of a window -> share of the steps
    "lists": {12: 0.20, 16: 0.45, 20: 0.35},
    "all": {12: 0.12, 16: 0.30, 20: 0.28, 28: 0.07, 40: 0.09, 80: 0.14},
    "rest": {16: 0.12, 20: 0.13, 28: 0.35, 56: 0.15, 80: 0.25},
}
# window up to so many tokens -> shares of its rows
SHARES = {
    24: {"lists": 1.0},
    28: {"lists": 0.3, "latin_square": 0.7},
    40: {"lists": 0.1, "sudoku": 0.9},
    56: {"cloze": 1.0},
    80: {"programs": 0.5, "cloze": 0.15, "stories": 0.35},
}
PLAN = train.TrainingPlan(1024, {}, {}, warmup=40, check=0.5)
CANVAS = 8  # tokens of an answer when lists are asked; 17 for a grid


def draw_mask(rows: InfillWindows, chance: torch.Generator) -> tuple[Tensor, Tensor]:
    """Which tokens are masked, bool [B, T], and each one's weight in the loss, float [B, T], 0 where nothing is masked."""
    B = len(rows.ids)
    t = (torch.rand(1, generator=chance) + torch.arange(B) / B) % 1
    p = ((1 - EPSILON) * t + EPSILON)[:, None]  # [B, 1]
    hidden = rows.answer & (torch.rand(rows.ids.shape, generator=chance) < p)
    return hidden, hidden / (p * rows.answer.sum(1, keepdim=True))


def loss_of(net: Net, rows: InfillWindows, hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The loss; float [2]: it, and the share of the masks that the likeliest token fills in right."""
    # attention written out: on a processor the fused one takes five times as long backwards through windows this short
    with torch.autocast(rows.ids.device.type, torch.bfloat16), sdpa_kernel(SDPBackend.MATH):
        states = net.states(rows.ids.masked_fill(hidden, MASK))[-1]
        logits = net.head(states[hidden])  # [masks, V]
    wanted = rows.ids[hidden]
    loss = (F.cross_entropy(logits.float(), wanted, reduction="none") * weight[hidden]).sum() / len(rows.ids)
    told = logits.gather(1, wanted[:, None])[:, 0]
    return loss, torch.stack((loss.detach(), (told >= logits.amax(1)).float().mean()))


@torch.no_grad()
def fill_canvas(net: Net, prompts: Tensor, canvas: int, passes: int) -> Tensor:
    """int64 [B, canvas]: the answers to prompts int64 [B, P], the surest tokens first, as many in every pass."""
    ids = torch.cat((prompts, prompts.new_full((len(prompts), canvas), MASK)), 1)
    for step in range(passes):
        with torch.autocast(ids.device.type, torch.bfloat16):
            logits = net(ids).float()
        logits[..., MASK] = -torch.inf
        sure, token = logits.softmax(2).max(2)
        sure = sure.masked_fill(ids != MASK, -1.0)
        count = canvas // passes + (step < canvas % passes)
        at = sure.topk(count, 1).indices
        ids = ids.scatter(1, at, token.gather(1, at))
    return ids[:, prompts.shape[1] :]


def answer_questions(
    net: Net, source: InfillSource, asked: list[ParallelQuestion], canvas: int, passes: int
) -> Iterator[tuple[ParallelQuestion, str]]:
    """Every question with the model's answer."""
    coded = sorted(((source.tokenizer.encode(q.prompt).ids, q) for q in asked), key=lambda pair: len(pair[0]))
    for _, some in groupby(coded, key=lambda pair: len(pair[0])):
        prompts, those = zip(*some, strict=True)
        for q, ids in zip(
            those, fill_canvas(net, torch.tensor(prompts), canvas, passes).tolist(), strict=True
        ):
            end = ids.index(data.END) if data.END in ids else canvas
            yield q, source.tokenizer.decode(ids[:end], skip_special_tokens=False)


def marks_of(
    net: Net, source: InfillSource, asked: list[ParallelQuestion], canvas: int, passes: int
) -> dict[str, list[bool]]:
    """Task -> which of its questions were answered right."""
    marks: dict[str, list[bool]] = {}
    for q, text in answer_questions(net, source, asked, canvas, passes):
        marks.setdefault(q.task, []).append(is_right_text(q, text))
    return marks


def exact_shares(net: Net, source: InfillSource, count: int, seed: int = 10**6) -> dict[str, float]:
    """Task -> share of right answers at one token a pass; "settled" is that of all lists with one right answer."""
    shares = {}
    for tasks, canvas in ((LISTS, CANVAS), (("latin_square", "sudoku"), 17)):
        marks = marks_of(net, source, make_questions(tasks, count, seed), canvas, canvas)
        shares |= {task: sum(marks[task]) / count for task in tasks}
    return {"settled": sum(shares[t] for t in SETTLED) / len(SETTLED)} | shares


class InfillTrainer(train.Trainer[Net]):
    """A training with windows made by rule from seed and step: the place in the text is the step."""

    FIGURES = ("loss", "right")

    def __init__(
        self,
        net: Net,
        source: InfillSource,
        plan: train.TrainingPlan,
        rates: tuple[float, float],
        seed: int = 0,
        stage: str = "all",
    ) -> None:
        super().__init__(net, plan, rates, seed)
        self.texts, self.stage = source, stage

    def batch(self, step: int, cooling: bool) -> tuple[InfillWindows, None]:
        """The windows of a step."""
        r = Random(f"{self.seed}/{step}")
        windows = STAGES[self.stage]
        length = r.choices(list(windows), list(windows.values()))[0]
        shares = next(s for most, s in SHARES.items() if length <= most)
        return self.texts.rows(r, length, max(1, self.plan.batch // length), shares), None

    def loss(self, rows: InfillWindows) -> tuple[Tensor, Tensor, int]:
        """The loss of windows, its figures, and the tokens that were read."""
        return *loss_of(self.net, rows, *draw_mask(rows, self.chance)), rows.ids.numel()

    def measure(self, check: dict) -> dict[str, float]:
        """The share of right answers by task."""
        return exact_shares(self.net, self.texts, check["questions"])

    def describe(self) -> dict:
        """Objective, and the shares of the kinds by window."""
        return {"objective": {"masked": True}, "windows": STAGES[self.stage], "mixture": SHARES}


def main() -> None:
    """Train, write the folder, and note how it was made."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--from", dest="source", metavar="FOLDER", help="begin with these weights, not from nothing"
    )
    parser.add_argument("--tokens", type=float, help="millions at which the constant rate ends")
    parser.add_argument("--minutes", type=float, help="stop after so many; the same command goes on")
    parser.add_argument("--within", type=float, help="minutes for all of it, the fall of the rate included")
    parser.add_argument(
        "--stage", choices=STAGES, default="all", help="lists alone, everything, what was not learnt"
    )
    parser.add_argument(
        "--questions", type=int, default=40, help="of a task, each time the answers are looked at"
    )
    parser.add_argument(
        "--text", type=Path, default=data.TOKENS, help="token ids of the corpus, for programs and stories"
    )
    parser.add_argument(
        "--out", metavar="FOLDER", help=f"model folder to write; assets/models/{NAME} without it"
    )
    parser.add_argument("--as", dest="as_name", default=NAME, help="name of the checkpoints")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="forget the checkpoints")
    parser.add_argument("--trial", action="store_true", help="read and write no checkpoint and no folder")
    args = parser.parse_args()
    args.name, args.cooldown = NAME, None
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    source = InfillSource(data.load("train", args.text))
    net = Net.from_folder(args.source) if args.source else Net(SHAPE)
    training = InfillTrainer(net, source, PLAN, RATES, args.seed, args.stage)
    file = train.open_checkpoint(training, args)
    if (
        train.run(training, args, None if args.trial else file, {"questions": args.questions})
        and not args.trial
    ):
        train.write(training, args)


if __name__ == "__main__":
    main()
