"""The commands that list what there is: `methods`, `models`, `hardware`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from .report import note, say_json, table

PROFILED = ("float32", "bfloat16")
BOOK = Path(__file__).resolve().parent.parent / "assets" / "methods.json"


def methods(args: argparse.Namespace) -> int:
    """Print every part of every kind, with its knobs."""
    found = parts()
    if args.json:
        say_json({"methods": found})
        return 0
    for kind in dict.fromkeys(part["kind"] for part in found):
        print(f"{kind}")
        for part in (x for x in found if x["kind"] == kind):
            lossy = "" if part["lossless"] else " [changes the output]"
            needs = "".join(f" [needs --{role}]" for role in part["needs"]["models"])
            print(f"  {part['name']}: {part['title']}{lossy}{needs}")
            for knob in part["params"]:
                print(f"      {knob['name']} = {knob['default']}  {reach(knob)}{knob['help']}")
    return 0


def reach(knob: dict[str, Any]) -> str:
    """The values that a knob takes, in words."""
    if knob["choices"]:
        return f"({', '.join(map(str, knob['choices']))}) "
    if knob["low"] is None and knob["high"] is None:
        return f"({knob['unit']}) " if knob["unit"] else ""
    low, high = ("" if x is None else f"{x:g}" for x in (knob["low"], knob["high"]))
    return f"({low} to {high}{' ' + knob['unit'] if knob['unit'] else ''}) " if high else f"(from {low}) "


@cache
def book() -> dict[str, Any]:
    """What is told of the parts beside what they declare. headlines: kind -> name -> what the authors measured; measured:
    the `command`, and `figures`, kind -> name -> [tokens a pass, times plain decoding], of the shipped models."""
    read: dict[str, Any] = json.loads(BOOK.read_text(encoding="utf-8"))
    return read


def parts() -> list[dict[str, Any]]:
    """Every part as plain data. lossless: whether a method that differs from plain decoding in this part alone keeps the
    target's law under its sampler; of a rule, whether it does for every draft."""
    from ..engine.component import KINDS, registry
    from ..engine.method import Method

    headlines, figures = book()["headlines"], book()["measured"]["figures"]
    made = []
    for kind in KINDS:
        for name, cls in registry(kind).items():
            part: Any = cls()
            made.append(
                {
                    "kind": kind,
                    "name": name,
                    "title": cls.title,
                    "idea": idea(cls),
                    "source": cls.source,
                    "headline": headlines.get(kind, {}).get(name, ""),
                    "measured": dict(zip(("tau", "ratio"), figures.get(kind, {}).get(name, ()), strict=False)) or None,
                    "lossless": part.lossless if kind == "acceptance" else Method(**{kind: part}).lossless,
                    "params": [knob(p) for p in cls.params()],
                    "needs": {
                        "attention": part.needs.attention,
                        "hidden": sorted(map(str, part.needs.hidden)),
                        "models": list(getattr(part, "lanes", ())),
                        "heads": heads(part),
                    },
                }
            )
    return made


def idea(cls: type) -> str:
    """What a part does, in a sentence: the first line of its file, without the name in front."""
    first = " ".join((sys.modules[cls.__module__].__doc__ or "").split("\n\n")[0].split())
    said = first.partition(": ")[2] or first
    return said[:1].upper() + said[1:]


def heads(part: Any) -> list[str]:
    """The trained heads that a part reads, by the folder that it misses in a model without any."""
    from ..engine.method import Method
    from ..engine.spec import ModelSpec

    bare = ModelSpec("bare", n_layers=4, n_heads=1, n_kv_heads=1, head_dim=8, d_model=8, d_ff=8, vocab=8)
    why = [part.refuse(Method(**{part.kind: part}), bare), part.lacks(bare) if hasattr(part, "lacks") else None]
    return sorted({name for text in why if text for name in re.findall(r"heads/(\w+)", text)})


def knob(param: Any) -> dict[str, Any]:
    """A Param as plain data."""
    said = {f.name: getattr(param, f.name) for f in dataclasses.fields(param) if f.name != "step"}
    return {**said, "type": param.type.__name__, "choices": list(param.choices)}


def models(args: argparse.Namespace) -> int:
    """Print the models that need no download."""
    from ..engine.load import models as shipped

    found = [{**x, "path": str(x["path"])} for x in shipped()]
    if args.json:
        say_json({"models": found})
        return 0
    rows = [[x["name"], f"{x['params'] / 1e6:.1f} M", f"{x['context']:,} tokens", x["path"]] for x in found]
    print(table(("name", "parameters", "context", "path"), rows))
    return 0


def hardware(args: argparse.Namespace) -> int:
    """Print what was measured of this machine; it is measured now where it was not before."""
    import torch

    from ..engine.hardware import DEVICES
    from ..engine.measure import profile_here
    from .places import data_folder

    place = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if not args.json:
        note("Measuring this machine where that was not done before; this takes some seconds.")
    kept = [profile_here(dtype, place, data_folder(args.data), args.refresh) for dtype in PROFILED]
    here = {dtype: profile.record() for dtype, profile in zip(PROFILED, kept, strict=True)}
    if args.json:
        say_json({"here": here, "known": {name: profile.record() for name, profile in DEVICES.items()}})
        return 0
    rows = [
        [p.name, f"{p.peak(dtype) / 1e9:,.0f}", f"{p.bandwidth / 1e9:.1f}", cached(p), f"{p.launch_us:.1f}"]
        for dtype, p in zip(PROFILED, kept, strict=True)
    ]
    print(table(("machine", "GFLOP/s", "memory GB/s", "cache GB/s", "launch us"), rows))
    print(f"\nAlso known, from published figures: {', '.join(DEVICES)}.")
    return 0


def cached(profile: Any) -> str:
    """The bandwidth of the processor's cache in GB/s, or a dash."""
    return "-" if profile.cache_bandwidth is None else f"{profile.cache_bandwidth / 1e9:.1f}"
