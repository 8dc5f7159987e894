"""Threads: texts that one pass writes side by side, how they hang together, and the order in which they are one text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from ..values.limits import TraceError

Why = Literal["stop_token", "max_new_tokens", "context_full", "outline"]


@dataclass
class Begun:
    """A thread that began behind a step's tokens, or before the first step. Its text goes on behind the first `at` tokens that
    its `parent` wrote, and behind `given`, ids that nobody wrote; parent -1: behind the prompt."""

    thread: int
    parent: int = -1
    at: int = 0
    given: list[int] = field(default_factory=list)


@dataclass
class Ended:
    """A thread that ended with a step, perhaps before it had room for a token. why: as a run ends; "outline": what it wrote was
    taken apart, and others go on. freed: places in its text, ascending, of the entries that went with it: those that no other
    text reads"""

    thread: int
    why: Why
    freed: list[int] = field(default_factory=list)


@dataclass
class Threads:
    """One round of a run that writes several texts at once: each thread that is alive writes a token.

    alive: their numbers, which count from 0 in the order in which threads begin;  tokens: what each of them wrote
    The run's text is that of its threads in order: a child's stands in its parent's, where it began. It is emitted as far as
    all before it stands. A stop token that ends a thread is left out, but for the last of the text.
    """

    alive: list[int]
    tokens: list[int]
    begun: list[Begun] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)


@dataclass(eq=False)
class Strand:
    """A thread as its records tell of it. rounds: the first in which it wrote, -1 before that; children: by the place in
    `tokens` where they began"""

    number: int
    parent: Strand | None = None
    at: int = 0
    given: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    why: Why | None = None
    first: int = -1
    children: dict[int, list[Strand]] = field(default_factory=dict)

    @property
    def place(self) -> tuple[tuple[float, int], ...]:
        """Where its end stands in the run's text: sorts threads as their last tokens are sorted."""
        steps: list[tuple[float, int]] = [(float("inf"), 0)]
        strand: Strand | None = self
        while strand is not None:
            steps.append((strand.at, strand.number))
            strand = strand.parent
        return tuple(reversed(steps))


@dataclass(eq=False)
class _Way:
    """A place in a thread: so many of its tokens, and of the children that began there, have been passed."""

    strand: Strand
    at: int = 0
    passed: int = 0


class ThreadTree:
    """The text of threads that are written side by side, token by token as far as all before stands.

    stops: tokens that end a thread;  strands: all threads, by number
    """

    def __init__(self, stops: Collection[int]):
        self.stops = stops
        self.strands: list[Strand] = []
        self._trunk = Strand(-1)  # the prompt: threads without a parent are its children
        self._ways = [_Way(self._trunk)]  # down to the place that the text has come to
        self._held: list[int] = []

    @property
    def alive(self) -> list[Strand]:
        """Threads that go on."""
        return [x for x in self.strands if x.why is None]

    def begin(self, parent: int, at: int, given: list[int]) -> Strand:
        """A further thread behind the first `at` tokens of `parent`, -1: of none."""
        above = self._trunk if parent < 0 else self.strands[parent]
        strand = Strand(len(self.strands), None if parent < 0 else above, at, given)
        above.children.setdefault(at, []).append(strand)
        self.strands.append(strand)
        return strand

    def take(self) -> list[int]:
        """The tokens that stand by now and did not before."""
        out: list[int] = []
        while self._ways:
            way = self._ways[-1]
            strand = way.strand
            at = way.at
            here = way.strand.children.get(way.at, [])
            if way.passed < len(here):
                way.passed += 1
                self._ways.append(_Way(here[way.passed - 1]))
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
class Schedule:
    """What writing side by side took: `rounds`, each a pass; `longest`, tokens on the longest way from the prompt to the end of
    a thread, as many passes as no schedule goes below; `tokens` of all threads, as many passes as they take one after another.
    """

    rounds: int
    longest: int
    tokens: int


def strands(records: Iterable[Threads | None], stops: Collection[int] = ()) -> ThreadTree:
    """The threads of a run from its steps' records. Raises IndexError where these contradict each other."""
    order = ThreadTree(stops)
    for round_, record in enumerate(x for x in records if x is not None):
        _enter(order, record, round_)
    return order


def schedule(records: Iterable[Threads | None]) -> Schedule:
    """What the threads of these records took."""
    kept = [x for x in records if x is not None]
    every = strands(kept).strands
    before: list[int] = []  # tokens on the way to the first of each thread
    for strand in every:
        before.append(0 if strand.parent is None else before[strand.parent.number] + strand.at)
    ways = [start + len(strand.tokens) for start, strand in zip(before, every, strict=True)]
    return Schedule(len(kept), max(ways, default=0), sum(len(x.tokens) for x in every))


