"""The command `doctor`: whether DecodeScope will work on this machine, in plain words."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from decodescope.app.limits import Limits
from decodescope.app.places import data_folder, writable
from decodescope.engine.core.refusal import Refusal

from .output import say_json, size
from .processors import given_back

State = Literal["good", "note", "bad"]
NEEDED = ("gradio", "plotly", "transformers", "tokenizers", "safetensors", "jinja2", "anywidget", "ipywidgets", "jupyterlab")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "microsoft-edge", "firefox", "safari")
FREE_BYTES = Limits().free << 20  # under this the lab accepts no runs, unless --free says otherwise


class Finding(NamedTuple):
    """What one look found. "bad": something will not work; "note": it will, and this is good to know."""

    what: str
    state: State
    words: str


def doctor(args: argparse.Namespace) -> int:
    """Look at everything and say it; exit code 1 if something will not work."""
    checks = [x for look in LOOKS for x in look(args)]
    ok = all(x.state != "bad" for x in checks)
    if args.json:
        say_json({"ok": ok, "findings": [x._asdict() for x in checks]})
        return 0 if ok else 1
    for x in checks:
        print(f"{'NOT OK' if x.state == 'bad' else 'ok' if x.state == 'good' else 'note':>6}  {x.what}: {x.words}")
    print("\nEverything that the lab needs is here." if ok else "\nWhat is marked NOT OK has to be put right first.")
    return 0 if ok else 1


def program(args: argparse.Namespace) -> Iterator[Finding]:
    """Versions of ourselves and of Python, and what else has to be installed."""
    yield Finding("decodescope", "good", importlib.metadata.version("decodescope"))
    yield Finding("Python", "good", f"{platform.python_version()} at {sys.executable}")
    gone = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    words = f"missing: {', '.join(gone)}; install them with pip" if gone else f"all {len(NEEDED)} are installed"
    yield Finding("packages", "bad" if gone else "good", words)


def arithmetic(args: argparse.Namespace) -> Iterator[Finding]:
    """torch, its threads and devices, and what bfloat16 is worth here."""
    import torch

    cuda = torch.cuda.is_available()
    build = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "for the CPU alone"
    yield Finding("torch", "good", f"{torch.__version__}, built {build}")
    names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    yield Finding("GPU", "good" if cuda else "note", names if cuda else "none that torch can use; models run on the CPU")
    yield threads()
    yield compiler()
    gain = bfloat16_gain()
    if gain > 1.2:
        words = f"a matrix product is {gain:.1f} times as fast as in float32: --dtype bfloat16 is worth a try"
    else:
        words = f"a matrix product runs at {gain:.2f} times the speed of float32: stay with float32 on this processor"
    yield Finding("bfloat16", "good" if gain > 1.2 else "note", words)


def threads() -> Finding:
    """In how many threads passes run, who said so, and what passes of a shipped model take in each number."""
    from decodescope.engine.load import load, models
    from decodescope.engine.timing.threads import Threads

    chosen, rows = Threads(), models()
    if chosen.fixed or not rows:
        why = f"as {chosen.fixed} says" if chosen.fixed else "as torch has it"
        words = f"{chosen.number} of {os.cpu_count()} processors, {why}; --threads N is another number"
        return Finding("threads", "good", words)
    name = rows[0]["name"]
    with given_back():
        chosen.choose(load(name, device="cpu").decoder)
    said = chosen.record()
    took = ", ".join(f"{one:.1f} and {many:.1f} ms in {n}" for n, (one, many) in said["ms"].items())
    passes = f"a pass of {name} over {said['rows'][0]} and {said['rows'][1]} rows takes {took}" if took else "there is one"
    words = f"{chosen.number} of {os.cpu_count()} processors, by timing: {passes}; --threads N fixes the number"
    return Finding("threads", "good", words)


def compiler() -> Finding:
    """Whether --compile can work here, and which packages are there already."""
    from decodescope.engine.model.compiled import ENDING, CompileError, usual
    from decodescope.engine.model.compiled import compiler as path

    packages = [*usual().glob(f"*{ENDING}")]
    many = f"{len(packages)} kept in {usual()}" if packages else "none is made yet"
    try:
        return Finding("compiler", "good", f"{path('a model')}, for --compile; packages: {many}")
    except CompileError as error:
        return Finding("compiler", "note", f"{error} Packages: {many}.")


def bfloat16_gain(n: int = 512, rounds: int = 25) -> float:
    """How many times faster a square product is in bfloat16 than in float32 on the CPU, by their best times."""
    import torch

    best = []
    for dtype in (torch.float32, torch.bfloat16):
        a, times = torch.ones(n, n, dtype=dtype, device="cpu"), []
        for _ in range(rounds):
            began = time.perf_counter()
            a @ a
            times.append(time.perf_counter() - began)
        best.append(min(times))
    return best[0] / best[1]


def assets(args: argparse.Namespace) -> Iterator[Finding]:
    """The shipped models and example traces."""
    from decodescope.engine.load import SHIPPED, models

    rows = models()
    names = ", ".join(f"{x['name']} ({x['params'] / 1e6:.1f} M parameters)" for x in rows)
    yield Finding("models", "good" if rows else "bad", names or f"none in {SHIPPED}; install the package again")
    traces = list((SHIPPED.parent / "traces").glob("*.dstrace"))
    words = f"{len(traces)} examples" if traces else "no examples; the page opens without one"
    yield Finding("traces", "good" if traces else "note", words)


def storage(args: argparse.Namespace) -> Iterator[Finding]:
    """Whether the user's data can be written, and how much room is left."""
    folder = data_folder(args.data)
    try:
        room = shutil.disk_usage(writable(folder)).free
    except (OSError, Refusal) as error:
        yield Finding("data", "bad", str(error).rstrip("."))
        return
    used = size(sum(x.stat().st_size for x in folder.rglob("*") if x.is_file()))
    enough, lacks = room >= FREE_BYTES, f"; the lab needs {size(FREE_BYTES)} to accept runs, or a lower --free"
    words = f"{folder} can be written, holds {used}, and {size(room)} are free"
    yield Finding("data", "good" if enough else "bad", words + ("" if enough else lacks))


def page(args: argparse.Namespace) -> Iterator[Finding]:
    """The port that the lab listens on, and a browser to open it with."""
    with socket.socket() as probe:
        if os.name != "nt":  # there this would let two programs share a port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", args.port))
            yield Finding("port", "good", f"{args.port} is free")
        except OSError:
            yield Finding("port", "note", f"{args.port} is taken, perhaps by the lab itself; another one: --port N")
    try:
        webbrowser.get()
        yield Finding("browser", "good", "the system has one that can be opened")
    except webbrowser.Error:
        named = os.environ.get("DECODESCOPE_BROWSER", "")
        here = named if Path(named).is_file() else next((x for x in BROWSERS if shutil.which(x)), None)
        words = f"{here} is installed and is not opened by itself" if here else "none was found"
        yield Finding("browser", "note", f"{words}; open the address that `decodescope app` prints")


LOOKS: tuple[Callable[[argparse.Namespace], Iterator[Finding]], ...] = (program, arithmetic, assets, storage, page)
