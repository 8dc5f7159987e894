"""Suffix decoding: the draft is the best-scored path of two counted tries; earlier outputs are a file, named by its hash."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import toys
from drafting import drafts

from decodescope.engine.methods.drafters.shared.datastore import BETWEEN, load_datastore
from decodescope.engine.trace import check

IDS = [int(x) for x in Path(toys.DATASTORE).read_text().split()]
KNOBS: dict[str, Any] = dict(
    max_draft_tokens=6, max_spec_factor=1.5, max_spec_offset=0.5, min_probability=0.1, max_depth=7
)


class Trie:
    """The definition: every sequence of up to `depth` tokens, with its count, and when it was last counted."""

    def __init__(self, sequences: Sequence[Sequence[int]], depth: int):
        self.count, self.time, clock = {(): 0}, {}, count()
        self.children: dict[tuple[int, ...], list[int]] = {}
        for x in sequences:
            for end in range(1, len(x) + 1):
                for start in range(max(0, end - depth), end):
                    path = tuple(x[start:end])
                    if path not in self.count:
                        self.children.setdefault(path[:-1], []).append(path[-1])
                    self.count[path] = self.count.get(path, 0) + 1
                    self.time[path] = next(clock)

    def ranked(self, path: tuple[int, ...]) -> list[int]:
        """Its children by count; of equal ones the one that came to it first."""
        kids = [(*path, x) for x in self.children.get(path, [])]
        return [kid[-1] for kid in sorted(kids, key=lambda kid: (-self.count[kid], self.time[kid]))]

    def chain(self, suffix: tuple[int, ...], most: int, least: float) -> list[tuple[tuple[int, ...], float]]:
        """(path below the suffix, its probability) of the most frequent continuation."""
        out: list[tuple[tuple[int, ...], float]] = []
        path, p = suffix, 1.0
        while len(out) < most and (kids := self.ranked(path)):
            p *= self.count[(*path, kids[0])] / self.count[path]
            path = (*path, kids[0])
            if p < least:
                break
            out.append((path[len(suffix) :], p))
        return out

    def tree(self, suffix: tuple[int, ...], most: int, least: float) -> list[tuple[tuple[int, ...], float]]:
        """The same of the most probable paths together."""
        out: list[tuple[tuple[int, ...], float]] = []
        heap: list[tuple[float, int, tuple[int, ...]]] = [(-1.0, 0, suffix)]
        turn = count(1)
        while heap and len(out) < most:
            p, _, path = heapq.heappop(heap)
            out += [(path[len(suffix) :], -p)] if path != suffix else []
            for token in self.ranked(path):
                p_child = -p * self.count[(*path, token)] / self.count[path]
                if p_child >= least:
                    heapq.heappush(heap, (-p_child, next(turn), (*path, token)))
        return out

    def best(self, text: list[int], room: int, knobs: dict, tree: bool) -> tuple[float, list]:
        best: tuple[float, list] = (0.0, [])
        for m in range(1, min(knobs["max_depth"], len(text))):
            suffix = tuple(text[-m:])
            if suffix not in self.count:
                break
            size = min(
                int(m * knobs["max_spec_factor"] + knobs["max_spec_offset"]), knobs["max_draft_tokens"]
            )
            found = (self.tree if tree else self.chain)(
                suffix, size if tree else min(size, room), knobs["min_probability"]
            )
            score = sum(p for _, p in found)
            if found and score >= best[0] - 1e-12:
                best = score, found
        return best


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("outputs", [False, True])
def test_the_draft_is_that_of_two_counted_tries(outputs: bool, tree: bool) -> None:
    """Against tries that hold every sequence; with the outputs, both trees win at times."""
    knobs = {**KNOBS, "use_tree": tree, **({"outputs": toys.DATASTORE} if outputs else {})}
    stored, sources = Trie([IDS], KNOBS["max_depth"]), set()
    for text, draft, _ in drafts("suffix_decoding", knobs, steps=30):
        room = KNOBS["max_depth"]  # the text has more, and a tree ends there
        best = Trie([text], KNOBS["max_depth"]).best(text, room, KNOBS, tree)
        other = stored.best(text, room, KNOBS, tree) if outputs else (0.0, [])
        score, due = best if best[0] >= other[0] - 1e-12 else other
        assert [round(p, 4) for _, p in due] == (draft.notes["probabilities"] if draft else [])
        if draft:
            sources.add(draft.notes["tree"])
            assert draft.notes["score"] == pytest.approx(score, abs=1e-3)
            paths = [draft.tokens[i] for i in range(len(draft))]
            assert paths == [path[-1] for path, _ in due]
    assert sources == ({"request", "outputs"} if outputs else {"request"})


def test_a_long_match_is_followed_further() -> None:
    """The text repeats: with factor 1 and no other limit the draft grows with the match."""
    prompt = [*range(10), 11, *range(8)]
    for n in (2, 5, 8):
        text = prompt[: 11 + n]
        session = toys.decode(toys.method(drafter=("suffix_decoding", {"max_depth": 40})), text, 30)
        first = session.sink.steps[0]
        # a prompt's last token is the root
        assert first.draft.notes["match"] == n and first.draft.tokens == [*range(n, 10), 11, *range(n)][:n]


def test_earlier_outputs_are_kept_apart_and_named_by_their_hash(tmp_path: Path) -> None:
    file = tmp_path / "outputs.txt"
    file.write_text(f"1 2 3 4{BETWEEN}5 6 7 8")
    store = load_datastore(str(file), None, 13)
    assert store.find([3, 4])[1] > store.find([3, 4])[0] and store.find([4, 5]) == store.find([4, 5])[:1] * 2
    method = toys.method(drafter=("suffix_decoding", {"outputs": str(file)}), sampler="temperature")
    session = toys.decode(method, [9, 5, 6], 8)
    assert session.header.method["drafter"]["outputs"].startswith("outputs.txt@") and session.header.lossless
    assert session.sink.steps[0].draft.tokens[0] == 7 and check(session.sink).ok
