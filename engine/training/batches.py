"""Batches: which texts a step of a training reads, in an order that the seed alone decides, and the model's values for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from .answers import TrainingText
from .target import HeadTarget, ModelStates, likeliest_tokens, read_states

SHARE = 10  # one of so many texts is held out
MOST_HELD_OUT = 64  # texts
NEAR = 64  # texts among which those of like lengths are read together


def split_held_out(texts: Sequence[TrainingText], seed: int) -> tuple[list[TrainingText], list[TrainingText]]:
    """The texts to learn from, and those that are held out: one in ten, at least one."""
    answered = [x for x in texts if len(x.answer) > 1]
    count = min(MOST_HELD_OUT, max(1, len(answered) // SHARE))
    order = np.random.default_rng((seed, 0)).permutation(len(answered)).tolist()
    chosen = set(order[:count])
    return [x for i, x in enumerate(answered) if i not in chosen], [answered[i] for i in sorted(chosen)]


def plan_epoch(lengths: Sequence[int], tokens: int, seed: int, epoch: int) -> list[list[int]]:
    """Batches of the numbers of texts, each text once, in the order of an epoch.

    A batch takes at most `tokens` tokens, with what fills up its shorter texts, and at least one text. Texts of like lengths
    come together, so little is filled up.
    """
    draw = np.random.default_rng((seed, 1, epoch))
    order = draw.permutation(len(lengths)).tolist()
    batches: list[list[int]] = []
    for at in range(0, len(order), NEAR):
        batch: list[int] = []
        for i in sorted(order[at : at + NEAR], key=lambda i: lengths[i]):  # the last one is the longest
            if batch and (len(batch) + 1) * lengths[i] > tokens:
                batches.append(batch)
                batch = []
            batch.append(i)
        batches.append(batch)
    return [batches[i] for i in draw.permutation(len(batches)).tolist()]


def plan_steps(texts: Sequence[TrainingText], tokens: int, batch_tokens: int, seed: int) -> list[list[int]]:
    """The batches of a whole training: epoch after epoch, until the answers in them have `tokens` tokens together."""
    lengths = [len(x.ids) for x in texts]
    steps: list[list[int]] = []
    epoch = done = 0
    while done < tokens:
        for batch in plan_epoch(lengths, batch_tokens, seed, epoch):
            steps.append(batch)
            done += sum(len(texts[i].answer) for i in batch)
            if done >= tokens:
                break
        epoch += 1
    return steps


def batch_states(target: HeadTarget, texts: Sequence[TrainingText], layer: int = 0) -> ModelStates:
    """The target's values for texts, shorter ones filled up behind; the guesses of answers' tokens alone count."""
    length = max(len(x.ids) for x in texts)
    ids = torch.tensor([x.ids + [0] * (length - len(x.ids)) for x in texts], device=target.device)
    counted = torch.tensor(
        [[x.start <= place < len(x.ids) for place in range(length)] for x in texts], device=target.device
    )
    r = read_states(target, ids, layer)
    return ModelStates(
        r.ids, r.embedded, r.early, r.feature, r.fused, likeliest_tokens(target, r.feature), counted
    )


def in_batches(texts: Sequence[TrainingText], tokens: int) -> Iterator[list[TrainingText]]:
    """All texts, in batches of at most `tokens` tokens, for a measurement."""
    for batch in plan_epoch([len(x.ids) for x in texts], tokens, 0, 0):
        yield [texts[i] for i in batch]
