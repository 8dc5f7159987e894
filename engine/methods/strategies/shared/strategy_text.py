"""Text that a strategy puts into a run, as ids."""

from __future__ import annotations

from collections.abc import Sequence

from decodescope.engine.decoding.bases.state import State
from decodescope.engine.decoding.shared.text_threads import ThreadState, ThreadWriter
from decodescope.engine.model.forward.executor import EngineFault


def ids_of(s: State, text: str) -> list[int]:
    """The ids of `text`.

    For a model without a tokenizer, the text holds ids with blanks between them; if it holds anything else, there are none.
    """
    if s.encode is not None:
        return s.encode(text)
    ids, vocab = text.split(), s.target.decoder.vocab
    return [int(x) for x in ids] if all(x.isdecimal() and len(x) < 9 and int(x) < vocab for x in ids) else []


def check_room(s: State, length: int, what: str) -> None:
    """Raise EngineFault if a prompt of `length` tokens leaves no room for an answer. what: the text that was appended to it."""
    if length >= s.limit:
        raise EngineFault(
            "bad_input",
            f"With {what} the prompt has {length} tokens, and {s.limited_by}: shorten one of them.",
        )


def fork_threads(
    s: State, writing: ThreadWriter, asked: list[list[int]], most: Sequence[int], what: str
) -> list[ThreadState]:
    """Fork a thread behind the prompt for each of the texts `asked` (ids), and read these texts.

    Thread i writes at most most[i] tokens, and there are at most as many threads as tokens may be written. what: the name of
    one thread in messages, before its number.
    """
    prompt, threads = writing.branches.alive[0], list[ThreadState]()
    for i, ids in enumerate(asked[: writing.budget]):
        check_room(s, len(prompt.tokens) + len(ids), f"{what} {i + 1}")
        branch = writing.branches.fork(prompt, len(prompt.tokens), ids)
        threads.append(writing.begin(s, branch, given=len(ids), most=most[i]))
    writing.branches.read(whole=[prompt])
    writing.branches.end(prompt)
    return threads


def token_of(s: State, text: str, knob: str) -> int:
    """The one token that `text` names: an id, or the text of a token or mark. Raises EngineFault."""
    vocab = s.target.decoder.vocab
    pieces = s.stop.pieces
    name = s.target.decoder.spec.name
    if text.isdecimal() and len(text) < 9:
        if int(text) < vocab:
            return int(text)
        raise EngineFault("bad_input", f"{knob} = {text}: the ids of {name} are 0 to {vocab - 1}.")
    token = None if pieces is None else next((x for x in range(vocab) if pieces(x) == text.encode()), None)
    if token is None:
        raise EngineFault(
            "bad_input",
            f"{knob} = {text!r}: {name} has no such token; give its id, or the text of one token.",
        )
    return token
