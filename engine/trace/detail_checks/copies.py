"""Copied tokens: which drafted tokens are copies of tokens of the text, by the notes of the parts, and their check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from decodescope.engine.core.note import PLACE

from ..checks.notes import declared_notes
from ..details.declarations import TallyForm
from ..records.events import Header, Prefill, Step
from .details import tally_reading


def copied_places(header: Header, step: Step) -> list[int | None]:
    """For each drafted node the place, in prompt and text as far as they were read, of the token that it copies; None: not
    recorded. Empty if no part records copies."""
    nodes = 0 if step.draft is None else len(step.draft.tokens)
    for part, values in declared_notes(header, step).items():
        for name, value in values.items():
            note = header.tells[part][name]
            if note.kind == "node" and note.unit == PLACE:
                own = list(value)[max(0, len(value) - nodes) :]
                return own + [None] * (nodes - len(own))
    return []


def emitted_sources(header: Header, step: Step) -> list[int | None]:
    """The same of each token that a step emitted; those of an answer that is a span of the prompt among them."""
    places: list[int | None] = []
    if by := copied_places(header, step):
        places = [by[node] for node in step.path or []]
    for detail in step.details or ():
        form = header.details.get(detail.name)
        if isinstance(form, TallyForm) and form.source and (read := tally_reading(header, step, detail)):
            places = [place for index in read.emitting_rows for place in read.sources(index)]
    known = places[: len(step.emitted)]
    return known + [None] * (len(step.emitted) - len(known)) if any(x is not None for x in known) else []


def prompt_as_read(header: Header, prefill: Prefill | None) -> list[int]:
    """The tokens of the prompt that the target read."""
    cut = None if prefill is None else prefill.cut
    tokens: list[int] = (header.prompt if cut is None else header.prompt[cut.kept]).tolist()
    return tokens


def copied_problems(header: Header, step: Step, text: Sequence[int]) -> Iterator[str]:
    """Problems of the recorded copies in a step after this text, a phrase each."""
    draft = step.draft
    for node, place in enumerate(copied_places(header, step)):
        if place is None or draft is None:
            continue
        if type(place) is not int or not 0 <= place < len(text):
            yield f"node {node} is a copy of the token at {place}, in a text of {len(text)} tokens"
        elif text[place] != draft.tokens[node]:
            yield f"node {node} holds {draft.tokens[node]} as a copy of the token at {place}, and that token is {text[place]}"
