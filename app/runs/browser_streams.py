"""Browser streams: one event stream a browser, and the runs that each carries.

A page opens no stream of its own. The browser's stream stays open while its pages follow runs, and a request adds runs to it or
takes them out, so that the number of connections does not grow with the pages.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.lab.wire.wire import encode

from .event_stream import EventReader, ReaderGroup, encode_event, stream_group
from .record_stream import RecordStream
from .run_service import GONE

MOST_READERS = 512  # runs that all pages follow, each counted once a picture
MOST_CHANGES = 1024  # runs in one request
SPARED = ("laws", "passes")  # parts of a step that the Compare page does not show
CLOSED = "This stream is closed: open another one."
FORM = 'Send {"add": [{"name": "1", "run": "...", "after": -1, "brief": false}], "drop": ["2"]}'


@dataclass(frozen=True)
class Subscription:
    """A run that a picture follows.

    name:  of the subscription in its stream, in the ids of its events
    after: number of the last step that the picture has, -1: none
    brief: whether the parts of a step are left out that the Compare page does not show
    """

    name: str
    run: str
    after: int
    brief: bool


def parse_changes(said: Mapping[str, Any]) -> tuple[list[Subscription], list[str]]:
    """What a request adds and drops. Raises RequestRefusal."""
    add, drop = said.get("add", []), said.get("drop", [])
    if not (isinstance(add, list) and isinstance(drop, list) and len(add) + len(drop) <= MOST_CHANGES):
        raise RequestRefusal(f"{FORM}, with at most {MOST_CHANGES} runs.")
    if not all(map(_is_name, drop)):
        raise RequestRefusal(f"{FORM}: a name is a number of at most 15 digits.")
    return [_parse_subscription(x) for x in add], drop


def _is_name(said: object) -> bool:
    return isinstance(said, str) and said.isascii() and said.isdecimal() and len(said) <= 15


def _parse_subscription(said: object) -> Subscription:
    if not isinstance(said, Mapping):
        raise RequestRefusal(f"{FORM}: a run is an object.")
    name, run, after, brief = (said.get(x) for x in ("name", "run", "after", "brief"))
    if not _is_name(name) or not isinstance(run, str) or not isinstance(brief, bool):
        raise RequestRefusal(f"{FORM}: a name is a number of at most 15 digits, a run a text.")
    if not isinstance(after, int) or isinstance(after, bool) or not -1 <= after < 10**11:
        raise RequestRefusal(f"{FORM}: the number of the last step is -1 or more.")
    return Subscription(str(name), run, after, brief)


class BrowserStreams:
    """The open streams by name.

    ahead(channel): how many runs come before a waiting run
    """

    def __init__(self, ahead: Callable[[RecordStream], int]):
        self._ahead = ahead
        self._groups: dict[str, ReaderGroup] = {}

    async def open(self) -> AsyncGenerator[bytes, None]:
        """The events of a new stream. The first one, "ready", says its name; then it carries what `change` adds."""
        name, group = secrets.token_hex(16), ReaderGroup(lasting=True)
        self._groups[name] = group
        group.notify(encode_event("ready", encode({"stream": name})))
        try:
            async for part in stream_group(group):
                yield part
        finally:
            del self._groups[name]
            group.close()

    def check(self, stream: str) -> None:
        """Raises RequestRefusal for a stream that is not open."""
        if stream not in self._groups:
            raise RequestRefusal(CLOSED, 404)

    def change(
        self, stream: str, added: Sequence[tuple[Subscription, RecordStream | None]], dropped: Sequence[str]
    ) -> None:
        """Add runs to a stream and drop others, by name. Raises RequestRefusal.
        A run that is not here, or is too many, gets an event that says so: "gone" or "full"."""
        self.check(stream)
        group = self._groups[stream]
        leaving = {*dropped, *(one.name for one, _ in added)}
        for reader in [x for x in group.readers if x.name in leaving]:
            group.remove(reader)
        for one, channel in added:
            if channel is None:
                group.notify(encode_event("gone", encode({"error": GONE}), one.name))
            elif (held := sum(len(x.readers) for x in self._groups.values())) >= MOST_READERS:
                full = f"{held} runs are being watched, which is the limit: close a page."
                group.notify(encode_event("full", encode({"error": full}), one.name))
            else:
                spared = SPARED if one.brief else ()
                group.add(EventReader(channel, one.after, self._ahead, spared, one.name))
