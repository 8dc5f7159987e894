"""Settle: what a verdict makes of the text, the target's cache and the sampler; the end of every step that drafts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from decodescope.engine.trace.records.events import EndReason

from ..bases.acceptance import Cursor
from ..bases.state import State
from ..values.draft import Draft, Verdict


class CommittedVerdict(NamedTuple):
    """Emitted tokens and the origin of each, why the text ends, if it does, the verdict up to the last emitted token, and
    the sampler's state before."""

    emitted: list[int]
    origins: list[str]
    end: EndReason | None
    verdict: Verdict
    before: Any


def commit_verdict(s: State, draft: Draft, verdict: Verdict, at: Cursor) -> CommittedVerdict:
    """Cut the verdict at the first stop token and at the length limit, then commit: rows, sampler, text. `at`: the root."""
    emitted, origins = emitted_tokens(draft, verdict)
    count, end = s.cut(emitted)
    if count < len(emitted):
        emitted, origins = emitted[:count], origins[:count]
        verdict = replace(verdict, path=verdict.path[:count], token=None)
    s.target.commit(verdict.rows)
    before = s.sampler_state
    if s.sampler.stateful:
        for i, token in enumerate(emitted):
            s.sampler_state = at.state_after(token)
            if i < len(verdict.path):
                at = at.descend(verdict.path[i])
    s.tokens += emitted
    s.chance.forget(len(s.tokens))
    return CommittedVerdict(emitted, origins, end, verdict, before)


def emitted_tokens(draft: Draft, verdict: Verdict) -> tuple[list[int], list[str]]:
    """The tokens that a verdict emits, and the origin of each."""
    emitted = [draft.tokens[node] for node in verdict.path]
    origins = ["accepted"] * len(emitted)
    if verdict.token is not None:
        emitted.append(verdict.token)
        origins.append(verdict.origin)
    return emitted, origins
