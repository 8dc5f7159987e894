"""Whole prompt: every token is read."""

from __future__ import annotations

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.prompt_compression import PromptCompression


@component
class WholePrompt(PromptCompression):
    """Read the prompt as it was given. It costs nothing: no pass is made to look at it."""

    title = "Whole prompt"
    source = "the plain transformer"
    lossless = True