def _enter(order: ThreadTree, record: Threads, round_: int) -> None:
    """Take a record into the books: threads that no parent had begin before it is written, the others behind it."""
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


def consistent_threads(threads: Threads, vocab: int) -> None:
    """What must agree inside one record: lengths, ids, counts. Raises TraceError."""
    if len(threads.tokens) != len(threads.alive):
        raise TraceError(
            f"threads.tokens has {len(threads.tokens)} entries, where {len(threads.alive)} are due"
        )
    ids = [*threads.tokens, *(x for begun in threads.begun for x in begun.given)]
    if ids and not 0 <= min(ids) <= max(ids) < vocab:
        raise TraceError(f"threads holds an id outside the vocabulary of {vocab:,}")
    numbers = [
        *threads.alive,
        *(x.thread for x in threads.begun),
        *(n for x in threads.ended for n in (x.thread, *x.freed)),
    ]
    counts = [*numbers, *(x.at for x in threads.begun), *(x.parent + 1 for x in threads.begun)]
    if counts and min(counts) < 0:
        raise TraceError(f"threads holds the negative count {min(counts)}")


class ThreadValidator:
    """Follows the threads of a run, to hold its records against each other.

    stops: tokens that end a thread
    frees: why a thread that ends cannot have taken entries at these places of its text with it, where these others stand; "":
           it can
    """

    def __init__(
        self, stops: Collection[int], frees: Callable[[Strand, list[int], list[Strand]], str] = lambda *_: ""
    ):
        self._order, self._frees = ThreadTree(stops), frees
        self._rounds = 0
        self._known = True
        self.checked = 0

    @property
    def tree(self) -> ThreadTree | None:
        """The threads so far; None where nothing can be told."""
        return self._order if self._known else None

    def lose(self) -> None:
        """From here on nothing can be told: the run has gone on from another one's threads."""
        self._known = False

    def problems(self, record: Threads | None, emitted: list[int]) -> Iterator[str]:
        """What the record of a step, the next one, says wrongly; `emitted`: what the step added to the text."""
        if not self._known or (record is None and not self._rounds):
            return
        wrong = "it tells of no threads, and some were alive" if record is None else self._wrong(record)
        if record is None or wrong:
            self.lose()
            yield wrong
            return
        _enter(self._order, record, self._rounds)
        self._rounds += 1
        self.checked += len(record.alive)
        for i, ended in enumerate(record.ended):
            others = [*self._order.alive, *(self._order.strands[x.thread] for x in record.ended[i + 1 :])]
            yield from filter(None, [self._frees(self._order.strands[ended.thread], ended.freed, others)])
        due = self._order.take()
        if due != emitted:
            yield f"it emitted {emitted}, but the threads' texts in order go on with {due}"

    def _wrong(self, record: Threads) -> str:
        """Why a record does not go on from those before it; "": it does."""
        known, before = len(self._order.strands), [x.number for x in self._order.alive]
        numbers = [x.thread for x in record.begun]
        if numbers != list(range(known, known + len(numbers))):
            return f"threads {numbers} began, where {known} is the next number"
        roots = [x.thread for x in record.begun if x.parent < 0]
        if roots and (self._rounds or roots != numbers[: len(roots)]):
            return "a thread began behind the prompt after others had been written"
        due = before + roots
        if record.alive != due:
            return f"threads {record.alive} wrote a token, but {due} were alive"
        ended = [x.thread for x in record.ended]
        if len(set(ended)) < len(ended) or not set(ended) <= {*due, *numbers}:
            return f"threads {ended} ended, but {due} were alive"
        return next(filter(None, (self._misplaced(x, record) for x in record.begun[len(roots) :])), "")

    def _misplaced(self, child: Begun, record: Threads) -> str:
        """Why a child cannot have begun where its record says; "": it can. Its parent wrote in this step, and the child stands
        behind all of that, or behind all but the token that ended it."""
        if child.parent not in record.alive:
            return f"thread {child.parent} has the child {child.thread} and wrote no token"
        strand = self._order.strands[child.parent] if child.parent < len(self._order.strands) else None
        length = (0 if strand is None else len(strand.tokens)) + 1
        least = length - 1 if child.parent in [x.thread for x in record.ended] else length
        if not least <= child.at <= length:
            return f"thread {child.thread} began behind {child.at} tokens of thread {child.parent}, which has {length}"
        return ""
