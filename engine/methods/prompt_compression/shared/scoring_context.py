"""Base of prompt compression that shortens a prompt by a model's loss at each of its tokens."""

from __future__ import annotations

from typing import Any

from decodescope.engine.core.component import param
from decodescope.engine.core.roles import TARGET
from decodescope.engine.decoding.bases.prompt_compression import PromptCompression

DRAFT = "draft"


def scorer_knob() -> Any:
    """The knob that names the scorer."""
    return param(
        DRAFT, choices=(DRAFT, TARGET), help="model that scores the prompt: the draft model or the target"
    )


class ScoringContext(PromptCompression):
    """Prompt compression with a scorer.

    Its scorer knob names the model that reads the prompt: a draft model, or the target itself.
    """

    scorer: str

    @classmethod
    def roles(cls) -> tuple[str, ...]:
        return (DRAFT,)

    @property
    def lanes(self) -> tuple[str, ...]:  # type: ignore[override] # depends on a knob
        """The scorer's role, if it is not the target."""
        return () if self.scorer == TARGET else (DRAFT,)

    def lane_tokens(self, prompt: int, new: int) -> int:
        return prompt + 1
