"""The threads of a run derived again: each record goes on from those before it, and their texts in order are the run's."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ..details.shapes import Begun, ThreadsDetail
from ..details.threads import ThreadTree, add_round
from .freed_entries import freed_entries_problem


class ThreadValidator:
    """Follows the threads of a run, to hold its records against each other.

    stops: tokens that end a thread;  prompt: tokens before all threads
    """

    def __init__(self, stops: Collection[int], prompt: int = 0):
        self._order, self._prompt = ThreadTree(stops), prompt
        self._rounds = 0
        self._known = True
        self.checked = 0

    @property
    def tree(self) -> ThreadTree | None:
        """The threads so far; None if they are unknown."""
        return self._order if self._known else None

    def lose(self) -> None:
        """Stop following: the run has gone on from another one's threads."""
        self._known = False

    def problems(
        self, record: ThreadsDetail | None, emitted: list[int], freed: Sequence[list[int]] = ()
    ) -> Iterator[str]:
        """Problems of the record of a step, the next one.

        emitted: what the step added to the text
        freed:   for each ended thread the places in its text of the entries freed with it, from the cache's record
        """
        if not self._known or (record is None and not self._rounds):
            return
        wrong = (
            "it records no threads, and some were alive" if record is None else self._record_problem(record)
        )
        if record is None or wrong:
            self.lose()
            yield wrong
            return
        add_round(self._order, record, self._rounds)
        self._rounds += 1
        self.checked += len(record.alive)
        if len(freed) not in (0, len(record.ended)):
            yield f"its cache records what {len(freed)} texts took with them, and {len(record.ended)} threads ended"
            freed = ()
        for i, (ended, places) in enumerate(zip(record.ended, freed, strict=False)):
            others = [*self._order.alive, *(self._order.strands[x.thread] for x in record.ended[i + 1 :])]
            strand = self._order.strands[ended.thread]
            yield from filter(None, [freed_entries_problem(strand, places, others, self._prompt)])
        due = self._order.take()
        if due != emitted:
            yield f"it emitted {emitted}, but the threads' texts in order go on with {due}"

    def _record_problem(self, record: ThreadsDetail) -> str:
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
        return next(filter(None, (self._start_problem(x, record) for x in record.begun[len(roots) :])), "")

    def _start_problem(self, child: Begun, record: ThreadsDetail) -> str:
        """Why a child cannot have begun where its record says; "": it can. Its parent wrote in this step. The child comes after
        all of the parent's tokens, or after all but the token that ended it."""
        if child.parent not in record.alive:
            return f"thread {child.parent} has the child {child.thread} and wrote no token"
        strand = self._order.strands[child.parent] if child.parent < len(self._order.strands) else None
        length = (0 if strand is None else len(strand.tokens)) + 1
        least = length - 1 if child.parent in [x.thread for x in record.ended] else length
        if not least <= child.at <= length:
            return f"thread {child.thread} began behind {child.at} tokens of thread {child.parent}, which has {length}"
        return ""
