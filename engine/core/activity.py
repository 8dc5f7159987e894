"""Activity: what a run's parts did so far, in counts that every level of recording has. No torch.

By these counts a part says whether it did anything at all (`Component.idle`). A cache policy below its budget did nothing;
neither did a drafter without a guess. The run then says so at its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Activity:
    """Counts of one run.

    steps:    steps made;  layers: layers of the target
    prompt:   tokens of the prompt as it was given;  left_out: how many of them were not read;  added: entries that a prompt
              compression added to the text
    held:     entries of the KV head that holds most, now
    evicted:  entries that left, merged ones too;  packed: most entries that were in fewer bits;  picked: passes that read
              only some entries
    passes:   of the target behind the prompt;  short: of the target, those that left out layers or rows
    drafts:   (tokens that could be guessed, tokens that were) -> steps;  held_back: steps in which a schedule drafted nothing
    length:   the drafter's own knob of that name; None: it has none;  samplers: how many act, one after the other
    lanes:    the models that made passes behind the prompt, by role
    acted:    parts that changed a distribution;  blind: some distributions were not looked at, so nobody knows
    """

    layers: int = 0
    length: int | None = None
    samplers: int = 1
    steps: int = 0
    prompt: int = 0
    left_out: int = 0
    added: int = 0
    held: int = 0
    evicted: int = 0
    packed: int = 0
    picked: int = 0
    passes: int = 0
    short: int = 0
    held_back: int = 0
    drafts: Counter[tuple[int, int]] = field(default_factory=Counter)
    lanes: set[str] = field(default_factory=set)
    acted: list[Any] = field(default_factory=list)
    blind: bool = False

    @property
    def drafted_count(self) -> int:
        """Nodes that were drafted."""
        return sum(nodes * steps for (_, nodes), steps in self.drafts.items())

    @property
    def draftable_steps(self) -> int:
        """Steps that had room for a draft."""
        return sum(steps for (room, _), steps in self.drafts.items() if room)

    def has_acted(self, part: Any) -> bool:
        """Whether this part changed a distribution."""
        return any(part is one for one in self.acted)


def common_idle_notes(runs: Sequence[Sequence[str]]) -> list[str]:
    """Merge the notes of several runs: the first note of each part that did nothing in any of them, as an example."""
    first: dict[str, str] = {}
    times: Counter[str] = Counter()
    for notes in runs:
        for text in notes:
            part = text.partition(" ")[0]
            first.setdefault(part, text)
            times[part] += 1
    each = "" if len(runs) == 1 else f"In each of {len(runs)} runs, here the first: "
    return [f"{each}{text}" for part, text in first.items() if times[part] == len(runs)]


def merge_violations(runs: Sequence[Sequence[str]]) -> list[str]:
    """Merge what the texts of several runs break: how many do, and the first sentence, as an example."""
    broken = [sentences[0] for sentences in runs if sentences]
    each = "" if len(runs) == 1 else f"In {len(broken)} of {len(runs)} runs, here the first: "
    return [f"{each}{broken[0]}"] if broken else []


def count_noun(count: int, thing: str) -> str:
    """A number with its noun."""
    return f"{count} {thing}{'' if count == 1 else 's'}"
