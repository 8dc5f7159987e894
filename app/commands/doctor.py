"""The command `doctor`: whether DecodeScope will work on this machine, in plain words."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import socket
import sys
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from decodescope import __version__
from decodescope.app.basis.limits import LabLimits
from decodescope.app.basis.storage import data_folder, ensure_writable
from decodescope.app.runs.threads import restore_threads
from decodescope.engine.core.extras import EXTRAS, install_command, missing_packages
from decodescope.engine.core.refusal import Refusal

from .shared.output import format_bytes, print_json

if TYPE_CHECKING:
    from decodescope.engine.timing.instructions import Instructions

State = Literal["good", "note", "bad"]
Rows = Mapping[int, float]  # number of rows -> microseconds
NEEDED = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "huggingface_hub",
    "jinja2",
    "numpy",
    "orjson",
    "bm25s",
    "lark",
    "llguidance",
    "platformdirs",
    "tqdm",
)
MARKS = {"bad": "NOT OK", "good": "ok"}  # marks of a finding's state; of any other: note
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "microsoft-edge", "firefox", "safari")
WORTH = 1.2  # speedup over float32 from which bfloat16 is recommended
FREE_BYTES = LabLimits().free << 20  # below this the lab accepts no runs, unless --free says otherwise


class DoctorFinding(NamedTuple):
    """The finding of one check. "bad": something will not work; "note": it works, and this is good to know."""

    what: str
    state: State
    words: str


def doctor(args: argparse.Namespace) -> int:
    """Run all checks and print the findings; exit code 1 if something will not work."""
    checks = [x for look in LOOKS for x in look(args)]
    ok = all(x.state != "bad" for x in checks)
    if args.json:
        print_json({"ok": ok, "findings": [x._asdict() for x in checks]})
        return 0 if ok else 1
    for x in checks:
        print(f"{MARKS.get(x.state, 'note'):>6}  {x.what}: {x.words}")
    print(
        "\nEverything that the lab needs is here."
        if ok
        else "\nWhat is marked NOT OK has to be put right first."
    )
    return 0 if ok else 1


def check_installation(args: argparse.Namespace) -> Iterator[DoctorFinding]:
    """Versions of DecodeScope and Python, and packages that still have to be installed."""
    yield DoctorFinding("decodescope", "good", __version__)
    yield DoctorFinding("Python", "good", f"{platform.python_version()} at {sys.executable}")
    gone = missing_packages(NEEDED)
    words = (
        f"missing: {', '.join(gone)}; install them with pip" if gone else f"all {len(NEEDED)} are installed"
    )
    yield DoctorFinding("packages", "bad" if gone else "good", words)
    for extra, needs in EXTRAS.items():
        gone = missing_packages(needs)
        words = (
            f"missing: {', '.join(gone)}; install with {install_command(extra)}"
            if gone
            else f"all {len(needs)} are installed"
        )
        yield DoctorFinding(f"packages [{extra}]", "note" if gone else "good", words)


def check_torch(args: argparse.Namespace) -> Iterator[DoctorFinding]:
    """torch, its threads and devices, the processor's instructions, and the gain of bfloat16 here."""
    import torch

    from decodescope.engine.timing.instructions import read_instructions, row_us

    cuda = torch.cuda.is_available()
    build = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "for the CPU alone"
    yield DoctorFinding("torch", "good", f"{torch.__version__}, built {build}")
    names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    yield DoctorFinding(
        "GPU", "good" if cuda else "note", names if cuda else "none that torch can use; models run on the CPU"
    )
    yield threads_finding()
    has = read_instructions()
    yield instructions_finding(has)
    yield bfloat16_finding(has, row_us(torch.float32), row_us(torch.bfloat16))


def instructions_finding(has: Instructions) -> DoctorFinding:
    """Which kernels torch runs, and the processor features missing for better ones."""
    runs, forbids = f"torch runs its {has.kernels} kernels", ", ".join(has.limits)
    if has.kernels == "AVX512" or has.avx512 is None:
        return DoctorFinding(
            "instructions", "good", runs + ("" if has.kernels == "AVX512" else f" for {has.architecture}")
        )
    if has.avx512:
        why = f"{forbids} in the environment forbids it" if forbids else "this build of torch does not use it"
        return DoctorFinding("instructions", "note", f"{runs} although the processor has AVX-512: {why}")
    lacks = "AVX-512" if has.kernels == "AVX2" else "AVX2 and no AVX-512"
    width = ", which compute 8 numbers of float32 at once instead of 16" if has.kernels == "AVX2" else ""
    return DoctorFinding("instructions", "note", f"{runs}{width}: the processor has no {lacks}")


