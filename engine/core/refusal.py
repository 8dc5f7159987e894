"""Refusal: what all errors share that are meant for people. It loads nothing."""

from __future__ import annotations


class Refusal(ValueError):
    """What was asked for will not be done. The message is one sentence: what, where, the limit, the way out."""
