"""The command line: runs the command, and reports a refusal in one sentence. Commands import heavy modules themselves."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from decodescope.app.basis.arguments import BAD_INPUT, add_weight_transforms
from decodescope.app.basis.extras import check_extras
from decodescope.app.basis.own_parts import load_own_parts
from decodescope.app.basis.parser import build_parser
from decodescope.app.basis.refusal import explain_storage_fault, sentence
from decodescope.app.basis.termination import terminate_like_interrupt
from decodescope.app.runs.threads import restore_threads
from decodescope.engine.core.refusal import Refusal

FAILED = 1
INTERRUPTED = 130
PIPE_CLOSED = 141
TERMINATED = 143


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line with these arguments; return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):  # another kind of stream, or a closed one
            stream.reconfigure(errors="replace")  # type: ignore[union-attr] # a terminal that knows no umlaut gets a ?
    with terminate_like_interrupt() as terminated:
        code = _code_of(argv)
    return TERMINATED if terminated and code == INTERRUPTED else code


def _code_of(argv: Sequence[str] | None) -> int:
    """The exit code of the command, also where it is interrupted or its reader goes away."""
    try:
        code = _run_command(argv)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # the reader of our output is gone; redirect it, so that closing it at exit reports nothing either
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED


def choose_kernels(name: str) -> None:
    """Choose the arithmetic of the passes of this process; raises Refusal if it cannot be used."""
    from decodescope.engine.kernels.choice import KernelError, use_kernels

    try:
        use_kernels(name)
    except KernelError as error:
        raise Refusal(str(error)) from None


def _run_command(argv: Sequence[str] | None) -> int:
    import importlib

    try:
        commands = build_parser()
        args = commands.parse_args(argv)
        if args.command is None:
            commands.print_help()
            return 0
        check_extras(args)
        load_own_parts(args.parts)
        add_weight_transforms(args)
        if getattr(args, "kernels", None) is not None:
            choose_kernels(args.kernels)
        module, function = args.home
        home = importlib.import_module(f".{module}", __package__)
        with restore_threads():
            code: int = getattr(home, function)(args)
        return code
    except SystemExit as leave:  # from argparse, which has printed the reason
        return leave.code if isinstance(leave.code, int) else BAD_INPUT
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except Refusal as error:
        print(sentence(error), file=sys.stderr)
        return BAD_INPUT
    except Exception as error:
        if os.environ.get("DECODESCOPE_TRACEBACK"):
            raise
        if refused := explain_storage_fault(error):
            print(refused, file=sys.stderr)
            return FAILED
        what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        print(
            f"Something went wrong inside ({what}); DECODESCOPE_TRACEBACK=1 shows where, please report it.",
            file=sys.stderr,
        )
        return FAILED
