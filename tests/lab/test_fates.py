"""Fates: an entry's lifetime reports the merges and packing that the cache's own log recorded."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import toys

from decodescope.engine.trace.records.events import CacheChange
from decodescope.lab.cache.entry_changes import EntryChanges
from decodescope.lab.cache.lifetimes import KEPT, EntryLifetimes
from decodescope.lab.cache.needle import span_lifetime

PROMPT = toys.PROMPT * 2


def test_a_life_says_what_an_entry_became_part_of() -> None:
    session = toys.decode(
        toys.method(policy=("d2o", dict(heavy=5, recent=4, sink_tokens=2))), PROMPT, count=20
    )
    lives, steps = EntryLifetimes.of(session.sink), session.sink.steps
    last, merged = len(steps) - 1, 0
    for i, step in enumerate(steps):
        change = step.cache[0]
        if change.merged is None:
            continue
        for (layer, head, source, target), (similarity, weight) in zip(
            change.merged, change.merged_by, strict=True
        ):
            row, letter = layer * 2 + head, lives.lifetime(source, i)[layer * 2 + head]
            into = [x for x in lives.fates.of(int(source), i)["into"] if x[0] == row]
            if target < 0:
                assert not into and letter[1] != "M"
                continue
            merged += 1
            assert letter == (i, "M") and not [
                x for x in lives.fates.of(int(source), i - 1)["into"] if x[0] == row
            ]
            assert into == [[row, target, round(float(similarity), 4), round(float(weight), 4)]]
            assert source in dict(lives.fates.of(int(target), i)["took"])[row]
    assert merged > 20, "the test needs merges"
    grid = lives.fates.merge_map(last, lives.rows, 1, lives.length[last])
    assert grid is not None and grid.sum() == merged and (lives.eviction_steps(last)[grid] != KEPT).all()
    binned = lives.fates.merge_map(last, lives.rows, 7, -(-lives.length[last] // 7))
    assert (
        binned is not None
        and (np.flatnonzero(binned.any(0)) == np.unique(np.flatnonzero(grid.any(0)) // 7)).all()
    )
    whys = {row["position"]: row["why"] for row in lives.table(last, 0, 40)}
    assert "M" in whys.values()
    gone = {p: {letter for left, letter in lives.lifetime(p, last) if left is not None} for p in whys}
    story = span_lifetime(lives, p := next(p for p, letters in gone.items() if letters == {"M"}), p, last)
    assert story["sentence"].endswith("it was merged into entries like it.") and {
        x["why"] for x in story["rows"]
    } <= {"M", ""}
    for p, letters in gone.items():
        assert whys[p] == ("M" if "M" in letters else "".join(letters))
        assert {x["why"] for x in span_lifetime(lives, p, p, last)["rows"]} - {""} == letters


def test_a_merge_that_is_learnt_while_others_are_looked_at_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def merge(source: int, head: int = 0) -> CacheChange:
        rows, weights = np.array([[0, head, source, 0]], np.int32), np.ones((1, 2), np.float32)
        return CacheChange("target", 1, 1, 0, 0, merged=rows, merged_by=weights)

    fates, concatenate = EntryChanges(2, None), np.concatenate
    late = threading.Thread(target=lambda: fates.learn(merge(6), 1))

    def slow(parts: list[np.ndarray]) -> np.ndarray:
        joined = concatenate(parts)
        late.start()
        late.join(0.1)  # `late` waits for this call to end
        return joined

    fates.learn(merge(5), 0)
    fates.learn(merge(7, head=2), 0)  # this model has no such head
    monkeypatch.setattr(np, "concatenate", slow)
    assert fates.sources(1) <= {5, 6}
    monkeypatch.undo()
    late.join()
    assert fates.sources(1, 0) == {5, 6} and fates.sources(0) == {5} and not fates.sources(1, 2)


def test_a_life_says_when_its_entry_was_packed_and_how_far_off_it_is() -> None:
    session = toys.decode(toys.method(kv_compression=("kivi", dict(group=4, buffer=8))), PROMPT, count=20)
    lives, last = EntryLifetimes.of(session.sink), len(session.sink.steps) - 1
    packs = [
        (i, x.cache[0].packed) for i, x in enumerate(session.sink.steps) if x.cache[0].packed is not None
    ]
    assert len(packs) > 1 and lives.fates.packed_length(last) == packs[-1][1].stop
    for i, packed in packs:
        due = [i, session.header.parts["kv_compression"]["bits"], packed.key_error, packed.value_error]
        assert lives.fates.of(packed.stop - 1, last)["packed"] == due
        assert packed.stop == 0 or lives.fates.of(packed.stop - 1, i - 1)["packed"] is None
    assert (
        lives.fates.of(lives.length[last] - 1, last)["packed"] is None
        and lives.fates.merge_map(last, 6, 1, 50) is None
    )
