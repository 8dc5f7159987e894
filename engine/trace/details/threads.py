"""Threads: texts that one pass writes side by side, how they hang together, and the order in which they are one text."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from .scope import FormulaScope
from .shapes import ThreadsDetail


@dataclass(eq=False)
class TextThread:
    """A thread as recorded. rounds: the first in which it wrote, -1 before that; children: by the place in
    `tokens` where they began"""

    number: int
    parent: TextThread | None = None
    at: int = 0
    given: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    why: str | None = None
    first: int = -1
    children: dict[int, list[TextThread]] = field(default_factory=dict)

    @property
    def place(self) -> tuple[tuple[float, int], ...]:
        """A sort key: the place of its end in the run's text; sorts threads as their last tokens are sorted."""
        steps: list[tuple[float, int]] = [(float("inf"), 0)]
        strand: TextThread | None = self
        while strand is not None:
            steps.append((strand.at, strand.number))
            strand = strand.parent
        return tuple(reversed(steps))


@dataclass(eq=False)
class _ReadPosition:
    """A place in a thread: so many of its tokens, and of the children that began there, have been passed."""

    strand: TextThread
    at: int = 0
    passed: int = 0


class ThreadTree:
    """The text of threads that are written at once, token by token as far as everything before is complete.

    stops: tokens that end a thread;  strands: all threads, by number
    """

    def __init__(self, stops: Collection[int]):
        self.stops = stops
        self.strands: list[TextThread] = []
        self._trunk = TextThread(-1)  # the prompt: threads without a parent are its children
        self._ways = [_ReadPosition(self._trunk)]  # down to the place that the text has come to
        self._held: list[int] = []

    @property
    def alive(self) -> list[TextThread]:
        """Threads that go on."""
        return [x for x in self.strands if x.why is None]

    def begin(self, parent: int, at: int, given: list[int]) -> TextThread:
        """A further thread after the first `at` tokens of `parent`, -1: of none."""
        above = self._trunk if parent < 0 else self.strands[parent]
        strand = TextThread(len(self.strands), None if parent < 0 else above, at, given)
        above.children.setdefault(at, []).append(strand)
        self.strands.append(strand)
        return strand

    def take(self) -> list[int]:
        """The tokens that have become part of the text since the last call."""
        out: list[int] = []
        while self._ways:
            way = self._ways[-1]
            strand = way.strand
            at = way.at
            here = way.strand.children.get(way.at, [])
            if way.passed < len(here):
                way.passed += 1
                self._ways.append(_ReadPosition(here[way.passed - 1]))
            elif at < len(strand.tokens):
                token = strand.tokens[at]
                ends = strand.why == "stop_token" and at == len(strand.tokens) - 1 and token in self.stops
                if not ends:
                    out.append(token)
                self._held = [token] if ends else []
                way.at, way.passed = at + 1, 0
            elif strand is self._trunk or strand.why is None:
                break
            else:
                self._ways.pop()
        if not self.alive:
            out, self._held = out + self._held, []
        return out


@dataclass(frozen=True)
class ThreadSchedule:
    """The passes needed to write threads at once: `rounds`, each a pass. `longest`: tokens on the longest way from the prompt
    to the end of a thread; no schedule takes fewer passes. `tokens` of all threads: the passes that they take one after
    another.
    """

    rounds: int
    longest: int
    tokens: int


def build_thread_tree(records: Iterable[ThreadsDetail | None], stops: Collection[int] = ()) -> ThreadTree:
    """The threads of a run from its steps' records. Raises IndexError if these contradict each other."""
    order = ThreadTree(stops)
    for round_, record in enumerate(x for x in records if x is not None):
        add_round(order, record, round_)
    return order


def thread_schedule(records: Iterable[ThreadsDetail | None]) -> ThreadSchedule:
    """The passes that the threads of these records took."""
    kept = [x for x in records if x is not None]
    every = build_thread_tree(kept).strands
    before: list[int] = []  # tokens on the way to the first of each thread
    for strand in every:
        before.append(0 if strand.parent is None else before[strand.parent.number] + strand.at)
    ways = [start + len(strand.tokens) for start, strand in zip(before, every, strict=True)]
    return ThreadSchedule(len(kept), max(ways, default=0), sum(len(x.tokens) for x in every))


def threads_scope(threads: ThreadsDetail, emitted: int) -> FormulaScope:
    """The names that sentences on a step's threads may use; emitted: tokens that the step added to the text."""
    return FormulaScope({"threads": len(threads), "emitted": emitted}, {})


def add_round(order: ThreadTree, record: ThreadsDetail, round_: int) -> None:
    """Take a record into the tree: threads that no parent had begin before it is written, the others after it."""
    roots = [x for x in record.begun if x.parent < 0]
    for root in roots:
        order.begin(-1, 0, root.given)
    for number, token in zip(record.alive, record.tokens, strict=True):
        strand = order.strands[number]
        strand.first = round_ if strand.first < 0 else strand.first
        strand.tokens.append(token)
    for child in record.begun[len(roots) :]:
        order.begin(child.parent, child.at, child.given)
    for ended in record.ended:
        order.strands[ended.thread].why = ended.why
