"""Refusal: what a command says in one sentence when it cannot do what was asked, and which errors mean just that."""

from __future__ import annotations

import sys

# module inside the package -> its errors whose message is one sentence for people
_HOMES = {
    "engine.params": ("ParamError",),
    "engine.method": ("MethodError",),
    "engine.folder": ("LoadError",),
    "engine.template": ("TemplateError",),
    "engine.trace.limits": ("TraceError",),
    "engine.trace.grammar": ("ConditionError",),
    "app.server": ("ServeError",),
}


class Refusal(Exception):
    """A command cannot do what was asked of it. The message is one sentence: what, where, the way out."""


def is_refusal(error: Exception) -> bool:
    """Whether the error's message is meant for people. Looks only where the program has been, so it loads nothing."""
    if isinstance(error, Refusal):
        return True
    root = __name__.removesuffix("app.refusal")
    homes = ((sys.modules.get(root + module), names) for module, names in _HOMES.items())
    return any(isinstance(error, getattr(home, name)) for home, names in homes if home is not None for name in names)


def sentence(error: Exception) -> str:
    """The message on one line."""
    return " ".join(str(error).split())
