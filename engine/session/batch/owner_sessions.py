"""Several owners' sessions run together; it tracks each session's owner, its start, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from decodescope.engine.core.refusal import Refusal
from decodescope.engine.trace.records.events import Step

from ..session import Session
from .shared_passes import SharedPassStats, decode_together

SETS = 4  # sessions of a set, in the number of those that go at a time: places stay taken while the set lasts

Owner = TypeVar("Owner")


def session_sets(count: int, most: int) -> list[range]:
    """The numbers below `count` in sets, where at most `most` sessions run at a time.

    So the results of a set's sessions can be handed on before the next set begins.
    """
    return [range(at, min(at + SETS * most, count)) for at in range(0, count, SETS * most)]


def decode_for_owners(
    owners: Iterable[Owner | None],
    begin: Callable[[Owner], Session | None],
    most: int,
    *,
    each: Callable[[Owner, Step], None] = lambda owner, step: None,
    over: Callable[[Owner, Exception | None], None],
    halted: Callable[[], bool] = lambda: False,
) -> SharedPassStats:
    """Decode a session for every owner, of any type, at most `most` at a time, as `decode_together` does.

    A None among the owners says that none can begin until one ends.

    begin: makes the session, with a Seat for its executor, once there is a place for it. It may raise a Refusal, or return None
           (not yet) while others run
    each:  called with every step;  over: called once for every owner, when its session has ended or was refused, with the error
           that was raised
    """
    going: dict[int, Owner] = {}  # by id of a session

    def sessions() -> Iterator[Session | None]:
        for owner in owners:
            if owner is None:
                yield None
                continue
            try:
                while (session := begin(owner)) is None:
                    yield None
            except Refusal as error:
                over(owner, error)
                continue
            going[id(session)] = owner
            yield session

    return decode_together(
        sessions(),
        most,
        each=lambda session, step: each(going[id(session)], step),
        over=lambda session, error: over(going.pop(id(session)), error),
        halted=halted,
    )
