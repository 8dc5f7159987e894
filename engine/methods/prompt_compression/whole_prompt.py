"""Whole prompt: every token is read."""

from __future__ import annotations

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.prompt_compression import PromptCompression


@component
class WholePrompt(PromptCompression):
    """Read the prompt unchanged. This costs nothing: no extra pass reads it."""

    title = "Whole prompt"
    source = "the plain transformer"
    lossless = True
