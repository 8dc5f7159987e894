"""Energy: what the processor's own counters say was used, where the system shows them."""

from __future__ import annotations

from pathlib import Path

# Linux; most systems let only root read them, most virtual machines have none
COUNTERS = Path("/sys/class/powercap")


def read_joules(folder: Path = COUNTERS) -> float | None:
    """What all processor packages have used since some time ago; None where no counter can be read.

    A package is `intel-rapl:N`; what lies in it (cores, memory) is part of it. A difference of two readings counts, and one
    that is negative, since a counter began anew, does not.
    """
    try:
        packages = [x for x in folder.glob("intel-rapl:*") if x.name.count(":") == 1]
        return sum(int((x / "energy_uj").read_text()) for x in packages) / 1e6 if packages else None
    except (OSError, ValueError):
        return None


def joules_between(before: float | None, after: float | None) -> float | None:
    """Joules between two readings; None where one of them is missing or a counter began anew."""
    return None if before is None or after is None or after < before else after - before
