"""Train CoLoR's scorer of sentences on a frozen model, and write it into its folder, `assets/models/<model>/heads/color/`.

    python -m decodescope.training.color
    python -m decodescope.training.color --prompts 2000 --into out

Of a training task with a passage (`tasks/`, never LabBench) short versions are drawn, sentence by sentence, by the scorer's
own chances and by one half; the frozen model says how likely the right answer is behind each. Of two versions the one is
preferred that loses less, `price` nats counted for the share of the passage that it reads, where they differ by at least `GAP`.
The loss is DPO's, -ln sigmoid(beta (ln p(better) - ln p(worse))); its reference, which keeps every sentence with one half,
cancels.

At the end stands, on unseen prompts, what of the answer is lost with the sentences that are chosen, and beside them, with as
many: those that are nearest by embedding, and random ones; with all, and with none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.decoding.bases.prompt_compression import UnreadPrompt
from decodescope.engine.methods.prompt_compression.shared.units import PromptText
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.heads.color import SentenceScorer
from decodescope.engine.model.heads.relevance import span_relevance_features
from decodescope.engine.session.load import Model

from .cot_influx import Episode, average_figures, descend, embed_text, learn, logp, nats
from .tasks import KINDS

DRAWS = 4  # short versions of each prompt
ASKED = ("qa", "retrieval", "summary")  # kinds with a passage
LENGTH = 500  # tokens of a prompt, at most
RANK = 8
PRICE = 0.5  # nats for the whole passage
GAP = 0.05  # nats by which two versions must differ
BETA = 1.0  # DPO's beta


def select_ids(one: Episode, stays: Tensor) -> list[int]:
    """The ids of the spans that `stays`, bool [u], keeps, and all ids outside of spans."""
    kept = torch.ones(len(one.prompt), dtype=torch.bool)
    for (a, b), x in zip(one.spans, stays.tolist(), strict=True):
        kept[a:b] = x
    return [one.prompt[i] for i in kept.nonzero()[:, 0].tolist()]


def question_embeddings(e: Tensor, one: Episode) -> Tensor:
    """float [a, d]: the embeddings of a text's tokens [n, d] that are in no span."""
    rest = torch.ones(len(e), dtype=torch.bool)
    for a, b in one.spans:
        rest[a:b] = False
    return e[rest]


def step_loss(
    head: SentenceScorer, decoder: Decoder, one: Episode, price: float, draw: torch.Generator
) -> Tensor | None:
    """The loss of the pairs of DRAWS short versions; None where no two differ enough.

    Half of the versions are drawn by the scorer's chances and half by one half.
    """
    e = embed_text(decoder, one.prompt)
    logits = head(e, question_embeddings(e, one), one.spans)
    may_go = sum(b - a for a, b in one.spans)
    logs, worth = [], []
    for k in range(DRAWS):
        chance = logits.detach().sigmoid() if k % 2 else torch.full_like(logits, 0.5)
        stays = torch.rand(len(logits), generator=draw) < chance
        kept = select_ids(one, stays)
        worth.append(-nats(decoder, kept, one.answer) - price * (1 - (len(one.prompt) - len(kept)) / may_go))
        logs.append(logp(logits, stays).sum())
    ranked = sorted(range(DRAWS), key=lambda i: -worth[i])
    gaps = [logs[i] - logs[k] for i, k in combinations(ranked, 2) if worth[i] - worth[k] > GAP]
    return -F.logsigmoid(BETA * torch.stack(gaps)).mean() if gaps else None


def train(
    head: SentenceScorer,
    decoder: Decoder,
    episodes: Iterable[Episode],
    *,
    lr: float = 0.01,
    batch: int = 4,
    price: float = PRICE,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Adam, a step for each `batch` of episodes, until these end."""
    draw = torch.Generator().manual_seed(seed)

    def taught(one: Episode) -> tuple[Tensor | None, float]:
        loss = step_loss(head, decoder, one, price, draw)
        return loss, 0.0 if loss is None else float(loss.detach())

    descend(head, episodes, taught, lr, batch, "loss", say)


def rank_by_similarity(decoder: Decoder, one: Episode) -> Tensor:
    """int64 [u]: the sentences, ordered by how similar their tokens are to those of the question, the most similar first."""
    e = embed_text(decoder, one.prompt)
    return span_relevance_features(e, question_embeddings(e, one), one.spans)[2][:, 1].argsort(
        descending=True
    )


def make_episode(model: Model, chat: tuple[list[int], list[int]], r: Random, split: str) -> Episode:
    """A training task with a passage of at least three sentences that may go; `chat` as from `chat_frame`."""
    assert model.tokenizer is not None
    while True:
        task = KINDS[r.choice(ASKED)](r, split)
        ids = [*chat[0], *model.tokenizer.encode_plain(task.turns[0]), *chat[1]]
        answer = model.tokenizer.encode_plain(task.answers[0])
        piece, marks, front = model.words
        text = PromptText(UnreadPrompt(ids, *2 * (lambda *_: None,), model.decoder, piece, marks, front))  # type: ignore[arg-type] # unread
        starts, stays = text.unit_starts("sentence"), text.protected_mask("both")
        spans = [x for x in zip(starts, [*starts[1:], text.n], strict=True) if not stays[slice(*x)].any()]
        if len(ids) <= LENGTH and 0 < len(answer) <= 64 and len(spans) > 2:
            return Episode(ids, spans, 0, answer, task.kind)


def measure(
    head: SentenceScorer, decoder: Decoder, unseen: Sequence[Episode], r: Random
) -> dict[str, tuple[float, float]]:
    """For each way to choose: the mean -ln p a token of the answer, and the share of the passages' tokens that is read.

    The floors take as many sentences as the scorer.
    """
    rows: dict[str, list[tuple[float, float]]] = {}
    for one in unseen:
        e, u = embed_text(decoder, one.prompt), len(one.spans)
        stays = head.scores(e, question_embeddings(e, one), one.spans) > 0
        near, drawn = torch.zeros_like(stays), torch.zeros_like(stays)
        near[rank_by_similarity(decoder, one)[: int(stays.sum())]] = True
        drawn[r.sample(range(u), int(stays.sum()))] = True
        every = torch.ones_like(stays)
        for name, some in {
            "chosen": stays,
            "nearest": near,
            "random": drawn,
            "all": every,
            "none": ~every,
        }.items():
            kept, may_go = select_ids(one, some), sum(b - a for a, b in one.spans)
            rows.setdefault(name, []).append(
                (nats(decoder, kept, one.answer), 1 - (len(one.prompt) - len(kept)) / may_go)
            )
    return average_figures(rows)


def main(words: Sequence[str] | None = None) -> None:
    """Train, measure, and keep the scorer."""
    columns = "sentences | nats a token | tokens of passages read"
    learn(words, str(__doc__), lambda d: SentenceScorer(d, RANK), make_episode, train, measure, columns)


if __name__ == "__main__":
    main()
