"""The command `check`: whether a part fulfils the contracts of its kind, on toy models, in less than a minute."""

from __future__ import annotations

import argparse
import time

from decodescope.engine.core.component import FOLDERS, build, registry
from decodescope.engine.core.params import ParamError, did_you_mean
from decodescope.testing.contracts import contracts
from decodescope.testing.contracts.exact_law import NotCounted

from .shared.output import print_json

State = str  # "kept", "broken" or "not counted"


def check(args: argparse.Namespace) -> int:
    """Run the contracts of a part and print the result of each; exit code 1 if one is broken. Raises ParamError."""
    kind = _find_kind(args.name, args.kind)
    settings = dict(_parse_setting(text) for text in args.set)
    build(kind, args.name, settings)
    rows = []
    for contract in contracts(kind, args.name, settings):
        started = time.perf_counter()
        state, words = _outcome(contract.run)
        rows.append(
            {
                "contract": contract.title,
                "state": state,
                "why": words,
                "seconds": round(time.perf_counter() - started, 1),
            }
        )
        if not args.json:
            print(f"{state:>11}  {contract.title}" + (f"\n{'':>13}{words}" if words else ""), flush=True)
    broken = sum(row["state"] == "broken" for row in rows)
    if args.json:
        print_json({"kind": kind, "name": args.name, "ok": not broken, "contracts": rows})
    else:
        kept = sum(row["state"] == "kept" for row in rows)
        seconds = sum(float(str(row["seconds"])) for row in rows)
        print(
            f"\nThe {kind} {args.name} keeps {kept} of {len(rows)} contracts, {broken} are broken ({seconds:.0f} s)."
        )
    return 1 if broken else 0


def _find_kind(name: str, kind: str | None) -> str:
    """The kind of the part with this name."""
    kinds = [kind] if kind else [x for x in FOLDERS if name in registry(x)]
    if len(kinds) == 1 and name in registry(kinds[0]):
        return kinds[0]
    if len(kinds) > 1:
        raise ParamError(f"{name!r} is the name of a {' and of a '.join(kinds)}: say which with --kind.")
    every = [part for x in FOLDERS for part in registry(x)]
    raise ParamError(
        f"There is no part called {name[:40]!r}.{did_you_mean(name, every)} `decodescope methods` lists them."
    )


def _parse_setting(text: str) -> tuple[str, str]:
    knob, sign, value = text.partition("=")
    if not (knob and sign):
        raise ParamError(f"--set {text[:40]!r}: write knob=value, such as length=4.")
    return knob, value


def _outcome(run: object) -> tuple[State, str]:
    """The result of a contract, and why it is broken."""
    assert callable(run)
    try:
        run()
    except NotCounted as why:
        return "not counted", str(why)
    except AssertionError as why:
        return "broken", " ".join(str(why).split())[:400] or "an assertion of the engine does not hold"
    except Exception as error:
        return "broken", f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
    return "kept", ""
