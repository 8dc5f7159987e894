"""What `doctor` reports about a processor: what it lacks, and what that costs according to measured times."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

import pytest
import torch

from decodescope.app.basis.parser import build_parser
from decodescope.app.commands.doctor import bfloat16_finding, instructions_finding
from decodescope.app.commands.doctor_draft import offer_fork
from decodescope.engine.timing.instructions import ROWS, Instructions, read_instructions, row_us

ZEN4 = Instructions("x86_64", "AVX512", True, ("AVX512_BF16",))
XEON = Instructions("x86_64", "AVX512", True, ("AMX", "AVX512_BF16"))
SKYLAKE = Instructions("x86_64", "AVX512", True, ())
ZEN3 = Instructions("x86_64", "AVX2", False, ())
HELD = Instructions("x86_64", "AVX2", True, ("AVX512_BF16",), ("ATEN_CPU_CAPABILITY=avx2",))
OLD_BUILD = Instructions("x86_64", "DEFAULT", True, ("AVX512_BF16",))
ATOM = Instructions("x86_64", "DEFAULT", False, ())
UNKNOWN = Instructions("x86_64", "AVX2", None, None)
MAC = Instructions("arm64", "DEFAULT", None, ("Arm BF16",))
PI = Instructions("aarch64", "DEFAULT", None, None)

NARROW = "torch runs its AVX2 kernels, which compute 8 numbers of float32 at once instead of 16: the processor has no AVX-512"
ALTHOUGH = "kernels although the processor has AVX-512"
KERNELS = {
    ZEN4: ("good", "torch runs its AVX512 kernels"),
    SKYLAKE: ("good", "torch runs its AVX512 kernels"),
    ZEN3: ("note", NARROW),
    HELD: ("note", f"torch runs its AVX2 {ALTHOUGH}: ATEN_CPU_CAPABILITY=avx2 in the environment forbids it"),
    OLD_BUILD: ("note", f"torch runs its DEFAULT {ALTHOUGH}: this build of torch does not use it"),
    ATOM: ("note", "torch runs its DEFAULT kernels: the processor has no AVX2 and no AVX-512"),
    UNKNOWN: ("good", "torch runs its AVX2 kernels for x86_64"),
    MAC: ("good", "torch runs its DEFAULT kernels for arm64"),
}


@pytest.mark.parametrize("has", KERNELS, ids=str)
def test_doctor_names_the_kernels_and_what_the_processor_lacks(has: Instructions) -> None:
    assert instructions_finding(has) == ("instructions", *KERNELS[has])


PLAIN = {1: 80.0, 8: 190.0}  # float32, microseconds
QUICK, SLOW, EVEN = {1: 50.0, 8: 95.0}, {1: 100.0, 8: 760.0}, {1: 80.0, 8: 180.0}
IN_HARDWARE = (
    "8 rows takes 1.9 times as long as one of 1 row (float32: 2.4), 2.0 times as fast as in float32. "
    "Try --dtype bfloat16."
)
FORBIDDEN = "in hardware (AVX512_BF16), unless ATEN_CPU_CAPABILITY=avx2 in the environment forbids it. "
IN_ROWS = (
    "Measured: a product of 8 rows takes 7.6 times as long as one of 1 row (float32: 2.4), 4.0 times as long as in float32. "
    "A pass that checks 7 drafted tokens costs about as much as 7.6 passes of one token. "
    "Use --dtype float32 where drafts are checked; see docs/cli.md."
)
BFLOAT16 = [
    (ZEN4, QUICK, "good", ["products run in hardware (AVX512_BF16). ", IN_HARDWARE]),
    (XEON, QUICK, "good", ["products run in hardware (AMX, AVX512_BF16). "]),
    (SKYLAKE, SLOW, "note", ["no products in hardware. ", IN_ROWS]),
    (ZEN3, SLOW, "note", ["no products in hardware. ", IN_ROWS]),
    (HELD, SLOW, "note", [FORBIDDEN, IN_ROWS]),
    (PI, SLOW, "note", ["torch does not say whether products run in hardware. ", IN_ROWS]),
    (
        MAC,
        EVEN,
        "note",
        ["products run in hardware (Arm BF16). ", "1.1 times as fast", "saves no time here."],
    ),
]


@pytest.mark.parametrize(("has", "us", "state", "parts"), BFLOAT16, ids=str)
def test_doctor_says_what_bfloat16_costs_here(
    has: Instructions, us: dict[int, float], state: str, parts: list[str]
) -> None:
    """The advice follows the measurements, whatever the processor's instruction sets are named."""
    said = bfloat16_finding(has, PLAIN, us)
    assert said.state == state and all(part in said.words for part in parts), said.words
    assert ("float32 where drafts" in said.words) is (us is SLOW) and ("Try --dtype" in said.words) is (
        us is QUICK
    )


