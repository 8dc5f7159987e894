"""Train the correctness heads of a frozen small model, and write them into its folder, `heads/correctness/`.

    python -m decodescope.training.correctness
    python -m decodescope.training.correctness --model lab-draft --large lab --prompts 120

Both models answer prompts greedily: training tasks of all kinds (`tasks/`, never LabBench), and the beginnings of stories and
drills. An answer of the small model is right where it is the large one's, token by token, up to `MOST` tokens. For a cascade
that keeps an answer gives up what the large model would have said. By the tasks' own scorers hardly an answer of the shipped
small model is right, so there would be nothing to learn.

One net learns from the state of the prompt's last token whether the answer will be wrong. The other learns whether it is right,
from the mean state that wrote the answer, and the mean and lowest log-probability of its tokens. Both learn by cross-entropy.
As in CascadeBERT, the second also scores each right answer of a batch above each wrong one by a margin of 0.5 (Li et al. 2021,
Findings of EMNLP; lancopku/CascadeBERT: weight 1).

The figures at the end are of unseen prompts. They are how often a right answer has a higher score than a wrong one (AUC), the
same for the plain normalised likelihood, and what is right where the heads say so much.

Some minutes on one CPU core.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.methods.samplers.greedy import Greedy
from decodescope.engine.model.heads.correctness import CorrectnessHead
from decodescope.engine.model.heads.files import write_head
from decodescope.engine.session.batch.decode import BatchSettings, decode_batch
from decodescope.engine.session.load import Model, load
from decodescope.engine.session.session import stop_condition

from .drills import counting, listing, recall, records
from .heads import MODELS
from .net import Net
from .stories import tell
from .tasks import KINDS

MOST = 3  # tokens of an answer: some word
LENGTH = 384  # tokens of a prompt, at most
PLAIN = {
    "story": lambda r: tell(r).text,
    "records": records,
    "counting": counting,
    "listing": listing,
    "recall": recall,
}
MARGIN, WEIGHT = 0.5, 1.0  # of the ranking
INNER = 16
BATCH = 64
BINS = 10  # of the table of calibration


@dataclass
class CorrectnessExamples:
    """Features of n answers.

    prompt [n, d], the state of the prompt's last token; mean [n, d], of the states that wrote the answer; logp [n, 2], mean and
    lowest log-probability of its tokens; right bool [n]; kinds: the kind of each question.
    """

    prompt: Tensor
    mean: Tensor
    logp: Tensor
    right: Tensor
    kinds: list[str]

    def rows(self, which: Tensor) -> CorrectnessExamples:
        """Some of them, by number."""
        kinds = [self.kinds[i] for i in which.tolist()]
        return CorrectnessExamples(
            self.prompt[which], self.mean[which], self.logp[which], self.right[which], kinds
        )


def prompts(model: Model, split: str, each: int, seed: int) -> list[tuple[str, list[int]]]:
    """(kind, ids) of prompts to learn from.

    They are `each` tasks of every kind, of `split`, as a user's turn, and twice as many beginnings of stories and drills, cut
    at any token.
    """
    assert model.tokenizer is not None
    made = []
    for kind, make in KINDS.items():
        tasks = [make(Random(f"{seed}/{kind}/{i}"), split) for i in range(each)]
        made += [(kind, model.tokenizer.chat([{"role": "user", "content": task.turns[0]}])) for task in tasks]
    for kind, write_one in PLAIN.items():
        for i in range(2 * each):  # the small model is right here more often
            r = Random(f"{seed}/{kind}/{i}")
            ids = model.tokenizer.encode(write_one(r))
            made.append((kind, ids[: r.randint(8, max(8, min(len(ids), LENGTH // 2)))]))
    return [(kind, ids) for kind, ids in made if len(ids) <= LENGTH]


def examples(small: Model, large: Model, net: Net, split: str, each: int, seed: int) -> CorrectnessExamples:
    """The small model's answers to prompts, its features of them, and whether the large one answers alike.

    `net` is the small model.
    """
    asked = prompts(small, split, each, seed)
    ids = [x for _, x in asked]
    found = [
        decode_batch(x, ids, BatchSettings(Greedy(), stop_condition(x, None, []), max_new=MOST)).texts
        for x in (small, large)
    ]
    rows = [
        (*answer_features(net, prompt, a.tokens), a.tokens == b.tokens, kind)
        for (kind, prompt), a, b in zip(asked, *found, strict=True)
    ]
    prompt, mean, logp, right, kinds = zip(*rows, strict=True)
    return CorrectnessExamples(
        torch.stack(prompt), torch.stack(mean), torch.stack(logp), torch.tensor(right), list(kinds)
    )


@torch.no_grad()
def answer_features(net: Net, prompt: Sequence[int], answer: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """float [d], [d] and [2]: the features of an answer.

    They are the state of the prompt's last token, the mean of those that wrote the answer, and the mean and lowest
    log-probability of its tokens, in nats.
    """
    ids = torch.tensor([[*prompt, *answer]])
    states = net.model.norm(net.states(ids)[-1])[0, len(prompt) - 1 : -1].float()  # [A, d]
    laws = net(ids)[0, len(prompt) - 1 : -1].float().log_softmax(-1)
    logp = laws.gather(1, ids[0, len(prompt) :, None])[:, 0]
    return states[0], states.mean(0), torch.stack([logp.mean(), logp.min()])


def ranking_loss(sure: Tensor, right: Tensor, margin: float = MARGIN) -> Tensor:
    """The mean of max(0, margin - (c_i - c_j)) over right answers i and wrong ones j; sure float [n], right bool [n]."""
    gaps = sure[right][:, None] - sure[~right][None]
    return (margin - gaps).clamp(min=0).mean() if gaps.numel() else sure.sum() * 0


def loss_of(head: CorrectnessHead, some: CorrectnessExamples) -> Tensor:
    """Both nets' losses, summed."""
    right, said = some.right.float(), head.sure_logit(some.mean, some.logp)
    wrong = F.binary_cross_entropy_with_logits(head.wrong_logit(some.prompt), 1 - right)
    return (
        wrong
        + F.binary_cross_entropy_with_logits(said, right)
        + WEIGHT * ranking_loss(said.sigmoid(), some.right)
    )


