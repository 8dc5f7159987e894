"""Prompt sentences: sentences on how prompts were put to a model, and on the turns that were not asked."""

from __future__ import annotations

from collections.abc import Sequence


def template_sentence(templated: int, count: int, later: bool = False) -> str:
    """A sentence on how `count` prompts were put, with the number that went through the model's chat template.
    later: all of them were later turns of a conversation"""
    if not templated:
        return "The prompts were put as raw text, without a chat template."
    if templated < count:
        what = f"{templated} of {count} prompts were put through the model's chat template"
        return f"{what}; the others as raw text."
    if later:
        return "Every prompt was a later turn of a conversation, put through the model's chat template."
    return "Every prompt was put through the model's chat template."


def skipped_turns_sentence(turns: int, having: int, count: int) -> str:
    """A sentence that only first turns were asked, and that `turns` were not; "" if none were left out.
    having: number of prompts with such turns, of `count`"""
    if not turns:
        return ""
    more = "1 later turn" if turns == 1 else f"{turns} later turns"
    return f"Only first turns were asked. Left out: {more}, of {having} of {count} prompts."


def prompt_sentences(templated: int, later: Sequence[int]) -> list[str]:
    """Both sentences, for prompts with so many unasked turns each after the first."""
    return [x for x in (template_sentence(templated, len(later)), summarize_skipped_turns(later)) if x]


def summarize_skipped_turns(later: Sequence[int]) -> str:
    """`skipped_turns_sentence` for prompts with so many turns each after the first."""
    return skipped_turns_sentence(sum(later), sum(x > 0 for x in later), len(later))
