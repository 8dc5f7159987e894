"""Tours: what is worth seeing in the shipped examples, stop by stop. Every claim is checked against its trace by a test."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Stop:
    """One place of a run. step, node: as the views number them, the root being node 0; status: of that node."""

    title: str
    text: str
    step: int
    node: int
    status: str

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


TOURS: dict[str, tuple[Stop, ...]] = {
    "first-rejection": (
        Stop(
            "The root",
            "The text ends with this token. The large model has not read it yet; every guess hangs on it.",
            0,
            0,
            "root",
        ),
        Stop(
            "A guess that holds",
            "The draft gave this token 0.9157, the target 0.8591. The dart u = 0.6301 lies below p/q = 0.9382: accepted.",
            0,
            1,
            "accept",
        ),
        Stop(
            "The first refusal",
            "The draft gave this token 0.5619, the target 0.2807. The dart u = 0.5228 lies above p/q = 0.4995: refused.",
            0,
            7,
            "reject",
        ),
        Stop(
            "The target's own word",
            "The draft's law is taken off the target's; this token is drawn from what is left. Three from one pass.",
            0,
            16,
            "resample",
        ),
        Stop(
            "Nothing is left",
            "Once the first guess is refused, nothing of this one is left in the law: no dart keeps it. One pass, one token.",
            2,
            2,
            "reject",
        ),
        Stop(
            "One for free",
            "All five guesses of a branch hold, and their pass gives the target's next token too: six from one.",
            6,
            16,
            "bonus",
        ),
    ),
    "h2o": (
        Stop(
            "Every entry is kept",
            "The cache holds the 11 tokens of the prompt. Each step reads one token and adds its entry.",
            0,
            1,
            "target",
        ),
        Stop(
            "The room is full", "24 entries: 12 places for those that drew most attention, 12 for the newest.", 13, 1, "target"
        ),
        Stop(
            "The first one goes",
            "One entry leaves each layer and head. Look at the cache map: not the same one everywhere.",
            14,
            1,
            "target",
        ),
        Stop(
            "One in, one out",
            "From here on each step adds an entry and drops one; 24 are held, however long the text is.",
            30,
            1,
            "target",
        ),
        Stop(
            "The end",
            "58 tokens were read and 24 entries are left. What was dropped can no longer be looked at.",
            47,
            1,
            "target",
        ),
    ),
    "recycling": (
        Stop(
            "Guesses from the prompt",
            "In the prompt three different tokens come after a line break. Each is a guess here, and this one holds.",
            0,
            4,
            "accept",
        ),
        Stop(
            "Why another is refused",
            "Decoding is greedy: a guess holds only if it is the target's first choice. This one is not.",
            0,
            3,
            "reject",
        ),
        Stop(
            "All refused",
            "None of the seven first guesses is the target's choice; this token is. The text is that of plain decoding.",
            4,
            16,
            "resample",
        ),
        Stop(
            "Seen before",
            "The rest of the name stood in the prompt: four guesses hold. With the target's own token five come from one pass.",
            5,
            13,
            "bonus",
        ),
        Stop(
            "The end",
            "That the text ends here was guessed too. The record is repeated without a fault: 40 tokens from 14 passes.",
            13,
            11,
            "accept",
        ),
    ),
}
