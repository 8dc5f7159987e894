"""Recovery: seal what a killed run left, as far as it is whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..encoding import disk
from ..encoding.frame import MAGIC, encode, frame_body
from ..values.limits import TraceError
from .reader import TraceFile
from .writer import PARTIAL, SUFFIX, complete_end_record


@dataclass
class RecoveryResult:
    """The result for one .partial file: the sealed trace, or None and a message that gives the reason."""

    partial: Path
    made: Path | None
    steps: int
    message: str


def recover(where: str | Path) -> list[RecoveryResult]:
    """Seal the .partial file `where`, or each one in the folder `where`, unless its run is still writing.

    The longest prefix of valid records becomes NAME.recovered.dstrace, with reason "interrupted"; then the .partial
    file is removed. If more than a torn end follows the records, it stays, as NAME.dstrace.damaged. The result depends on
    the bytes alone: recovering the same file twice gives the same bytes.
    """
    where = Path(where)
    partials = sorted(where.glob("*" + PARTIAL)) if where.is_dir() else [where]
    return [_recover_file(one) for one in partials]


def _recover_file(partial: Path) -> RecoveryResult:
    def left(message: str) -> RecoveryResult:
        return RecoveryResult(partial, None, 0, message)

    if not partial.name.endswith(PARTIAL):
        return left(f"{partial} is no {PARTIAL} file: there is nothing to recover.")
    try:
        with open(partial, "r+b", buffering=0) as held:
            if not disk.lock(held):
                return left(f"{partial} is being written by a run: it was left alone.")
            with TraceFile(partial) as file:
                number, damage = _count_valid(file)
                sealed = file.end is not None and number == len(file)
                bodies = [file.body(i) for i in range(number)]
                steps = sum(1 for i in file.steps if i < number)
    except TraceError as error:
        return left(f"{partial} was left as it is: {error}")
    except OSError as error:
        return left(f"{partial} could not be opened for recovery: {error.strerror or error}.")
    if not sealed:
        bodies.append(encode(complete_end_record(iter(bodies), None), number))
    try:
        trace = _write_recovered(partial, MAGIC + b"".join(map(frame_body, bodies)))
        if damage:
            partial.replace(partial.with_name(partial.name.removesuffix(PARTIAL) + ".damaged"))
        else:
            partial.unlink()
    except OSError as error:
        return left(
            f"{partial} was left as it is: no other file could be written ({error.strerror or error})."
        )
    return RecoveryResult(
        partial, trace, steps, f"{trace} holds {steps} steps{damage and f'; behind them, {damage}'}"
    )


def _count_valid(file: TraceFile) -> tuple[int, str]:
    """How many records from the first on are valid, and what is wrong after them, if it is more than a torn end."""
    for number in range(len(file)):
        try:
            file.record(number)
        except TraceError as error:
            return number, str(error)
    return len(file), file.damage or ""


def _write_recovered(partial: Path, data: bytes) -> Path:
    """Write `data` under a name that is free, or that already holds the same bytes."""
    stem = partial.name.removesuffix(PARTIAL).removesuffix(SUFFIX)
    target, more = partial.with_name(f"{stem}.recovered{SUFFIX}"), 1
    while target.exists():
        if target.read_bytes() == data:
            return target
        more += 1
        target = partial.with_name(f"{stem}.recovered-{more}{SUFFIX}")
    growing = target.with_name(target.name + ".tmp")
    with open(growing, "wb", buffering=0) as file:
        file.write(data)
        disk.publish(file, growing, target)
    return target
