"""Needle: find a piece of text among the tokens of a run, and say in one sentence what became of it in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from decodescope.engine.trace import Trace
from decodescope.engine.trace.records.events import Piece

from .lifetimes import BY_READING, EntryLifetimes

MOST = 64  # places of one text that are listed
LONGEST = 2000  # characters of a text that is searched for


def find_text(text: str, tokens: Sequence[int], piece: Callable[[int], Piece]) -> list[tuple[int, int]]:
    """Find `text`: (first, last) token that it touches, at most MOST times.
    It is searched for as written. If it is not found so, the search ignores case."""
    pieces = [_piece_bytes(piece(token)) for token in tokens]
    whole, sought = b"".join(pieces), text.encode("utf-8", "replace")
    if not sought:
        return []
    starts = _match_starts(whole, sought) or _match_starts(whole.lower(), sought.lower())
    spans: list[tuple[int, int]] = []
    token = at = 0
    for start in starts:
        while at + len(pieces[token]) <= start:
            at += len(pieces[token])
            token += 1
        last, end = token, at + len(pieces[token])
        while end < start + len(sought):
            last += 1
            end += len(pieces[last])
        spans.append((token, last))
    return spans


def _match_starts(whole: bytes, sought: bytes) -> list[int]:
    starts: list[int] = []
    at = whole.find(sought)
    while at >= 0 and len(starts) < MOST:
        starts.append(at)
        at = whole.find(sought, at + len(sought))
    return starts


def _piece_bytes(piece: Piece) -> bytes:
    return piece.encode("utf-8", "replace") if isinstance(piece, str) else bytes.fromhex("".join(piece))


def text_lifetime(trace: Trace, text: str) -> dict[str, Any]:
    """What became of the first place of `text` by the end of a run, as `span_lifetime` says it.
    Raises ValueError if the run does not contain the text, or has no step."""
    lives = EntryLifetimes.of(trace)
    if not lives.count:
        raise ValueError("The run has no step: there is nothing that its cache could have lost.")
    spans = find_text(text, lives.tokens, trace.piece)
    if not spans:
        raise ValueError(f"The text of this run does not hold {text[:40]!r}.")
    return span_lifetime(lives, *spans[0], lives.count - 1)


def span_lifetime(lives: EntryLifetimes, first: int, last: int, i: int) -> dict[str, Any]:
    """What became of the positions first..last by step i, and one sentence on all rows.
    Per row it has how many are held, how many were never there, the steps in which the first and the last of them left, and
    why the first did."""
    n, size = lives.length[i], last - first + 1
    read = min(last + 1, n) - first
    rows, absent = [], lives.absent_mask(i)
    for row, at in enumerate(lives.eviction_steps(i)[:, first : last + 1]):
        gone = at[at <= i]
        missing = 0 if absent is None else int(absent[row, first : last + 1].sum())
        rows.append(
            {
                "row": row,
                "kept": max(0, read) - len(gone) - missing,
                "absent": missing,
                "first": int(gone.min()) if len(gone) else None,
                "last": int(gone.max()) if len(gone) else None,
                "why": _reason_letter(lives, row, first + int(at.argmin()), i) if len(gone) else "",
            }
        )
    return {
        "size": size,
        "read": max(0, read),
        "rows": rows,
        "sentence": _sentence(lives, first, last, i, read, rows),
    }


def _reason_letter(lives: EntryLifetimes, row: int, position: int, i: int) -> str:
    return lives.letters(row, i, position, position + 1)[0]


def _sentence(
    lives: EntryLifetimes, first: int, last: int, i: int, read: int, rows: list[dict[str, Any]]
) -> str:
    where = f"position {first}" if first == last else f"positions {first} to {last}"
    stands = f"It is at {where}" + (
        f"; {read} of {last - first + 1} are read" if 0 < read <= last - first else ""
    )
    if read <= 0:
        return f"{stands}, which the cache has not read by step {i}."
    if lives.untold:
        return f"{stands}; {lives.unlisted_reason}."
    never = sum(row["absent"] == read and row["row"] not in lives.cut for row in rows)
    rows = [row for row in rows if row["absent"] < read]
    if never:
        has = "head has" if never == 1 else "heads have"
        stands += f"; {never} {has} no entry of it, since the layer computed none"
    if not rows:
        return f"{stands}."
    heads = "head" if len(rows) == 1 else "heads"
    whole, none = (sum(row["kept"] == k for row in rows) for k in (read, 0))
    if whole == len(rows):
        return f"{stands}: after step {i} {'the head holds' if len(rows) == 1 else f'all {len(rows)} heads hold'} all of it."
    lost = [row for row in rows if row["first"] is not None]
    if not lost:
        return (
            f"{stands}: after step {i} {whole} of {len(rows)} {heads} hold all of it, the others a part: their layers "
            "computed no more."
        )
    early, late = min(lost, key=lambda row: row["first"]), max(lost, key=lambda row: row["last"])
    old = f"only the first {lives.sinks} are" if lives.sinks else "nothing is"
    because = {
        "M": "it was merged into entries like it",
        "B": "over budget, while others that are rated higher stayed",
        "O": f"the window moved past it, and of what is old {old} kept",
    }[early["why"]]
    when = _format_step(early["first"])
    if none == len(rows):
        until = (
            ""
            if late["last"] == early["first"]
            else f" and the last {_format_step(late['last'])}{_format_row(lives, late, rows)}"
        )
        return (
            f"{stands}: after step {i} no head holds any of it, so the model can no longer look at it. The first of it left "
            f"{when}{_format_row(lives, early, rows) if until else ''}{until}: {because}."
        )
    part = len(rows) - whole - none
    verbs = [
        (whole, "holds", "hold", "all of it"),
        (part, "holds", "hold", "a part"),
        (none, "has", "have", "lost it"),
    ]
    said = [f"{count} {one if count == 1 else many} {what}" for count, one, many, what in verbs if count]
    listed = said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"
    began = f"The first of it left {when}{_format_row(lives, early, rows)}: {because}."
    return f"{stands}: of {len(rows)} {heads} {listed} after step {i}. {began}"


def _format_step(step: int) -> str:
    return "while the prompt was read" if step == BY_READING else f"in step {step}"


def _format_row(lives: EntryLifetimes, row: dict[str, Any], rows: Sequence[Any]) -> str:
    return "" if len(rows) == 1 else f" (layer {row['row'] // lives.heads}, head {row['row'] % lives.heads})"
