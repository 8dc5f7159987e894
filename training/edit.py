"""Train the tagger of parallel iterative edits on `lab-mdm`, and write it into the model's folder, `heads/edit/`.

    python -m decodescope.training.edit
    python -m decodescope.training.edit --drafts 6000 --into out

Drafts of answers to questions on lists: a part by the model itself, all places in one pass, the others right answers with up
to four mistakes, a word replaced, inserted, dropped, or two changed round (as Awasthi et al. 2019, arXiv:1910.02893, spoil
their texts; awasthiabhijeet/PIE, errorify/). Of all right answers the one is wanted that the fewest edits make of the draft,
and its alignment gives every token its tag; where two words are missing in one place, the first comes in this pass. The model
stays as it is. At the end other drafts are edited by the engine: right answers before and behind it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine import Method, Session, load
from decodescope.engine.bench.questions.parallel_tasks import (
    LENGTHS,
    LISTS,
    NAMES,
    ParallelQuestion,
    draw_answer,
    is_right_text,
    make_question,
    make_questions,
    right_answers,
)
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.model.heads.edit import EditRows, EditTagger
from decodescope.engine.model.heads.files import write_head
from decodescope.engine.session.load import Model, fingerprint
from decodescope.engine.trace.details.shapes import TallyDetail
from decodescope.engine.trace.values.edits import DELETE, INSERT, KEEP, REPLACE

from .infill import NAME, fill_canvas
from .infill_data import WEIGHTS
from .net import Net
from .train import MODELS

LAYER = 3
WIDTH = 48
HIDDEN = 64
CANVAS, LONGEST = 8, 8  # places that the model drafts; words of a draft
MISTAKES = (0.3, 0.25, 0.2, 0.15, 0.1)  # of 0, 1, ... mistakes, the chance
OWN, BOTH = 0.4, 0.3  # drafts that the model writes, and of these with mistakes besides
BATCH, RATE = 64, 3e-3
SEED, UNSEEN = 7_000_000, 7_500_000  # of questions to learn from, and to measure on

Tags = list[tuple[int, int]]  # of the prompt's end and of each token: the tag, and the word that comes in


class DraftBatch(NamedTuple):
    """Drafts of one length behind prompts of one length: the rows of their pass, what it left of each, and what is wanted."""

    at: EditRows
    embedded: Tensor
    middle: Tensor
    last: Tensor
    scores: Tensor
    tags: Tensor
    words: Tensor


def edit_distances(draft: Sequence[int], answer: Sequence[int]) -> list[list[int]]:
    """Edits that make the first j tokens of `answer` of the first i of `draft`, by i and j."""
    table = [[i + j if not i * j else 0 for j in range(len(answer) + 1)] for i in range(len(draft) + 1)]
    for i, x in enumerate(draft, 1):
        for j, y in enumerate(answer, 1):
            table[i][j] = min(table[i - 1][j - 1] + (x != y), table[i - 1][j] + 1, table[i][j - 1] + 1)
    return table


def nearest_tags(draft: Sequence[int], right: Iterable[Sequence[int]]) -> Tags:
    """The tags that lead to the nearest of the `right` answers, the first of equals.

    Of several edits at one place the first in the text is done, a replacement before an insertion behind it. The others wait
    for the next pass.
    """
    answer, table = min(((x, edit_distances(draft, x)) for x in right), key=lambda pair: pair[1][-1][-1])
    i, j = len(draft), len(answer)
    tags: Tags = [(KEEP, 0)] * (i + 1)
    while i or j:
        if i and j and table[i][j] == table[i - 1][j - 1] + (draft[i - 1] != answer[j - 1]):
            if draft[i - 1] != answer[j - 1]:
                tags[i] = REPLACE, answer[j - 1]
            i, j = i - 1, j - 1
        elif i and table[i][j] == table[i - 1][j] + 1:
            tags[i] = DELETE, 0
            i -= 1
        else:
            tags[i] = INSERT, answer[j - 1]
            j -= 1
    return tags


def spoil_answer(answer: Sequence[int], r: Random, words: Sequence[int]) -> list[int]:
    """The answer with some mistakes."""
    draft = list(answer)
    for _ in range(r.choices(range(len(MISTAKES)), MISTAKES)[0]):
        i = r.randrange(len(draft) + 1)
        match r.choice(("replace", "insert", "drop", "swap")):
            case "insert":
                draft.insert(i, r.choice(words))
            case "replace" if i < len(draft):
                draft[i] = r.choice(words)
            case "drop" if len(draft) > 1:
                draft.pop(i % len(draft))
            case "swap" if len(draft) > 1:
                k = r.randrange(len(draft))
                i %= len(draft)
                draft[i], draft[k] = draft[k], draft[i]
    return draft[:LONGEST]


class Drafts:
    """Drafts of the answers to questions, as ids."""

    def __init__(self, model: Model, net: Net) -> None:
        assert model.tokenizer is not None and model.stop_tokens
        self.tokenizer = model.tokenizer
        self.net = net
        self.end = min(model.stop_tokens)
        self.ids = {name: self.tokenizer.encode(f" {name}")[0] for name in NAMES}

    def make_drafts(
        self, asked: Sequence[ParallelQuestion], r: Random, own: float
    ) -> list[tuple[ParallelQuestion, list[int], list[int]]]:
        """Each question with the ids of its prompt and of a draft, which the model writes in `own` of all cases."""
        words, out = [*self.ids.values()], []
        coded = sorted(((self.tokenizer.encode(q.prompt), q) for q in asked), key=lambda pair: len(pair[0]))
        for _, some in groupby(coded, key=lambda pair: len(pair[0])):
            prompts, those = zip(*some, strict=True)
            texts = fill_canvas(self.net, torch.tensor(prompts), CANVAS, 1).tolist()
            for q, prompt, text in zip(those, prompts, texts, strict=True):
                if r.random() < own:
                    draft = text[: text.index(self.end)] if self.end in text else text
                    draft = spoil_answer(draft, r, words) if own < 1 and r.random() < BOTH else draft
                else:
                    draft = spoil_answer([self.ids[x] for x in draw_answer(q, r)], r, words)
                out.append((q, prompt, draft))
        return out

    def right_ids(self, q: ParallelQuestion) -> list[list[int]]:
        """The ids of all right answers."""
        return [[self.ids[x] for x in answer] for answer in right_answers(q)]


def batches(model: Model, drafts: Drafts, count: int, seed: int) -> list[DraftBatch]:
    """What the model's passes over `count` drafts leave, and the tags that are wanted."""
    r = Random(seed)
    rows = [
        (prompt, draft, nearest_tags(draft, drafts.right_ids(q)))
        for q, prompt, draft in drafts.make_drafts(
            [make_question(r.choices(LISTS, WEIGHTS)[0], r) for _ in range(count)], r, OWN
        )
    ]
    rows.sort(key=lambda row: (len(row[0]), len(row[1])))
    out = []
    for (before, size), same in groupby(rows, key=lambda row: (len(row[0]), len(row[1]))):
        some = list(same)
        for i in range(0, len(some), BATCH):
            part, at = some[i : i + BATCH], EditRows(before, size, True)
            tokens = torch.tensor([[*prompt, *draft, drafts.end] for prompt, draft, _ in part])
            tags, words = torch.tensor([x for *_, x in part]).unbind(2)
            out.append(DraftBatch(at, *evidence(model, at, tokens), tags, words))
    return out


