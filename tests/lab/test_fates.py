"""Fates: what a life says of merges and packing is what the cache's own log said."""

from __future__ import annotations

import numpy as np
import toys

from decodescope.lab.cache.lives import KEPT, Lives

PROMPT = toys.PROMPT * 2


def test_a_life_says_what_an_entry_became_part_of() -> None:
    session = toys.decode(toys.method(policy=("d2o", dict(heavy=5, recent=4, sinks=2))), PROMPT, count=20)
    lives, steps = Lives.of(session.sink), session.sink.steps
    last, merged = len(steps) - 1, 0
    for i, step in enumerate(steps):
        change = step.cache[0]
        if change.merged is None:
            continue
        for (layer, head, source, target), (similarity, weight) in zip(change.merged, change.merged_by, strict=True):
            row, letter = layer * 2 + head, lives.life(source, i)[layer * 2 + head]
            into = [x for x in lives.fates.of(int(source), i)["into"] if x[0] == row]
            if target < 0:
                assert not into and letter[1] != "M"
                continue
            merged += 1
            assert letter == (i, "M") and not [x for x in lives.fates.of(int(source), i - 1)["into"] if x[0] == row]
            assert into == [[row, target, round(float(similarity), 4), round(float(weight), 4)]]
            assert source in dict(lives.fates.of(int(target), i)["took"])[row]
    assert merged > 20, "the test needs merges"
    grid = lives.fates.merged(last, lives.rows, 1, lives.length[last])
    assert grid is not None and grid.sum() == merged and (lives.left(last)[grid] != KEPT).all()
    binned = lives.fates.merged(last, lives.rows, 7, -(-lives.length[last] // 7))
    assert binned is not None and (np.flatnonzero(binned.any(0)) == np.unique(np.flatnonzero(grid.any(0)) // 7)).all()
    assert "M" in {row["why"] for row in lives.table(last, 0, 40)}


def test_a_life_says_when_its_entry_was_packed_and_how_far_off_it_is() -> None:
    session = toys.decode(toys.method(codec=("kivi", dict(group=4, residual=8))), PROMPT, count=20)
    lives, last = Lives.of(session.sink), len(session.sink.steps) - 1
    packs = [(i, x.cache[0].packed) for i, x in enumerate(session.sink.steps) if x.cache[0].packed is not None]
    assert len(packs) > 1 and lives.fates.packed_to(last) == packs[-1][1].stop
    for i, packed in packs:
        due = [i, session.header.parts["codec"]["bits"], packed.key_error, packed.value_error]
        assert lives.fates.of(packed.stop - 1, last)["packed"] == due
        assert packed.stop == 0 or lives.fates.of(packed.stop - 1, i - 1)["packed"] is None
    assert lives.fates.of(lives.length[last] - 1, last)["packed"] is None and lives.fates.merged(last, 6, 1, 50) is None
