"""Train CoT-Influx's two policies on a frozen model, and write them into its folder, `assets/models/<model>/heads/cot_influx/`.

    python -m decodescope.training.cot_influx
    python -m decodescope.training.cot_influx --prompts 2000 --into out

A prompt shows worked examples of the training tasks (`tasks/`, never LabBench): some of the kind that is asked for, some of
others, and asks one question more. Policies draw which examples stay, and which of their tokens; the frozen model says how
likely the right answer is behind that. The reward is its log-probability a token, less `price` for each share of tokens beyond
the budget, and the rest is REINFORCE: every prompt is drawn `DRAWS` times, and each draw is held against the mean of the others
(Huang et al. 2023, arXiv:2312.08901; the form of the reward is recalled).

At the end stands, on unseen prompts, what of the answer is lost with the policies, and beside them, with as many examples:
those that are nearest by embedding, and random ones; with all, and with none.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.cot_influx import ShotPolicies
from decodescope.engine.model.heads.files import write_head
from decodescope.engine.model.heads.relevance import center_embeddings, span_relevance_features
from decodescope.engine.session.load import Model, load

from .heads import MODELS
from .tasks import KINDS

DRAWS = 4  # of actions for each prompt
SHOTS = 5  # examples of a prompt
ASKED = (
    "qa",
    "math",
    "retrieval",
    "lists",
    "json",
    "expression",
    "translation",
)  # kinds with short enough answers
LENGTH = 700  # tokens of a prompt, at most
RANK = 8
BUDGET, PRICE = 0.5, 1.0  # share of the examples' tokens that costs nothing; nats for as many tokens again
CALM = 0.01  # nats for a nat of a policy's entropy


@dataclass
class Episode:
    """A prompt's ids, where its examples and the paragraph that asks begin and end, and the answer's ids."""

    prompt: list[int]
    spans: list[tuple[int, int]]
    first: int
    answer: list[int]
    kind: str = ""


@torch.inference_mode()
def nats(decoder: Decoder, prompt: Sequence[int], answer: Sequence[int]) -> float:
    """-ln p a token of the answer behind the prompt."""
    at = list(range(len(prompt) - 1, len(prompt) + len(answer) - 1))
    laws = decoder.forward(Feed.causal_chain([*prompt, *answer[:-1]], 0, decoder.device, logits=at), None)[
        0
    ].log_softmax(-1)
    return -float(laws.gather(1, torch.tensor(answer, device=laws.device)[:, None]).mean())


def embed_text(decoder: Decoder, ids: list[int]) -> Tensor:
    """float [n, d]: the embeddings of a text that the policies read."""
    return center_embeddings(decoder.embed_rows(Feed.causal_chain(ids, 0, decoder.device))[0])


def select_ids(one: Episode, shots: Tensor, tokens: Sequence[Tensor]) -> list[int]:
    """The ids that stay: all but those that the actions leave out, bool [s] and for each example bool [t]."""
    kept = torch.ones(len(one.prompt), dtype=torch.bool)
    for (a, b), stays, some in zip(one.spans, shots.tolist(), tokens, strict=True):
        kept[a:b] = some if stays else False
    return [one.prompt[i] for i in kept.nonzero()[:, 0].tolist()]


def step_loss(
    head: ShotPolicies, decoder: Decoder, one: Episode, budget: float, price: float, draw: torch.Generator
) -> tuple[Tensor, float]:
    """The loss with REINFORCE's gradient, for DRAWS draws of actions, and their mean reward."""
    e = embed_text(decoder, one.prompt)
    by_shot = head.shots(e, e[one.first :], one.spans).float()
    by_token = head.tokens(e, e[one.first :], one.spans)
    may_go = sum(b - a for a, b in one.spans)
    rewards = []
    logs = []
    for _ in range(DRAWS):
        shots = torch.rand(len(by_shot), generator=draw) < by_shot.detach().sigmoid()
        tokens = [torch.rand(len(x), generator=draw) < x.detach().sigmoid() for x in by_token]
        kept = select_ids(one, shots, tokens)
        over = (len(kept) - len(one.prompt) + may_go) / may_go - budget
        rewards.append(-nats(decoder, kept, one.answer) - price * max(0.0, over))
        said = [logp(x, y).mean() for x, y, stays in zip(by_token, tokens, shots, strict=True) if stays]
        logs.append(logp(by_shot, shots).sum() + sum(said, by_shot.new_zeros(())))
    reward = torch.tensor(rewards)
    better = (reward - reward.mean()) * DRAWS / (DRAWS - 1)  # held against the mean of the others
    calm = entropy(by_shot).sum() + torch.cat([entropy(x) for x in by_token]).mean()
    return -(better * torch.stack(logs)).mean() - CALM * calm, float(reward.mean())


