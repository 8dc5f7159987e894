"""Energy: joules by the processor's own counters, where the system shows them."""

from __future__ import annotations

from pathlib import Path

# Linux; most systems let only root read them, most virtual machines have none
COUNTERS = Path("/sys/class/powercap")


def read_joules(folder: Path = COUNTERS) -> float | None:
    """Joules that all processor packages have used since an arbitrary time; None where no counter can be read.

    A package is `intel-rapl:N`; its sub-domains (cores, memory) are part of it. Only a difference of two readings counts. A
    negative difference does not count: a counter started again from zero.
    """
    try:
        packages = [x for x in folder.glob("intel-rapl:*") if x.name.count(":") == 1]
        return sum(int((x / "energy_uj").read_text()) for x in packages) / 1e6 if packages else None
    except (OSError, ValueError):
        return None


def joules_between(before: float | None, after: float | None) -> float | None:
    """Joules between two readings; None if one of them is missing or a counter started again."""
    return None if before is None or after is None or after < before else after - before
