"""The command `bench`: compare methods with transformers on this machine, on questions, or measure where their time goes."""

from __future__ import annotations

import argparse
from typing import Any

from decodescope.app.basis.arguments import bench_models, option
from decodescope.engine.core.refusal import Refusal

from ..shared.bench import run_with_threads

# option -> its default value; None: an option of the other measurements
ON_QUESTIONS = {
    "questions": None, "short": False, "method": None, "seed": 0, "out": None, "resume": False, "draft2": None, "draft3": None,
    "role": None,
}  # fmt: skip
USUAL: dict[str, dict[str, Any]] = {
    "decode": {
        "new_tokens": 128,
        "repeats": 5,
        "prompt_file": None,
        "trace_level": "summary",
    },
    "labbench": {**ON_QUESTIONS, "new_tokens": None, "temperature": 0.0, "batch": 1},
    "speculation": {**ON_QUESTIONS, "new_tokens": 40, "repeats": 3, "temperature": 0.8},
    "kv": {
        "new_tokens": 128,
        "questions": None,
        "short": False,
        "method": None,
        "out": None,
        "resume": False,
    },
    "depth": {
        "questions": None,
        "short": False,
        "method": None,
        "seed": 0,
        "out": None,
        "resume": False,
        "new_tokens": None,
    },
    "cascade": {
        "questions": None,
        "short": False,
        "method": None,
        "seed": 0,
        "out": None,
        "resume": False,
        "new_tokens": None,
    },
    "cloze": {"short": False, "out": None},
    "words": {
        "questions": None,
        "short": False,
        "method": None,
        "seed": 0,
        "out": None,
        "resume": False,
        "new_tokens": None,
        "role": None,
    },
    "models": {
        "questions": None,
        "short": False,
        "method": None,
        "out": None,
        "resume": False,
        "new_tokens": None,
        "random": None,
    },
    "prompts": {
        "questions": None,
        "short": False,
        "method": None,
        "seed": 0,
        "out": None,
        "resume": False,
        "role": None,
    },
    "parallel": {"short": False, "method": None, "seed": 0, "out": None, "resume": False},
}


def bench(args: argparse.Namespace) -> int:  # noqa: C901
    """Measure and print."""
    mine = USUAL[args.what]
    own = bench_models(args)
    args.model = args.model or own["model"]
    for name in {x for usual in USUAL.values() for x in usual}:
        if name not in mine and getattr(args, name) is not None:
            others = " and ".join(x for x in USUAL if name in USUAL[x])
            raise Refusal(
                f"{option(name)} is an option of bench {others}: leave it out of bench {args.what}."
            )
        if name in mine and getattr(args, name) is None:
            setattr(args, name, mine[name])
    args.draft = args.draft or own.get("draft")
    args.draft = None if args.draft == "none" else args.draft
    if args.what == "decode":
        from .decode import decode

        return decode(args)
    if args.what == "labbench":
        from .labbench import labbench

        return run_with_threads(args, labbench)
    if args.what == "kv":
        from .kv import kv

        return run_with_threads(args, kv)
    if args.what == "depth":
        from .depth import depth

        return run_with_threads(args, depth)
    if args.what == "cascade":
        from .cascade import cascade

        return run_with_threads(args, cascade)
    if args.what == "cloze":
        from .cloze import cloze

        return run_with_threads(args, cloze)
    if args.what == "words":
        from .words import words

        return run_with_threads(args, words)
    if args.what == "models":
        from .models import models

        return run_with_threads(args, models)
    if args.what == "prompts":
        from .prompts import prompts

        return run_with_threads(args, prompts)
    if args.what == "parallel":
        from .parallel import parallel

        return run_with_threads(args, parallel)
    from .speculation import speculation

    return run_with_threads(args, speculation)