def logp(logits: Tensor, taken: Tensor) -> Tensor:
    """float [n]: ln of the chance of each action, bool [n]."""
    return F.logsigmoid(torch.where(taken, logits, -logits))


def entropy(logits: Tensor) -> Tensor:
    """float [n]: of each choice, in nats."""
    p = logits.sigmoid()
    return -(p * F.logsigmoid(logits) + (1 - p) * F.logsigmoid(-logits))


def descend(
    head: nn.Module,
    episodes: Iterable[Episode],
    step: Callable[[Episode], tuple[Tensor | None, float]],
    lr: float,
    batch: int,
    word: str,
    say: Callable[[str], None],
) -> None:
    """Run Adam with a step for each `batch` of episodes, until these end.

    step(episode): its loss, None where it teaches nothing, and the number that is reported for it under the name `word`.
    """
    optimizer = torch.optim.Adam(head.requires_grad_(True).parameters(), lr=lr)
    numbers: list[float] = []
    for i, one in enumerate(episodes, 1):
        loss, number = step(one)
        if loss is not None:
            (loss / batch).backward()
            numbers.append(number)
        if i % batch == 0:
            torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if i % 100 == 0:
            say(f"{i} prompts: {word} {sum(numbers[-100:]) / max(1, len(numbers[-100:])):.3f}")
    head.requires_grad_(False)