def new_head(found: CorrectnessExamples, inner: int = INNER, seed: int = 0) -> CorrectnessHead:
    """A fresh head whose first layers see inputs of unit variance."""
    torch.manual_seed(seed)
    head = CorrectnessHead(d=found.mean.shape[1], inner=inner)
    with torch.no_grad():
        for layer, x in (
            (head.wrong_in, found.prompt),
            (head.sure_in, torch.cat([found.mean, found.logp], 1)),
        ):
            layer.weight.normal_(0, x.shape[1] ** -0.5)
            layer.weight /= x.std(0).clamp(min=1e-3)
            layer.bias.copy_(-(layer.weight @ x.mean(0)))
    return head


def train(
    head: CorrectnessHead,
    found: CorrectnessExamples,
    steps: int,
    lr: float,
    seed: int,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """AdamW over batches drawn from the examples."""
    draw = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(head.requires_grad_(True).parameters(), lr=lr, weight_decay=0.3)
    for step in range(steps):
        some = found.rows(torch.randint(len(found.right), (BATCH,), generator=draw))
        for group in optimizer.param_groups:
            group["lr"] = lr * (1 - step / steps)
        optimizer.zero_grad()
        loss = loss_of(head, some)
        loss.backward()
        optimizer.step()
        if step % 500 == 0:
            say(f"step {step}: loss {float(loss.detach()):.3f}")
    head.requires_grad_(False)


def auc(score: Tensor, right: Tensor) -> float:
    """How often a right answer has a higher score than a wrong one; a tie counts one half. score float [n], right bool [n]."""
    gaps = score[right].double()[:, None] - score[~right].double()[None]
    return float((gaps > 0).double().mean() + 0.5 * (gaps == 0).double().mean())


def calibration_table(said: Tensor, so: Tensor) -> list[tuple[float, int, float, float]]:
    """(from, answers, mean of what is said, share that is so) of every tenth that has answers; said float [n], so bool [n]."""
    place = (said * BINS).long().clamp(max=BINS - 1)
    here = [(i, place == i) for i in range(BINS)]
    return [
        (i / BINS, int(x.sum()), float(said[x].mean()), float(so[x].double().mean()))
        for i, x in here
        if x.any()
    ]


def measure(head: CorrectnessHead, unseen: CorrectnessExamples) -> dict[str, object]:
    """The figures on unseen tasks."""
    sure = head.confidence(unseen.mean, unseen.logp)
    wrong = head.wrong_probability(unseen.prompt)
    right = unseen.right
    base = float(right.double().mean())
    return {
        "answers": len(right),
        "right": round(base, 4),
        "auc": {
            "sure": round(auc(sure, right), 4),
            "wrong": round(auc(1 - wrong, right), 4),
            "likelihood": round(auc(unseen.logp[:, 0], right), 4),
        },
        "brier": {
            "sure": round(float((sure - right.float()).square().mean()), 4),
            "wrong": round(float((wrong - (~right).float()).square().mean()), 4),
            "constant": round(base * (1 - base), 4),
        },
        "calibration": {
            "sure": [[round(x, 4) for x in row] for row in calibration_table(sure, right)],
            "wrong": [[round(x, 4) for x in row] for row in calibration_table(wrong, ~right)],
        },
    }


def main(words: Sequence[str] | None = None) -> None:
    """Answer, train, measure, and keep the heads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="lab-draft", help="a folder of assets/models")
    parser.add_argument(
        "--large", default="lab", help="the model that says what is right, another folder there"
    )
    parser.add_argument("--prompts", type=int, default=120, help="of each kind, to learn from")
    parser.add_argument("--unseen", type=int, default=40, help="of each kind, others, to measure on")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--into", type=Path, help="folder in which correctness/ is written; by default the model's heads/"
    )
    args = parser.parse_args(words)

    from decodescope.engine.session.load import fingerprint

    folder = MODELS / args.model
    small = load(folder)
    large = load(MODELS / args.large)
    net = Net.from_folder(folder).requires_grad_(False)
    found = examples(small, large, net, "train", args.prompts, args.seed)
    print(f"{len(found.right)} answers, {float(found.right.double().mean()):.0%} right", flush=True)
    unseen = examples(small, large, net, "held_out", args.unseen, args.seed + 1)
    head = new_head(found, seed=args.seed)
    train(head, found, args.steps, args.lr, args.seed + 2, say=lambda text: print(text, flush=True))
    figures = measure(head, unseen)
    print(figures)
    head.made_for = fingerprint(folder)
    made_with = {name: getattr(args, name) for name in ("large", "prompts", "unseen", "steps", "lr", "seed")}
    notes = {"large": fingerprint(MODELS / args.large), **figures, "made_with": made_with}
    write_head(head, (args.into or folder / "heads") / head.kind, notes)


if __name__ == "__main__":
    main()
