"""SAM decoding: the automaton's match is the longest by brute force, and the longer match decides who drafts."""

from __future__ import annotations

import pytest
import torch
import toys
from drafting import drafts

from decodescope.engine import MethodError
from decodescope.engine.core.component import build
from decodescope.engine.core.params import ParamError
from decodescope.engine.methods.drafters.shared.suffix_automaton import SuffixAutomaton
from decodescope.testing.contracts.drafters import collect_proposals, drafting_session

EAGLE = "eagle2 nodes=8, width=3"


def longest_match(text: list[int]) -> tuple[int, int]:
    """(length, first end) of the longest end of `text` that stood in it at an earlier place; 0: none."""
    for n in range(len(text) - 1, 0, -1):
        ends = [end for end in range(n, len(text)) if text[end - n : end] == text[-n:]]
        if ends:
            return n, ends[0]
    return 0, 0


@pytest.mark.parametrize("vocab", [2, 3, 6])
def test_the_match_is_the_longest_and_its_place_the_first(vocab: int) -> None:
    text = torch.randint(vocab, (90,), generator=torch.Generator().manual_seed(vocab)).tolist()
    made = SuffixAutomaton()
    for n in range(1, len(text) + 1):
        made.extend(text[:n])
        length, first = longest_match(text[:n])
        assert made.match == length and (not length or made.place(0) == first)
        place = made.place(8)
        shorter = [
            m
            for m in range(1, length + 1)
            if n - next(e for e in range(m, n) if text[e - m : e] == text[n - m : n]) >= 8
        ]
        if shorter:
            m = max(shorter)
            assert text[place - m : place] == text[n - m : n] and n - place >= 8


def test_the_longer_match_decides() -> None:
    """Copied where the match is long enough, and else exactly the other drafter's guess at this text."""
    knobs, seen = {"min_match": 2, "max_draft_tokens": 6, "other_drafter": EAGLE}, set()
    for text, draft, _ in drafts("sam_decoding", knobs, steps=25):
        length, first = longest_match(text)
        if length >= 2:
            at = next((x for x in draft.notes["copied"][:1]), None) if draft else None
            assert draft.notes["by"] == "text" and draft.notes["match"] == length and draft.is_chain
            assert draft.tokens == text[at : at + 6] and (at == first or len(text) - first < 6)
        else:
            assert not draft or draft.notes["by"] == "eagle2"
        seen.add(draft.notes["by"] if draft else "")
    assert seen >= {"text", "eagle2"}, "the test needs both"


def test_the_other_drafter_keeps_up_in_steps_that_copy() -> None:
    """Its guess after copied steps is the one that it makes when it drafts alone behind the same text."""
    compared = 0
    for text, draft, _ in drafts("sam_decoding", {"min_match": 3, "other_drafter": EAGLE}, steps=25):
        if draft and draft.notes["by"] == "eagle2" and len(text) > len(toys.PROMPT):
            alone = drafting_session("eagle2", {"nodes": 8, "width": 3}, prompt=text)
            other = next(collect_proposals(alone))[0]
            assert (draft.tokens, draft.parents) == (other.tokens, other.parents)
            compared += 1
    assert compared > 3


def test_a_match_in_the_datastore_counts_less() -> None:
    """With a bias of 2, a match of 3 tokens there is worth 1: less than one of 2 in the text."""
    knobs = {"min_match": 1, "datastore": toys.DATASTORE, "datastore_bias": 2, "max_draft_tokens": 5}
    by = {}
    for _, draft, _ in drafts("sam_decoding", knobs, steps=30):
        if draft:
            match, stored = draft.notes["match"], draft.notes["stored"] - 2
            due = "other" if max(match, stored) < 1 else "text" if match >= stored else "datastore"
            who = draft.notes["by"] if draft.notes["by"] in ("text", "datastore") else "other"
            assert who == due
            by[who] = by.get(who, 0) + 1
    assert by.keys() >= {"text", "datastore"}, by


def test_a_drafter_that_draws_is_refused_beside_it() -> None:
    with pytest.raises(MethodError, match="does not choose without chance"):
        toys.open_session(toys.method(drafter=("sam_decoding", {"other_drafter": "draft_model"})))
    with pytest.raises(ParamError):
        build("drafter", "sam_decoding", {"other_drafter": "nope"})