def train(  # noqa: PLR0913
    head: ShotPolicies,
    decoder: Decoder,
    episodes: Iterable[Episode],
    *,
    lr: float = 0.01,
    batch: int = 4,
    budget: float = BUDGET,
    price: float = PRICE,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Adam, a step for each `batch` of episodes, until these end."""
    draw = torch.Generator().manual_seed(seed)
    descend(
        head,
        episodes,
        lambda one: step_loss(head, decoder, one, budget, price, draw),
        lr,
        batch,
        "reward",
        say,
    )


def choose_actions(head: ShotPolicies, decoder: Decoder, one: Episode) -> tuple[Tensor, list[Tensor]]:
    """The policies' choice where nothing is drawn: actions of at least one half."""
    e = embed_text(decoder, one.prompt)
    shots, tokens = head.chances(e, e[one.first :], one.spans)
    return shots >= 0.5, [x >= 0.5 for x in tokens]


def rank_by_similarity(decoder: Decoder, one: Episode) -> Tensor:
    """int64 [s]: the examples, ordered by how similar their tokens are to those of the question, the most similar first."""
    e = embed_text(decoder, one.prompt)
    return span_relevance_features(e, e[one.first :], one.spans)[2][:, 1].argsort(descending=True)


def chat_frame(model: Model) -> tuple[list[int], list[int]]:
    """The ids of a conversation before and behind what its user says."""
    assert model.tokenizer is not None
    whole = model.tokenizer.chat([{"role": "user", "content": "@"}])
    at = next(i for i, x in enumerate(whole) if "@" in str(model.tokenizer.piece(x)))
    return whole[:at], whole[at + 1 :]


def make_episode(model: Model, chat: tuple[list[int], list[int]], r: Random, split: str) -> Episode:
    """A prompt of training tasks: SHOTS examples, at least one of the kind that is asked for; `chat` as from `chat_frame`."""
    assert model.tokenizer is not None
    while True:
        kind = r.choice(ASKED)
        kinds = [kind] + [kind if r.random() < 0.3 else r.choice([*KINDS]) for _ in range(SHOTS - 1)]
        r.shuffle(kinds)
        worked = [KINDS[x](r, split) for x in kinds]
        asked = KINDS[kind](r, split)
        texts = [f"{' '.join(x.turns[0].split())}\n{' '.join(x.answers[0].split())}\n\n" for x in worked]
        ids, spans = chat[0], []
        for text in texts:
            spans.append((len(ids), len(ids) + len(part := model.tokenizer.encode_plain(text))))
            ids = [*ids, *part]
        first = len(ids)
        ids = [*ids, *model.tokenizer.encode_plain(" ".join(asked.turns[0].split())), *chat[1]]
        answer = model.tokenizer.encode_plain(asked.answers[0])
        if len(ids) <= LENGTH and 0 < len(answer) <= 64:
            return Episode(ids, spans, first, answer, kind)


def measure(
    head: ShotPolicies, decoder: Decoder, unseen: Sequence[Episode], r: Random
) -> dict[str, tuple[float, float]]:
    """For each way to choose: the mean -ln p a token of the answer, and the share of the examples' tokens that is read.

    The floors take as many examples as the policies, whole.
    """
    rows: dict[str, list[tuple[float, float]]] = {}
    for one in unseen:
        whole = [torch.ones(b - a, dtype=torch.bool) for a, b in one.spans]
        shots, tokens = choose_actions(head, decoder, one)
        count, s = int(shots.sum()), len(one.spans)
        near = torch.zeros(s, dtype=torch.bool)
        near[rank_by_similarity(decoder, one)[:count]] = True
        drawn = torch.zeros(s, dtype=torch.bool)
        drawn[r.sample(range(s), count)] = True
        every = torch.ones_like(near)
        ways = {"policies": (shots, tokens), "their examples whole": (shots, whole), "nearest": (near, whole)}
        ways |= {"random": (drawn, whole), "all": (every, whole), "none": (~every, whole)}
        for name, (some, parts) in ways.items():
            kept, may_go = select_ids(one, some, parts), sum(b - a for a, b in one.spans)
            rows.setdefault(name, []).append(
                (nats(decoder, kept, one.answer), 1 - (len(one.prompt) - len(kept)) / may_go)
            )
    return average_figures(rows)


def average_figures(rows: dict[str, list[tuple[float, float]]]) -> dict[str, tuple[float, float]]:
    """The means of each way to choose."""
    return {
        name: (sum(x for x, _ in some) / len(some), sum(y for _, y in some) / len(some))
        for name, some in rows.items()
    }


def learn(
    words: Sequence[str] | None,
    about: str,
    made: Callable[[int], Any],
    episode: Callable[[Model, tuple[list[int], list[int]], Random, str], Episode],
    train: Callable[..., None],
    measured: Callable[..., dict[str, tuple[float, float]]],
    heads: str,
) -> None:
    """Train a net that chooses parts of prompts, measure it, and keep it.

    about: the description of the script; made(d): the head of a model of this width;  heads: the columns of the table, divided
    by bars.
    """
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    parser.add_argument("--model", default="lab", help="a folder of assets/models")
    parser.add_argument("--prompts", type=int, default=600, help="prompts to learn from; DRAWS passes each")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--unseen", type=int, default=60, help="held-out prompts to measure it on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: as torch finds it")
    parser.add_argument(
        "--into", type=Path, help="folder in which its own is written; by default the model's heads/"
    )
    args = parser.parse_args(words)
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    folder = MODELS / args.model
    model = load(folder, "float32", "cpu")
    head, chat = made(model.spec.d_model), chat_frame(model)
    shown = (episode(model, chat, Random(f"{args.seed}/{i}"), "train") for i in range(args.prompts))
    train(head, model.decoder, shown, lr=args.lr, seed=args.seed, say=lambda text: print(text, flush=True))
    unseen = [episode(model, chat, Random(f"unseen/{args.seed}/{i}"), "valid") for i in range(args.unseen)]
    table = measured(head, model.decoder, unseen, Random(args.seed))
    print(f"| {heads} |\n|---|---|---|")
    for name, (loss, read) in table.items():
        print(f"| {name} | {loss:.3f} | {read:.0%} |")
    head.made_for = model.fingerprint
    notes = {
        "unseen": {name: [round(x, 4) for x in row] for name, row in table.items()},
        "made_with": {"prompts": args.prompts, "seed": args.seed},
    }
    write_head(head, (args.into or folder / "heads") / head.kind, notes)


def main(words: Sequence[str] | None = None) -> None:
    """Train, measure, and keep the policies."""
    columns = "examples | nats a token | tokens of examples read"
    learn(words, str(__doc__), lambda d: ShotPolicies(d, RANK), make_episode, train, measure, columns)


if __name__ == "__main__":
    main()
