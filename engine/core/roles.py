"""Roles: what the further models of a method are called, and how each is given on the command line. No torch."""

from __future__ import annotations

DRAFTS = ("draft", "draft2", "draft3")  # each is an option by itself
TARGET = "target"
WHOLE = "whole"  # what the target was made from, or the target itself: no method asks for it, it runs as the reference
SMALL = frozenset({*DRAFTS, "amateur"})  # their models know less than the target
BOTH = frozenset({"infill"})  # their models read text on both sides: they have no causal mask


def role_option(role: str, name: str = "NAME") -> tuple[str, str]:
    """What gives the model `name` this role on the command line."""
    return (f"--{role}", name) if role in DRAFTS else ("--role", f"{role}={name}")
