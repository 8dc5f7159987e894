"""Arguments: the types of command-line arguments, and the refusal of invalid ones."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from decodescope.engine.core.paths import PathRefusal, expand_path, shorten_path
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.core.roles import TARGET

BAD_INPUT = 2  # exit code
DTYPES = ("float32", "bfloat16", "float16", "float64")  # types in which models are loaded
PATHS = (
    "DIR",
    "F",
    "FILE",
    "OUT",
    "TRACE",
)  # placeholder names of options and arguments that are files or folders


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one sentence with exit code 2.
    An option shown as a file or folder (PATHS) is parsed as a path. An option shown as M is parsed as a model name."""

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """As in argparse."""
        return super().add_argument(*names, **with_path_type(options))

    def add_mutually_exclusive_group(self, **options: Any) -> Any:
        """As in argparse; options added to the group are read in the same way."""
        group = super().add_mutually_exclusive_group(**options)
        add = group.add_argument
        group.add_argument = lambda *names, **more: add(*names, **with_path_type(more))  # type: ignore[method-assign] # as above
        return group

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in argparse; an empty word is shown in quotes."""
        read, rest = self.parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(x if x.strip() else repr(x) for x in rest)}")
        return read

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments."""
        text = " ".join(message.split()).rstrip(".")
        print(f"{text[:1].upper()}{text[1:]}; see {self.prog} --help.", file=sys.stderr)
        raise SystemExit(BAD_INPUT)


def option(name: str) -> str:
    """The command-line option that sets `name`: words are joined by hyphens there, by underscores in Python."""
    return f"--{name.replace('_', '-')}"


def with_path_type(options: dict[str, Any]) -> dict[str, Any]:
    """The options of an argument, with the type of a path if its placeholder is one."""
    if options.get("metavar") in PATHS:
        kind = path_argument
    elif options.get("metavar") == "M":
        kind = model_argument
    else:
        kind = None
    return options if kind is None else {"type": kind, **options}


def int_in_range(low: int, high: int) -> Callable[[str], int]:
    """A type for argparse: a whole number from low to high."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,20}", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} must be a whole number from {low} to {high}")
        return int(text)

    return read


def float_in_range(low: float, high: float) -> Callable[[str], float]:
    """A type for argparse: a number from low to high."""

    def read(text: str) -> float:
        if not re.fullmatch(r"\+?(\d{1,9}(\.\d{0,9})?|\.\d{1,9})", text) or not low <= float(text) <= high:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} must be a number from {low:g} to {high:g}")
        return float(text)

    return read


def parameter_count(text: str) -> int:
    """A type for argparse: how many parameters, such as 300M, from a million to 10 thousand millions."""
    match = re.fullmatch(r"(\d{1,11})([MB]?)", text)
    count = int(match[1]) * {"": 1, "M": 10**6, "B": 10**9}[match[2]] if match else 0
    if not 10**6 <= count <= 10**10:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} must be from 1M to 10B parameters, such as 300M")
    return count


def layer_list(text: str) -> list[int]:
    """A type for argparse: numbers of layers with commas between them."""
    if not re.fullmatch(r"\d{1,6}(,\d{1,6}){0,999}", text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} must be numbers of layers, such as 0,3")
    return sorted({int(x) for x in text.split(",")})


def forced_verdict(text: str) -> tuple[int, bool]:
    """A type for argparse: accept:NODE or reject:NODE."""
    match = re.fullmatch(r"(accept|reject):(\d{1,9})", text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} must be accept:NODE or reject:NODE, such as accept:3"
        )
    return int(match[2]), match[1] == "accept"


def path_argument(text: str) -> str:
    """A type for argparse: the name of a file or folder, or -; ~ is written out."""
    try:
        there = expand_path(text)
    except PathRefusal as error:
        raise argparse.ArgumentTypeError(str(error).rstrip(".")) from None
    return str(there) if text.startswith("~") else text


def model_argument(text: str) -> str:
    """A type for argparse: a model's name, with its adapter and transforms. Whether the model exists is checked later."""
    base = text.partition("@")[0]
    try:
        expand_path(base.partition("+")[0] or base)
    except PathRefusal as error:
        raise argparse.ArgumentTypeError(
            f"{shorten_path(text)!r} is no name of a model: {error.why}"
        ) from None
    return text


def name_and_path(text: str) -> tuple[str, Path]:
    """A type for argparse: NAME=PATH."""
    name, sign, path = text.partition("=")
    if not (name and sign and path):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} must be NAME=PATH, such as medusa=./heads/medusa")
    return name, Path(path_argument(path))


def role_and_model(text: str) -> tuple[str, str]:
    """A type for argparse: ROLE=NAME."""
    match = re.fullmatch(r"([a-z]\w{0,39})=(.+)", text)
    if match is None or match[1] == TARGET:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} must be ROLE=NAME, such as large=lab")
    return match[1], model_argument(match[2])


def device(text: str) -> str:
    """A type for argparse: cpu, cuda, cuda:N or mps."""
    if not re.fullmatch(r"cpu|mps|cuda(:\d{1,2})?", text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no device: use cpu, cuda, cuda:N or mps")
    return text


def bench_models(args: argparse.Namespace) -> dict[str, str]:
    """The models that `bench` uses if none are named, by their options.
    The draft model is for lab alone, whatever transforms lab has."""
    model = {"parallel": "lab-mdm", "cloze": "lab-mdm+cloze"}.get(args.what, "lab")
    given = args.model or model
    return {"model": model, **({"draft": "lab-draft"} if given.partition("@")[0] == "lab" else {})}


def add_weight_transforms(args: argparse.Namespace) -> None:
    """Append the transforms of --weights and --draft-weights to the names of their models, as `load` takes them."""
    usual = bench_models(args) if args.command == "bench" else {}
    if args.command == "app":
        usual = {"model": "lab"}
    for name, of in (("weights", "model"), ("draft_weights", "draft")):
        if text := getattr(args, name, None):
            if (changed := getattr(args, of, None) or usual.get(of)) is None:
                raise Refusal(f"{option(name)} is given and no --{of}: name the model that it is to change.")
            from decodescope.engine.core.reference import with_weights

            setattr(args, of, str(with_weights(changed, text)))
