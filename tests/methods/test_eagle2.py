"""EAGLE-2's tree, which EAGLE-3 uses too: the kept nodes are the best tree of the pool.

Every node equals what reading its path alone would give.
"""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
import toys
from drafting import drafts, path_of, read_alone

from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.methods.drafters.shared.trees import BeamPool

KINDS = {"eagle2": "eagle", "eagle3": "eagle3"}  # drafter -> its layer
NONE = -math.inf


def grown(laws: list[torch.Tensor], width: int) -> BeamPool:
    """A beam after levels with log distributions from a list: the n-th node read gets the n-th entry, cyclically."""
    beam, read = BeamPool(width), 0
    for _ in range(3):
        rows = [laws[(read + i) % len(laws)] for i in range(len(beam.open))]
        read += len(rows)
        beam.grow(torch.stack(rows).exp())
    return beam


def test_a_tree_made_by_hand() -> None:
    """The distribution is (0.5, 0.3, 0.2) everywhere, and two nodes per level are expanded.

    Level 1: 0.5 and 0.3. Level 2: 0.25 and 0.15 under the first, 0.15 and 0.09 under the second; of the equal ones the earlier
    is expanded. Level 3: 0.125, 0.075 and 0.075, 0.045. The best five of ten: 0.5, 0.3, 0.25 and twice 0.15.
    """
    beam = grown([torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()], 2)
    assert beam.tokens == [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]
    assert beam.parents == [ROOT, ROOT, 0, 0, 1, 1, 2, 2, 3, 3]
    found = [math.exp(x) for x in beam.scores]
    assert found == pytest.approx([0.5, 0.3, 0.25, 0.15, 0.15, 0.09, 0.125, 0.075, 0.075, 0.045])
    assert beam.ranking()[:5] == [0, 1, 2, 3, 4] and beam.ranking()[5] == 6


def closed(beam: BeamPool, nodes: tuple[int, ...] | list[int]) -> bool:
    return all(beam.parents[x] == ROOT or beam.parents[x] in nodes for x in nodes)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_kept_is_the_best_tree_of_the_pool_by_trying_all(seed: int) -> None:
    """Also with q = 1, so that children are worth as much as their parents, and with q = 0."""
    g = torch.Generator().manual_seed(seed)
    laws = [x.log_softmax(0) for x in torch.randn(4, 5, generator=g, dtype=torch.float64) * 2]
    laws += [torch.tensor([0.0, NONE, NONE, NONE, NONE], dtype=torch.float64)] * (seed % 3)
    beam = grown(laws, 2)
    assert 6 <= len(beam) <= 10
    for nodes in range(1, len(beam) + 1):
        kept = beam.ranking()[:nodes]
        best = max(
            sum(beam.scores[x] for x in some)
            for some in combinations(range(len(beam)), nodes)
            if closed(beam, some)
        )
        assert closed(beam, kept) and sum(beam.scores[x] for x in kept) == pytest.approx(best, abs=1e-12)


def test_equal_scores_of_parent_and_child_never_part_them() -> None:
    """A certain distribution makes chains of equal scores: every prefix of the ranking is a tree."""
    beam = grown([torch.tensor([0.0, NONE, NONE])], 3)
    assert len(beam) == 3 and beam.scores == [0.0, 0.0, 0.0] and beam.ranking() == [0, 1, 2]
    wide = grown([torch.tensor([0.0, -1e-12, NONE]), torch.tensor([1e-7, NONE, NONE])], 2)
    assert max(wide.scores) == 0.0, "a probability above 1 is a rounding"
    assert all(closed(wide, wide.ranking()[:n]) for n in range(1, len(wide) + 1))


def law_of(path: tuple[int, ...]) -> torch.Tensor:
    """A log distribution for every path, sharp after some paths and flat after others."""
    g = torch.Generator().manual_seed(hash(path) % 2**31)
    return (torch.randn(6, generator=g, dtype=torch.float64) * (1 + 4 * (len(path) % 2))).log_softmax(0)


def test_a_level_is_left_out_only_where_it_changes_nothing() -> None:
    """The kept nodes with and without the omitted passes; in some trees several passes are omitted."""
    spared = 0
    for start in range(20):
        for nodes in (2, 5, 9):
            beam, known, paths = BeamPool(3), None, {ROOT: (start,)}
            for level in range(5):
                beam.grow(torch.stack([law_of(paths[x]) for x in beam.open]).exp())
                for x in range(len(beam)):
                    paths.setdefault(x, (*paths[beam.parents[x]], beam.tokens[x]))
                if known is None and beam.is_settled(nodes):
                    known, spared = beam.ranking()[:nodes], spared + 4 - level
            assert known is None or known == beam.ranking()[:nodes]
    assert spared > 20, "the test needs trees that are settled early"


