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
            "The first refusal",
            "The draft gave this token 0.046, the target 0.002. The dart u = 0.80 lies above p/q = 0.036: refused.",
            0,
            1,
            "reject",
        ),
        Stop(
            "What is left",
            "The refused guess is taken out of the target's law. Of this second guess nothing is left in it: no dart keeps it.",
            0,
            2,
            "reject",
        ),
        Stop(
            "The target's own word",
            "All three first guesses were refused: the token is drawn from what is left. One pass, one token.",
            0,
            16,
            "resample",
        ),
        Stop(
            "A guess that holds",
            "Here u = 0.61 lies below p/q = 0.81: accepted. The next guess of this branch holds too, the third does not.",
            1,
            1,
            "accept",
        ),
        Stop(
            "One for free",
            "All five guesses of a branch hold, and their pass gives the target's next token too: six from one.",
            2,
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
            "Nothing to guess from",
            "No guess is at hand, so nothing is drafted: one pass, one token of the target.",
            0,
            1,
            "target",
        ),
        Stop(
            "A first tree",
            "Now 14 guesses hang on the root. Decoding is greedy: a guess holds only if it is the target's first choice.",
            6,
            1,
            "reject",
        ),
        Stop(
            "All refused",
            "None of the seven first guesses is the target's choice; this token is. The text is that of plain decoding.",
            6,
            15,
            "resample",
        ),
        Stop(
            "Two hold",
            "One first guess is right and so is one behind it. With the target's own token three come from one pass.",
            13,
            1,
            "accept",
        ),
        Stop(
            "The text repeats",
            "The model has begun to repeat itself, and what was seen before is a good guess: five tokens from one pass.",
            18,
            15,
            "bonus",
        ),
    ),
}
