"""Texts for the draft doctor: the target's own greedy answers, with and without the chat template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from decodescope.engine.core.progress import Progress
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.session.batch.decode import BatchSettings, decode_batch
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method
from decodescope.engine.session.run import encode_text_or_ids
from decodescope.engine.session.session import stop_condition

SHORTEST = 4  # tokens of an answer that can be examined


class DoctorError(Refusal):
    """A draft cannot be examined so. One sentence."""


@dataclass(frozen=True)
class DoctorText:
    """A prompt and the target's greedy answer, as ids. start: tokens of the prompt;  chat: went through the chat template
    prompt: number of the prompt, which its text and the same through the template share"""

    ids: list[int]
    start: int
    chat: bool
    prompt: int = 0


@dataclass(frozen=True)
class ReadPrompt:
    """A prompt as a recorded run read it. ids: its tokens;  chat: whether they went through the chat template"""

    ids: Sequence[int]
    chat: bool


DoctorPrompt: TypeAlias = str | Sequence[int] | ReadPrompt


def encode_prompts(model: Model, prompts: Sequence[DoctorPrompt]) -> list[tuple[list[int], bool, int]]:
    """The ids of every prompt, whether they come from the chat template, and the prompt's number.

    A text is read twice where the model has a template: as it is, and as a user's turn. Ids are taken as they are, those of a
    run too. Raises ParamError, MethodError.
    """
    rows: list[tuple[list[int], bool, int]] = []
    for number, prompt in enumerate(prompts):
        if isinstance(prompt, ReadPrompt):
            rows.append((encode_text_or_ids(model, prompt.ids), prompt.chat, number))
            continue
        rows.append((encode_text_or_ids(model, prompt), False, number))
        if isinstance(prompt, str) and model.tokenizer is not None and model.tokenizer.has_chat:
            rows.append((encode_text_or_ids(model, prompt, chat=True), True, number))
    return rows


def write_texts(
    model: Model, prompts: Sequence[DoctorPrompt], answer_tokens: int, window: int
) -> list[DoctorText]:
    """The target's greedy answers, `answer_tokens` long at most, to the prompts that leave room for them in `window` tokens.

    Raises DoctorError if no answer is long enough to be examined, MethodError for a prompt that cannot be read.
    """
    room = min(window, model.spec.max_positions) - answer_tokens
    rows = [row for row in encode_prompts(model, prompts) if 0 < len(row[0]) <= room]
    with Progress("writing the target's answers", len(rows), "texts") as progress:

        def look() -> bool:
            progress.at(progress.done)  # who listens may stop here
            return False

        settings = BatchSettings(
            Method().sampler,
            stop_condition(model, None, []),
            max_new=answer_tokens,
            halted=look,
            over=progress.at,
        )
        batch = decode_batch(model, [ids for ids, *_ in rows], settings)
    if batch.fault is not None:
        raise DoctorError(f"The answers could not be written ({batch.fault}): give fewer or shorter prompts.")
    texts = [
        DoctorText([*ids, *answer.tokens], len(ids), chat, number)
        for (ids, chat, number), answer in zip(rows, batch.texts, strict=True)
        if len(answer.tokens) >= SHORTEST
    ]
    if not texts:
        raise DoctorError(
            f"No prompt of at most {room} tokens got an answer of {SHORTEST} tokens or more, so there is nothing to "
            "examine: give other prompts, or a larger window."
        )
    return texts