def test_this_processor_is_described_as_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    has = read_instructions()
    assert has.kernels == torch.backends.cpu.get_cpu_capability() and "ONEDNN_MAX_CPU_ISA=AVX2" in has.limits
    assert has.avx512 is not False or has.kernels != "AVX512"


@pytest.mark.parametrize(
    ("machine", "due"),
    [("x86_64", (True, ("AVX512_BF16",))), ("AMD64", (True, ("AVX512_BF16",))), ("arm64", (None, None))],
)
def test_an_older_torch_is_asked_by_its_own_names(
    machine: str, due: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch 2.9 has no list of capabilities; it has one function each for some x86 capabilities."""
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    for name, answer in {"avx512": True, "avx512_bf16": True, "amx_tile": False}.items():
        monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda answer=answer: answer, raising=False)
    monkeypatch.setattr("platform.machine", lambda: machine)
    has = read_instructions()
    assert (has.avx512, has.bfloat16) == due and has.architecture == machine.lower()


def test_no_instruction_is_claimed_where_torch_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"architecture": "riscv64"}, raising=False)
    has = read_instructions()
    assert (has.architecture, has.avx512, has.bfloat16) == ("riscv64", None, None)


def test_products_of_few_rows_are_timed_in_one_thread_and_soon() -> None:
    threads, began = torch.get_num_threads(), time.perf_counter()
    for dtype in (torch.float32, torch.bfloat16):
        assert list(us := row_us(dtype)) == list(ROWS) and 0 < us[1] < 1e6
    # takes 0.1 s on two idle cores
    assert time.perf_counter() - began < 5 and torch.get_num_threads() == threads


def test_a_draft_is_examined_and_the_result_is_printed_and_written(said, tmp_path: Path) -> None:
    (prompts := tmp_path / "prompts.txt").write_text("Once upon a time there was\n", encoding="utf-8")
    given = ["doctor", "draft", "--model", "lab-draft", "--draft", "lab-draft", "--prompts", str(prompts)]
    short = ["--answer-tokens", "6"]
    picture = tmp_path / "doctor.html"
    code, out, _ = said(*given, *short, "--out", str(tmp_path / "doctor.json"), "--html", str(picture))
    assert "How the draft ranks the target" in picture.read_text(encoding="utf-8")
    assert code == 0 and "1. nothing is wrong (healthy, certainty 0.50)" in out
    assert "trace fork" not in out
    record = json.loads((tmp_path / "doctor.json").read_text(encoding="utf-8"))
    assert record["overlap"] == pytest.approx(1) and record["findings"][0]["cause"] == "healthy"
    code, out, err = said(*given, "--head", f"eagle={tmp_path}")
    assert (code, out) == (2, "") and "Give either --draft M or --head NAME=PATH" in err


@pytest.mark.parametrize(
    ("head", "due"),
    [(None, {"then_draft": "REPAIRED"}), ("eagle3", {"then_head": [("eagle3", Path("REPAIRED"))]})],
)
def test_a_broken_draft_comes_with_the_fork_that_tries_its_repair(head: str | None, due: dict) -> None:
    assert offer_fork({"findings": [{"cause": "weak"}]}, head) == []
    *_, command = offer_fork({"findings": [{"cause": "temperature"}]}, head)
    args = vars(build_parser().parse_args(shlex.split(command.replace("--step N", "--step 7"))[1:]))
    assert {name: args[name] for name in due} == due
    assert args["step"] == 7