def evidence(model: Model, at: EditRows, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What the head reads of a pass over tokens int64 [B, text], as `EditTagger.forward` has it."""
    mask, probe = model.spec.mask_token, Probe(Needs(hidden=frozenset({LAYER, "final"})))
    assert mask is not None
    with torch.inference_mode():
        feed = at.feed(tokens, mask)
        logits = model.decoder.forward(feed, None, probe)
        parts = (
            model.decoder.embed_rows(feed),
            probe.hidden[LAYER],
            probe.hidden["final"],
            at.scores(feed.tokens, logits),
        )
    return tuple(x.clone() for x in parts)  # type: ignore[return-value] # four: training reads them, so none is of inference


def loss_of(head: EditTagger, batch: DraftBatch, embed: Tensor) -> Tensor:
    """The cross entropy of tags and, where one comes in, of words, over all places of a batch, summed. embed: [V, d]."""
    tags, features = head(batch.embedded, batch.middle, batch.last, batch.scores, batch.at)
    loss = F.cross_entropy(tags.flatten(0, 1), batch.tags.flatten(), reduction="sum")
    for feature, tag in zip(features, (REPLACE, INSERT), strict=True):
        here = batch.tags == tag
        loss = loss + F.cross_entropy(feature[here] @ embed.T, batch.words[here], reduction="sum")
    return loss


def fit_tagger(
    head: EditTagger, train: list[DraftBatch], embed: Tensor, epochs: int, seed: int
) -> EditTagger:
    """The head after so many rounds over `train`, four batches a step, at a rate that falls to nothing."""
    r, optimizer = Random(seed), torch.optim.AdamW(head.parameters(), lr=RATE)
    steps = -(-len(train) // 4) * epochs
    fall = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for epoch in range(epochs):
        total = places = 0.0
        r.shuffle(train)
        for i in range(0, len(train), 4):
            part = train[i : i + 4]
            loss = sum((loss_of(head, x, embed) for x in part), torch.zeros(()))
            size = sum(x.tags.numel() for x in part)
            optimizer.zero_grad()
            (loss / size).backward()
            optimizer.step()
            fall.step()
            total, places = total + loss.item(), places + size
        print(f"round {epoch + 1} loss {total / places:.4f}", flush=True)
    return head.requires_grad_(False)


@torch.no_grad()
def tag_accuracy(head: EditTagger, data: list[DraftBatch]) -> dict[str, float]:
    """The share of places of unseen drafts that get the wanted tag, for all tags and by tag."""
    pairs = [(head(*x[1:5], x.at)[0].argmax(2).flatten(), x.tags.flatten()) for x in data]
    said, due = (torch.cat(x) for x in zip(*pairs, strict=True))
    by = {
        name: due == tag for name, tag in zip(("keep", "delete", "replace", "insert"), range(4), strict=True)
    }
    return {
        name: round(float((said == due)[here].float().mean()), 4)
        for name, here in ({"all": due >= 0} | by).items()
    }


def edit_accuracy(
    model: Model, drafts: Drafts, asked: Sequence[ParallelQuestion], own: bool, rounds: int
) -> dict[str, dict[str, float]]:
    """Task -> for `asked`: three shares, and the passes that edit per question; decoded by the engine.

    The shares are those of right drafts, of right texts behind the edits, and of right drafts still right after a single pass.
    """
    found: dict[str, list[tuple[bool, bool, int]]] = {}
    for q, prompt, draft in drafts.make_drafts(asked, Random(UNSEEN), float(own)):
        text = drafts.tokenizer.decode(draft)
        knobs = {"max_rounds": rounds, "block": CANVAS, "draft": "" if own else text}
        method = Method.from_names({"strategy": "edit_tags"}, {"strategy": knobs})
        session = Session(model, method, prompt, max_new_tokens=CANVAS if own else LONGEST + 2)
        steps = list(session.stream())
        passes = [x for x in steps[0].details or () if x.name == "edits"]
        assert session.end is not None
        said = drafts.tokenizer.decode([x for x in session.end.tokens if x not in model.stop_tokens])
        before = drafts.tokenizer.decode(cast(TallyDetail, passes[0]).columns["token"][1:])
        found.setdefault(q.task, []).append((is_right_text(q, before), is_right_text(q, said), len(passes)))
    every = [x for rows in found.values() for x in rows]
    return {task: _shares(rows) for task, rows in (found | {"all": every}).items()}


def _shares(rows: Sequence[tuple[bool, bool, int]]) -> dict[str, float]:
    """The figures of some drafts."""
    n, right = len(rows), [(after, passes) for before, after, passes in rows if before]
    stood = (
        {"right in one pass": sum(after and passes == 1 for after, passes in right) / len(right)}
        if right
        else {}
    )
    shares = {"before": len(right) / n, "after": sum(x for _, x, _ in rows) / n, **stood}
    shares["passes"] = sum(x for *_, x in rows) / n
    return {name: round(x, 4) for name, x in shares.items()}


def main(words: Sequence[str] | None = None) -> None:
    """Make examples, fit, measure, and keep the head."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", type=Path, default=MODELS / NAME, metavar="FOLDER")
    parser.add_argument("--drafts", type=int, default=20000, help="to learn from")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--questions", type=int, default=40, help="of each list task, to measure on")
    parser.add_argument(
        "--rounds", type=int, default=4, help="passes that edit a draft, at most, where it is measured"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--into", type=Path, help="folder in which edit/ is written; by default the model's heads/"
    )
    args = parser.parse_args(words)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model, folder = load(args.model), (args.into or args.model / "heads") / EditTagger.kind
    drafts = Drafts(model, Net.from_folder(args.model).eval().requires_grad_(False))
    train, unseen = (batches(model, drafts, *x) for x in ((args.drafts, SEED), (1000, UNSEEN)))
    print(f"{sum(x.tags.numel() for x in train):,} places", flush=True)
    head = EditTagger(model.spec.d_model, LAYER, WIDTH, HIDDEN)
    head = fit_tagger(head, train, model.decoder.embed.float(), args.epochs, args.seed)
    head.made_for = fingerprint(args.model)
    notes: dict[str, Any] = {"made_with": {"drafts": args.drafts, "epochs": args.epochs, "seed": args.seed}}
    write_head(head, folder, notes)
    model = load(args.model, heads={EditTagger.kind: folder})
    asked = make_questions(LISTS, args.questions, UNSEEN, LENGTHS)
    own, others = (edit_accuracy(model, drafts, asked, x, args.rounds) for x in (True, False))
    measured = {"tags of unseen drafts": tag_accuracy(head, unseen), "rounds": args.rounds}
    measured |= {"its own drafts": own, "drafts with mistakes": others}
    write_head(head, folder, notes | {"measured": measured})
    print(own["all"], others["all"], flush=True)


if __name__ == "__main__":
    main()
