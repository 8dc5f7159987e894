"""Model prompts: the prompts that the page offers for the model that is chosen.

They are those that were recorded with it as examples, and more of the kind that it answers: questions for a model with a chat
template, beginnings of texts for a base model, list tasks for a model that fills canvases.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from decodescope.engine.session.placement import SHIPPED
from decodescope.engine.trace import read_header

from .catalogue.examples import examples
from .preset_prompts import PresetPrompt
from .recipe import prompt_text

if TYPE_CHECKING:
    from decodescope.engine.session.load import Model

    from .model_pool import Offer

LEARNT = "lab"  # the shipped model whose prompts all shipped models of its corpus have
QUESTIONS = (
    "What is the capital of France, and what is it known for?",
    "Explain in two sentences why the sky is blue.",
    "How do plants make food from sunlight?",
    "Write a Python function that counts the vowels in a word.",
    "Summarise in one sentence: The library opened in 1902. It burnt down in 1944, and was built again by the people of the "
    "town, who gave it four thousand of their own books.",
    "Write a short story about a lighthouse keeper and a gull.",
    "What should I pack for a weekend in the mountains?",
    "Give me three ideas for a rainy afternoon with children.",
    "What is the difference between a lake and a river?",
)
BEGINNINGS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea, there lived",
    "The three most important inventions of the twentieth century are",
    "def count_vowels(word):\n    ",
    "Dear Ms Miller,\n\nThank you for your letter of 3 May.",
    "Question: What is the capital of Spain?\nAnswer: Madrid\nQuestion: What is the capital of Italy?\nAnswer:",
    "Ingredients for an apple pie:\n- ",
)
TASKS = (
    "sort: Finn Ben Ada Leo ->",
    "reverse: Ada Hugo Clara ->",
    "copy: Hugo Finn David ->",
    "insert Finn at 3: Clara Ella Grace David ->",
    "remove one: Ada Hugo Clara David ->",
    "shuffle: Ada Ben Clara Finn Hugo ->",
    "latin square: grey brown white red ->",
)
DIGITS = "3710582649"


def model_prompts(reader: Model | Offer) -> list[PresetPrompt]:
    """The prompts for this model, the most fitting first."""
    if reader.spec.picture is not None:
        return [PresetPrompt(x, chat=False) for x in DIGITS]
    if not reader.spec.causal:
        return _unlike(_example_prompts(reader.name), [PresetPrompt(x, chat=False) for x in TASKS])
    shipped = re.split(r"[+@]", reader.name)[0]
    if (SHIPPED / shipped).is_dir():
        own = [] if reader.name == LEARNT else _example_prompts(reader.name)
        more = [*_example_prompts(shipped), *_example_prompts(LEARNT)]
        chat = _has_chat(reader)
        return _unlike(own, sorted((x for x in more if chat or not x.chat), key=lambda x: not x.chat))
    texts = QUESTIONS if _has_chat(reader) else BEGINNINGS
    more = [PresetPrompt(x, chat=texts is QUESTIONS) for x in texts]
    return _unlike(_example_prompts(reader.name), more)


def _has_chat(reader: Model | Offer) -> bool:
    return reader.tokenizer is not None and reader.tokenizer.has_chat


def _example_prompts(name: str) -> list[PresetPrompt]:
    """The prompts of the examples that were recorded with the model of this name."""
    return _recorded_prompts().get(name, [])


@cache
def _recorded_prompts() -> dict[str, list[PresetPrompt]]:
    """Target -> the prompts of the examples that were recorded with it, in the order of the list."""
    prompts: dict[str, list[PresetPrompt]] = {}
    for example in examples():
        header = read_header(example.path)
        one = PresetPrompt(header.turn or prompt_text(header), chat=bool(header.turn))
        prompts.setdefault(str(header.model.get("name")), []).append(one)
    return prompts


def _unlike(*lists: list[PresetPrompt]) -> list[PresetPrompt]:
    """The prompts of all lists, each once, without those with which another one begins."""
    every = list(dict.fromkeys(x for one in lists for x in one))
    texts = {x.prompt for x in every}
    return [x for x in every if not any(y != x.prompt and y.startswith(x.prompt) for y in texts)]
