"""Parts: every component as plain data, with published and measured results, for the command line and the page."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decodescope.engine.session.method import Method

BOOK = Path(__file__).resolve().parents[3] / "assets" / "methods.json"


@cache
def method_results() -> dict[str, Any]:
    """Published and measured results of the parts, in addition to what the parts declare.
    headlines: kind -> name -> what the authors measured; measured: the `command`, and `figures`, kind -> name -> [tokens a
    pass, times plain decoding], of the shipped models."""
    read: dict[str, Any] = json.loads(BOOK.read_text(encoding="utf-8"))
    return read


def parts() -> list[dict[str, Any]]:
    """Every part as plain data.
    exactness: of a method that differs from plain decoding in this part alone; for a rule, of every draft that it accepts as
    input."""
    from decodescope.engine.core.component import KINDS, build, registry
    from decodescope.engine.session.method import Method, strategy_using

    figures = method_results()["measured"]["figures"]
    rows = []
    for kind in KINDS:
        for name, cls in registry(kind).items():
            part: Any = cls()
            method = Method(**{"strategy": build("strategy", strategy_using(kind)), kind: part})
            rows.append(
                {
                    **_description(kind, name, cls),
                    "measured": dict(zip(("tau", "ratio"), figures.get(kind, {}).get(name, ()), strict=False))
                    or None,
                    "exactness": _exactness(kind, part, method),
                    "params": [knob_record(p) for p in cls.params()],
                    "needs": {
                        "attention": part.needs.attention,
                        "hidden": sorted(map(str, part.needs.hidden)),
                        "models": list(part.lanes),
                        "heads": heads(part),
                        "missing": list(missing_heads(kind, name)),
                        "sides": method.strategy.sides,
                        "writes": method.strategy.writes,
                    },
                }
            )
    return rows


def _exactness(kind: str, part: Any, method: Method) -> str:
    """The exactness of a method that differs from plain decoding in this part; an acceptance rule declares its own."""
    if kind == "acceptance":
        return "lossless" if part.lossless else "lossy"
    return method.exactness


def transforms() -> list[dict[str, Any]]:
    """The transforms that make another model before a method runs on it, as plain data like `parts`.
    A method that is lossless on the other model is exact for these weights, but does not write the first model's text."""
    from decodescope.engine.core.component import OF_MODEL, registry

    nothing = {
        "attention": "none",
        "hidden": [],
        "models": [],
        "heads": [],
        "missing": [],
        "sides": "left",
        "writes": "text",
    }
    return [
        {
            **_description(kind, name, cls),
            "measured": None,
            "exactness": "exact_for_settings",
            "params": [knob_record(p) for p in cls.params()],
            "needs": nothing,
        }
        for kind in OF_MODEL
        for name, cls in registry(kind).items()
    ]


def _description(kind: str, name: str, cls: Any) -> dict[str, Any]:
    """The description of any part, and what its authors measured."""
    return {
        "kind": kind,
        "name": name,
        "title": cls.title,
        "idea": idea(cls),
        "source": cls.source,
        "headline": method_results()["headlines"].get(kind, {}).get(name, ""),
    }


def idea(cls: type) -> str:
    """A sentence on what a part does: the first line of its file, without the name in front."""
    first = " ".join((sys.modules[cls.__module__].__doc__ or "").split("\n\n")[0].split())
    said = first.partition(": ")[2] or first
    return said[:1].upper() + said[1:]


def heads(part: Any) -> list[str]:
    """The trained heads that a part reads, by the folder that it asks for on a model without any."""
    from decodescope.engine.core.spec import ModelSpec
    from decodescope.engine.session.method import Method

    bare = ModelSpec("bare", n_layers=4, n_heads=1, n_kv_heads=1, head_dim=8, d_model=8, d_ff=8, vocab=8)
    why = [
        part.refuse(Method(**{part.kind: part}), bare),
        *(part.refuse_model(role, bare) for role in part.lanes),
    ]
    return sorted({name for text in why if text for name in re.findall(r"heads/(\w+)", text)})


@cache
def missing_heads(kind: str, name: str) -> tuple[str, ...]:
    """The trained heads that a part reads, if no shipped model has all that it needs; else none."""
    from decodescope.engine.core.component import registry

    part: Any = registry(kind)[name]()
    return tuple(x for x in heads(part) if x not in _shipped_heads())


@cache
def _shipped_heads() -> frozenset[str]:
    """The kinds of trained heads that some shipped model has."""
    return frozenset(path.name for path in BOOK.parent.glob("models/*/heads/*") if path.is_dir())


def part_title(kind: str, name: str, title: str) -> str:
    """A part's title in a list, with what is missing before it can run with a shipped model."""
    missing = " and ".join(f"heads/{x}" for x in missing_heads(kind, name))
    return f"{title or name} (needs {missing}, not shipped)" if missing else title or name


def knob_record(param: Any) -> dict[str, Any]:
    """A Param as plain data."""
    said = {
        f.name: getattr(param, f.name) for f in dataclasses.fields(param) if f.name not in ("step", "before")
    }
    item, default = param.item and param.item.__name__, param.record(param.default)
    kind = "list" if item else param.type.__name__
    return {**said, "type": kind, "item": item, "default": default, "choices": list(param.choices)}