def scored(kind: str, text: list[int], path: list[int]) -> torch.Tensor:
    """float64 [V]: log q after text and path, read alone."""
    return read_alone(KINDS[kind], text, path)[0].log_softmax(-1)


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_tree_is_what_the_algorithm_makes_of_every_path_alone(kind: str, sampler: str) -> None:
    """The pool, computed again with whole paths: at every level the best three of the level before get three children each."""
    deep = 0
    for text, draft, _ in drafts(kind, {"nodes": 9, "depth": 4, "width": 3}, 5, sampler):
        pool: dict[tuple[int, ...], float] = {}
        last: dict[tuple[int, ...], float] = {(): 0.0}
        for _ in range(4):
            new = {}
            for path in sorted(last, key=lambda x: -last[x])[:3]:
                values, ids = scored(kind, text, list(path)).topk(3)
                new |= {
                    (*path, x): last[path] + v for x, v in zip(ids.tolist(), values.tolist(), strict=True)
                }
            pool, last = pool | new, new
        due = sorted(pool, key=lambda x: -pool[x])[:9]
        paths = [tuple(path_of(draft, node)) for node in range(len(draft))]
        assert set(paths) == set(due)
        assert draft.notes["scores"] == pytest.approx([pool[path] for path in paths], abs=1e-4)
        assert draft.kind == "onehot" and draft.q is None
        deep = max(deep, *draft.depth)
    assert deep > 2


@pytest.mark.parametrize("kind", KINDS)
def test_notes_tell_the_choice(kind: str) -> None:
    """The kept scores, their places by score, whether a node rests on a guessed feature, and the best of the dropped."""
    dropped = 0
    for text, draft, _ in drafts(kind, {"nodes": 6, "depth": 3, "width": 3}, 6):
        notes = draft.notes
        by_place = sorted(range(len(draft)), key=lambda x: notes["places"][x])
        assert [notes["places"][x] for x in by_place] == list(range(len(draft)))
        assert [notes["scores"][x] for x in by_place] == sorted(notes["scores"], reverse=True)
        assert notes["predicted"] == [depth > 1 for depth in draft.depth]
        assert notes["passes"] <= 2 and len(draft) + notes["dropped"]["nodes"] == notes["pool"]
        for parent, token, score in notes["dropped"]["best"]:
            path = path_of(draft, parent)
            above = notes["scores"][parent] if parent >= 0 else 0.0
            assert score <= min(notes["scores"]) + 1e-4
            assert score == pytest.approx(above + float(scored(kind, text, path)[token]), abs=3e-4)
            assert token not in [draft.tokens[x] for x in draft.children(parent)]
            dropped += 1
    assert dropped > 10


@pytest.mark.parametrize("kind", KINDS)
def test_cache_holds_true_states_of_what_was_accepted_and_nothing_else(kind: str) -> None:
    decoder = toys.pair()[0].decoder
    made = list(drafts(kind, {"nodes": 40, "width": 10}, 10))
    drafter, text = made[-1][2], made[-1][0]
    with torch.inference_mode():
        drafter._walk.read_root()
    store = drafter._walk.store
    whole = [*toys.PROMPT, *toys.greedy_text(decoder, toys.PROMPT, 60)]
    assert whole[: len(text)] == text and store.n >= len(text)
    _, due = read_alone(KINDS[kind], whole[: store.n + 1], [])
    assert store.m == 0 and store.n == due.n > len(toys.PROMPT) + 9
    assert torch.allclose(store.k, due.k, atol=1e-9) and torch.allclose(store.v, due.v, atol=1e-9)


def test_the_papers_tree_can_be_asked_for() -> None:
    """60 nodes with the root, 10 by 10 a level, 7 levels after the first: a pool of 10 + 7 x 100, here of 13 ids."""
    drafter = toys.method(drafter=("eagle2", {"nodes": 59, "depth": 8, "width": 10})).drafter
    assert (drafter.nodes, drafter.depth, drafter.width) == (59, 8, 10)
    _, draft, _ = next(drafts("eagle2", {"nodes": 59, "depth": 8, "width": 10}, 1))
    assert len(draft) == 59 and draft.notes["pool"] <= 10 + 7 * 100
    assert draft.notes["pool"] == 10 + draft.notes["passes"] * 100


@pytest.mark.parametrize("kind", KINDS)
def test_one_node_or_one_way_is_a_chain(kind: str) -> None:
    for settings in (dict(nodes=1), dict(nodes=5, width=1)):
        method = toys.method(drafter=(kind, settings))
        assert not method.drafter.branches
        for _, draft, _ in drafts(kind, settings, 3):
            assert draft.is_chain and 1 <= len(draft) <= settings["nodes"]


def test_a_sampler_that_rules_tokens_out_is_not_offered_them() -> None:
    """Under top-k 2 the draft's own distribution has two tokens per place; a wider tree has no more."""
    target, _ = toys.pair()
    session = toys.Session(
        target, toys.method(drafter=("eagle2", dict(nodes=12, width=6)), sampler="top_k"), toys.PROMPT
    )
    session.method.sampler.k = 2
    session.start()
    with torch.inference_mode():
        draft: Draft = session.drafter.propose(session.context)
    assert len(draft) > 4 and max(len(draft.children(x)) for x in range(-1, len(draft))) == 2
