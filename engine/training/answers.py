"""Answers: what the model writes to prompts, kept in a file of ids, set by set, so that a stopped run goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from decodescope.engine.core.component import build
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.decoding.bases.sampler import Sampler
from decodescope.engine.session.batch.decode import BatchSettings, check_prompts, decode_batch
from decodescope.engine.session.load import Model
from decodescope.engine.session.session import stop_condition

SET = 32  # prompts whose answers are written together, and kept together


class TrainingError(Refusal):
    """A head cannot be trained so. One sentence."""


@dataclass(frozen=True)
class TrainingText:
    """A prompt and the model's answer, as ids. number: of the prompt;  start: tokens of the prompt"""

    number: int
    ids: list[int]
    start: int

    @property
    def answer(self) -> list[int]:
        """The ids of the answer."""
        return self.ids[self.start :]


@dataclass(frozen=True)
class AnswerSettings:
    """How the model answers.

    most: tokens of an answer, at most;  window: tokens of prompt and answer, at most;  temperature: 0 is greedy
    enough: tokens of all answers together after which no further prompts are asked
    seed: decides about the order of the prompts and about what is drawn
    """

    most: int = 256
    window: int = 512
    temperature: float = 0.7
    enough: int = 1 << 62
    seed: int = 0


def readable_prompts(prompts: Sequence[Sequence[int]], asked: AnswerSettings) -> list[int]:
    """The numbers of the prompts that leave at least a tenth of the window to an answer, in the order of the seed."""
    order = np.random.default_rng(asked.seed).permutation(len(prompts)).tolist()
    return [i for i in order if 0 < len(prompts[i]) <= asked.window - max(1, asked.window // 10)]


def read_answers(path: Path) -> list[TrainingText]:
    """The answers of whole sets in the file; what a stop cut off behind them is taken off the file too."""
    if not path.exists():
        return []
    data = path.read_bytes()
    texts: list[TrainingText] = []
    kept = whole = 0
    sets: list[TrainingText] = []
    for line in data.splitlines(keepends=True):
        whole += len(line)
        try:
            row = json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            row = None
        if row is None:
            break
        if "ids" in row:
            sets.append(TrainingText(row["prompt"], row["ids"], row["start"]))
        else:  # the line behind a set
            texts += sets
            sets = []
            kept = whole
    if kept < len(data):
        os.truncate(path, kept)
    return texts


def write_answers(
    model: Model,
    prompts: Sequence[Sequence[int]],
    asked: AnswerSettings,
    path: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[TrainingText]:
    """The model's answers to the prompts (ids), those that the file has already and the others, which join it.

    progress: called with how many tokens the answers have, and how many they will have at most. Raises MethodError for a
    prompt that the model cannot read, TrainingError where the device gives up.
    """
    numbers = readable_prompts(prompts, asked)
    check_prompts(model, [prompts[i] for i in numbers])
    texts = read_answers(path)
    answered = {text.number for text in texts}
    sampler = cast(Sampler, build("sampler", "temperature", {"temperature": asked.temperature}))
    tokens = sum(len(text.answer) for text in texts)
    most = min(asked.enough, len(numbers) * asked.most)
    for at in range(0, len(numbers), SET):
        some = numbers[at : at + SET]
        if tokens >= asked.enough or answered.issuperset(some):
            continue
        answers = _write_set(model, prompts, some, replace(asked, seed=asked.seed + at), sampler)
        _append(path, answers)
        texts += answers
        tokens += sum(len(text.answer) for text in answers)
        progress(tokens, most)
    return texts


def _write_set(
    model: Model,
    prompts: Sequence[Sequence[int]],
    numbers: list[int],
    asked: AnswerSettings,
    sampler: Sampler,
) -> list[TrainingText]:
    settings = BatchSettings(
        sampler, stop_condition(model, None, []), max_new=asked.most, seed=asked.seed, most=SET
    )
    batch = decode_batch(model, [prompts[i] for i in numbers], settings)
    if batch.fault is not None:
        raise TrainingError(
            f"The answers to {len(numbers)} prompts could not be written ({batch.fault}): give a smaller model or window."
        )
    return [
        TrainingText(i, [*prompts[i], *text.tokens][: asked.window], len(prompts[i]))
        for i, text in zip(numbers, batch.texts, strict=True)
    ]


def _append(path: Path, texts: Sequence[TrainingText]) -> None:
    """Add a set to the file, and behind it a line that says that it is whole."""
    rows: list[dict[str, object]] = [{"prompt": x.number, "start": x.start, "ids": x.ids} for x in texts]
    rows.append({"texts": len(texts)})
    with path.open("ab") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows).encode())
        file.flush()
        os.fsync(file.fileno())