def bfloat16_finding(has: Instructions, float32: Rows, bfloat16: Rows) -> DoctorFinding:
    """Whether bfloat16 products run in hardware, and the cost of verifying drafts in it.
    It is derived from the time of a product in each type: {number of rows: microseconds}."""
    names, forbids = ", ".join(has.bfloat16 or ()), ", ".join(has.limits)
    if names:
        said = f"products run in hardware ({names})" + (
            f", unless {forbids} in the environment forbids it" if forbids else ""
        )
    else:
        said = (
            "no products in hardware"
            if has.bfloat16 == ()
            else "torch does not say whether products run in hardware"
        )
    one, many = min(bfloat16), max(bfloat16)
    times = bfloat16[many] / bfloat16[one]
    usual = float32[many] / float32[one]
    gain = float32[many] / bfloat16[many]
    speed = f"{gain:.1f} times as fast as" if gain >= 1 else f"{1 / gain:.1f} times as long as"
    said += f". Measured: a product of {many} rows takes {times:.1f} times as long as one of {one} row (float32: {usual:.1f}), "
    said += f"{speed} in float32. "
    if gain > WORTH:
        return DoctorFinding("bfloat16", "good", said + "Try --dtype bfloat16.")
    if times < WORTH * usual:
        return DoctorFinding(
            "bfloat16", "note", said + "It halves the memory of the weights and saves no time here."
        )
    said += f"A pass that checks {many - one} drafted tokens costs about as much as {times:.1f} passes of one token. "
    return DoctorFinding(
        "bfloat16", "note", said + "Use --dtype float32 where drafts are checked; see docs/cli.md."
    )


def threads_finding() -> DoctorFinding:
    """The number of threads of a pass, who set it, and the time of a shipped model's passes in each number."""
    from decodescope.engine.decoding.shared.thread_count import ThreadCount
    from decodescope.engine.session.load import load, shipped_models

    chosen, rows = ThreadCount(), shipped_models()
    if chosen.fixed or not rows:
        why = f"as {chosen.fixed} says" if chosen.fixed else "as torch has it"
        words = f"{chosen.number} of {os.cpu_count()} processors, {why}; --threads N is another number"
        return DoctorFinding("threads", "good", words)
    name = rows[0]["name"]
    with restore_threads():
        chosen.choose(load(name, device="cpu").decoder)
    said = chosen.record()
    took = ", ".join(f"{one:.1f} and {many:.1f} ms in {n}" for n, (one, many) in said["ms"].items())
    passes = (
        f"a pass of {name} over {said['rows'][0]} and {said['rows'][1]} rows takes {took}"
        if took
        else "there is one"
    )
    words = (
        f"{chosen.number} of {os.cpu_count()} processors, by timing: {passes}; --threads N fixes the number"
    )
    return DoctorFinding("threads", "good", words)


def check_assets(args: argparse.Namespace) -> Iterator[DoctorFinding]:
    """The shipped models and example traces."""
    from decodescope.engine.session.load import SHIPPED, shipped_models

    rows = shipped_models()
    names = ", ".join(f"{x['name']} ({x['params'] / 1e6:.1f} M parameters)" for x in rows)
    yield DoctorFinding(
        "models", "good" if rows else "bad", names or f"none in {SHIPPED}; install the package again"
    )
    traces = list((SHIPPED.parent / "traces").glob("*.dstrace"))
    words = f"{len(traces)} examples" if traces else "no examples; the page opens without one"
    yield DoctorFinding("traces", "good" if traces else "note", words)


def check_storage(args: argparse.Namespace) -> Iterator[DoctorFinding]:
    """Whether the user's data folder is writable, and how much space is left."""
    folder = data_folder(args.data)
    try:
        room = shutil.disk_usage(ensure_writable(folder)).free
    except (OSError, Refusal) as error:
        yield DoctorFinding("data", "bad", str(error).rstrip("."))
        return
    used = format_bytes(sum(x.stat().st_size for x in folder.rglob("*") if x.is_file()))
    enough = room >= FREE_BYTES
    lacks = f"; the lab needs {format_bytes(FREE_BYTES)} to accept runs, or a lower --free"
    words = f"{folder} can be written, holds {used}, and {format_bytes(room)} are free"
    yield DoctorFinding("data", "good" if enough else "bad", words + ("" if enough else lacks))


def check_port_and_browser(args: argparse.Namespace) -> Iterator[DoctorFinding]:
    """The port that the lab listens on, and a browser to open it with."""
    with socket.socket() as probe:
        if os.name != "nt":  # on Windows this would let two programs share a port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", args.port))
            yield DoctorFinding("port", "good", f"{args.port} is free")
        except OSError:
            yield DoctorFinding(
                "port", "note", f"{args.port} is taken, perhaps by the lab itself; another one: --port N"
            )
    try:
        webbrowser.get()
        yield DoctorFinding("browser", "good", "the system has one that can be opened")
    except webbrowser.Error:
        named = os.environ.get("DECODESCOPE_BROWSER", "")
        here = named if Path(named).is_file() else next((x for x in BROWSERS if shutil.which(x)), None)
        words = f"{here} is installed and is not opened by itself" if here else "none was found"
        yield DoctorFinding("browser", "note", f"{words}; open the address that `decodescope app` prints")


LOOKS: tuple[Callable[[argparse.Namespace], Iterator[DoctorFinding]], ...] = (
    check_installation,
    check_torch,
    check_assets,
    check_storage,
    check_port_and_browser,
)
