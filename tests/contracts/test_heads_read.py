"""A method reads the heads that its parts ask for before a run; there is no separate list of them."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

import pytest
import toys

from decodescope.engine.core.component import KINDS, Component, registry
from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.files import GATES, NETS
from decodescope.engine.session.method import Method

# takes a head from a model; the shared code of pipelines does so too
TAKES = re.compile(r"heads\[|heads\.get\(|Guess\(")


def takes_heads(part: type[Component]) -> bool:
    """True if the file of a part, or of one of its bases, takes heads from a model."""
    files = {x.__module__ for x in part.__mro__ if x.__module__.startswith("decodescope.engine")}
    return any(TAKES.search(inspect.getsource(sys.modules[x])) for x in files)


def composed(kind: str, name: str, settings: dict[str, Any]) -> Method:
    """A method with this part, and with a strategy that uses it."""
    more = {"unmasking": {"strategy": "masked"}}.get(kind, {})
    more = {"strategy": toys.router_strategy(name)} if kind == "router" else more
    if kind == "schedule":
        more = {"drafter": ("draft_model", {"width": 1})}
    return toys.method(**{kind: (name, settings)}, **more)


def settings_that_differ(kind: str, name: str) -> list[dict[str, Any]]:
    """For each set of heads that a part asks for, one of its settings."""
    all_settings = toys.settings_of(kind, name)
    return [*{composed(kind, name, x).target_heads(toys.SPEC): x for x in all_settings}.values()]


PARTS = [
    (kind, name, settings)
    for kind in KINDS
    for name, part in registry(kind).items()
    if takes_heads(part)
    for settings in settings_that_differ(kind, name)
]


@pytest.mark.parametrize(("kind", "name", "settings"), PARTS, ids=lambda x: x if isinstance(x, str) else "")
def test_a_run_reads_the_heads_that_its_parts_ask_for(
    kind: str, name: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    method = composed(kind, name, settings)
    target, get, read = toys.method_models(method)[0], toys.Heads.__getitem__, set[str]()

    def noted(heads: toys.Heads, which: str) -> Head:
        read.update({which} if heads is target.decoder.heads else ())
        return get(heads, which)

    monkeypatch.setattr(toys.Heads, "__getitem__", noted)
    toys.decode(method, count=6)
    asked = method.target_heads(target.spec)
    assert read == asked or (kind == "prompt_compression" and not read), (
        "a context reads its head where there is something to cut"
    )


def test_the_heads_that_are_asked_for_are_those_of_the_parts_in_use() -> None:
    spec = toys.SPEC
    assert (
        toys.method(drafter="eagle2").target_heads(spec) == {"eagle"}
        and Method().target_heads(spec) == frozenset()
    )
    both = toys.method(drafter=("medusa", {}), adaptive_depth=("confidence_exit", {"heads": "exits"}))
    assert both.target_heads(spec) == {"medusa", "exits"}
    assert (
        toys.method(adaptive_depth=("confidence_exit", {"heads": "none"})).target_heads(spec) == frozenset()
    )
    named = {x for kind, name, settings in PARTS for x in composed(kind, name, settings).target_heads(spec)}
    assert len(named) > 20 and named <= set(NETS) - set(GATES), "those of a draft model are not the target's"
