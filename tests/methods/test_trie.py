"""Trie: the counts equal those of a plain search, the draft is the best part of the matches, and decay keeps it small."""

from __future__ import annotations

import copy
import random
from itertools import product

import pytest
import toys
from drafting import drafts, path_of
from law.cases import SAMPLERS

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.session.method import Method
from decodescope.testing.reference import text_distribution
from decodescope.testing.tables import logit_table, table_model
from decodescope.testing.walk import Walk, distribution_distance


def context(text: list[int], prompt: int, room: int = 99) -> Context:
    return Context(text, None, {}, None, None, None, room, prompt)  # type: ignore[arg-type] # only the text is used


def counted(text: list[int], path: list[int]) -> int:
    return sum(text[i : i + len(path)] == path for i in range(len(text) - len(path) + 1))


def paths(forest: dict, above: tuple[int, ...] = ()) -> dict[tuple[int, ...], tuple[int, float]]:
    """Path -> (f_in, f_out) of every node."""
    found = {}
    for token, node in forest.items():
        found[*above, token] = (node.f_in, node.f_out)
        found |= paths(node.children, (*above, token))
    return found


def grown(drafter, prompt: list[int], text: list[int], seed: int = 0) -> list[tuple[int, Draft]]:
    """(tokens read, draft) while the drafter reads prompt and text in pieces, as a run would give them."""
    chance, read, made = random.Random(seed), len(prompt), []
    drafter.begin(context(prompt, len(prompt)))
    while read < len(prompt) + len(text):
        read = min(read + chance.randrange(1, 4), len(prompt) + len(text))
        made.append((read, drafter.propose(context((prompt + text)[:read], len(prompt)))))
    return made


@pytest.mark.parametrize("length", [1, 3, 6])
def test_counts_equal_a_plain_search(length: int) -> None:
    chance = random.Random(length)
    prompt, text = ([chance.randrange(3) for _ in range(n)] for n in (30, 40))
    drafter = build("drafter", "trie", dict(depth=length, max_output_nodes=65536))
    grown(drafter, prompt, text)
    every = [list(x) for n in range(1, length + 2) for x in product(range(3), repeat=n)] if length < 6 else []
    every += [
        x[i : i + n] for x in (prompt, text) for n in range(1, length + 2) for i in range(len(x) - n + 1)
    ]
    due = {tuple(x): (counted(prompt, x), counted(text, x)) for x in every}
    assert paths(drafter._forest.roots) == {path: counts for path, counts in due.items() if any(counts)}


def searched(text: list[int], prompt: int, knobs: dict) -> set[tuple[int, ...]]:
    """The definition as a search over all windows: the paths of the best nodes below the last suffix that is tried."""
    found: set[tuple[int, ...]] = set()
    for n in range(min(knobs["max_suffix"], len(text)), 0, -1):
        suffix, scores = text[-n:], {}
        for part, weight in (
            (text[:prompt], 1 - knobs["output_weight"]),
            (text[prompt:], knobs["output_weight"]),
        ):
            for i in range(len(part) - n + 1):
                for end in range(i + n + 1, min(len(part), i + knobs["depth"] + 1) + 1):
                    if part[i : i + n] == suffix:
                        path = tuple(part[i + n : end])
                        scores[path] = scores.get(path, 0.0) + weight
        best = sorted(scores, key=lambda path: (-round(scores[path], 9), len(path)))
        if scores:
            found = set(best[: knobs["nodes"]]), {x: round(scores[x], 9) for x in scores}
        if min(len(scores), knobs["nodes"]) >= min(knobs["depth"], knobs["nodes"]):
            break
    return found


@pytest.mark.parametrize(
    ("nodes", "query", "weight"), [(64, 2, 1e-4), (6, 3, 1e-4), (5, 1, 0.5), (1, 2, 0.0)]
)
def test_draft_is_the_best_of_what_a_search_finds(nodes: int, query: int, weight: float) -> None:
    """Equal nodes may be chosen in any order, so scores and depths are compared, node for node."""
    knobs = dict(nodes=nodes, max_suffix=query, output_weight=weight, depth=4)
    chance, cut = random.Random(nodes), 0
    prompt, text = ([chance.randrange(4) for _ in range(40)] for _ in range(2))
    for read, draft in grown(build("drafter", "trie", knobs), prompt, text):
        due = searched((prompt + text)[:read], len(prompt), knobs)
        if not due:
            assert not draft
            continue
        best, scores = due
        drafted = [tuple(path_of(draft, node)) for node in range(len(draft))]
        assert len(set(drafted)) == len(draft) == len(best)
        key = [(-scores[x], len(x)) for x in sorted(best, key=lambda x: (-scores[x], len(x)))]
        assert sorted((-scores[x], len(x)) for x in drafted) == key
        for node, path in enumerate(drafted):
            f_in, f_out = draft.notes["f_in"][node], draft.notes["f_out"][node]
            assert (1 - weight) * f_in + weight * f_out == pytest.approx(scores[path])
        cut += len(scores) > len(draft)
    assert cut > 10 or nodes > 6, "the test needs drafts that leave something out"


def test_example_by_hand() -> None:
    """1 2 3 | 1 2 3 | 1 2 4 | 1: after 1 comes 2, three times; then 3 twice and 4 once; the tokens after these are rarer."""
    drafter = build("drafter", "trie", dict(depth=3, nodes=5, max_suffix=1))
    prompt = [1, 2, 3, 1, 2, 3, 1, 2, 4, 1]
    drafter.begin(context(prompt, len(prompt)))
    draft = drafter.propose(context(prompt, len(prompt)))
    # depth first: 2, below it 3 with its 1, then 4 with its 1
    assert (draft.tokens, draft.parents) == ([2, 3, 1, 4, 1], [-1, 0, 1, 0, 3])
    counts = {"f_in": [3, 2, 2, 1, 1], "f_out": [0.0] * 5, "matched": [1], "dropped": 0}
    assert draft.notes == counts | {"copied": [7, 5, 6, 8, 9]}, "each path where it stood last"


def test_mask_row_of_a_node_is_its_ancestors_and_siblings_differ() -> None:
    wide = 0
    for _, draft, _ in drafts("trie", dict(nodes=20, depth=5), steps=25):
        for node, row in enumerate(draft.ancestry()[1:, 1:].tolist()):
            above = node
            while above >= 0:
                assert row[above]
                row[above], above = False, draft.parents[above]
            assert not any(row)
        places = [(parent, token) for parent, token in zip(draft.parents, draft.tokens, strict=True)]
        assert len(set(places)) == len(places)
        wide += not draft.is_chain
    assert wide > 5


def test_the_prompt_comes_first_unless_the_text_weighs_more() -> None:
    """After 7 the prompt has 1, once; the text has 2, twice."""
    prompt, text = [7, 1, 5], [7, 2, 7, 2, 7]
    for weight, first in ((1e-4, 1), (0.5, 2), (1.0, 2)):
        drafter = build("drafter", "trie", dict(depth=1, nodes=2, max_suffix=1, output_weight=weight))
        _, draft = grown(drafter, prompt, text)[-1]
        assert draft.tokens == [first, 3 - first]


def test_decay_halves_the_counts_of_the_text_alone() -> None:
    """Three nodes of the trie of 1 have an f_out: one more than allowed."""
    drafter = build("drafter", "trie", dict(depth=1, max_output_nodes=2, max_suffix=1))
    drafter.begin(context([1, 9, 1, 9], 4))
    drafter.propose(context([1, 9, 1, 9, *[1, 2, 1, 2, 1]], 4))
    assert paths(drafter._forest.roots)[1,] == (2, 3) and paths(drafter._forest.roots)[1, 2] == (0, 2)
    drafter.propose(context([1, 9, 1, 9, *[1, 2, 1, 2, 1, 3]], 4))
    left = {path: counts for path, counts in paths(drafter._forest.roots).items() if path[0] == 1}
    assert left == {(1,): (2, 1.5), (1, 9): (2, 0.0), (1, 2): (0, 1.0)}
    assert drafter._forest.sizes[1] == 2


@pytest.mark.parametrize("most", [1, 4, 20])
def test_decay_keeps_every_trie_small_and_no_count_above_its_parents(most: int) -> None:
    chance = random.Random(most)
    prompt, text = [1, 2, 3, 1, 2], [chance.randrange(3) for _ in range(400)]
    drafter = build("drafter", "trie", dict(depth=5, max_output_nodes=most))
    squeezed = sum(draft.notes["dropped"] for _, draft in grown(drafter, prompt, text) if draft)
    assert squeezed > 100
    found = paths(drafter._forest.roots)
    for first, size in drafter._forest.sizes.items():
        with_text = [path for path, (_, f_out) in found.items() if path[0] == first and f_out > 0]
        assert len(with_text) == size <= most + 5, "it may grow by one window before it is halved again"
    for path, (f_in, f_out) in found.items():
        if len(path) > 1:
            assert f_in + f_out > 0 and f_in <= found[path[:-1]][0] and f_out <= found[path[:-1]][1]
    assert all(counted(prompt, list(path)) == f_in for path, (f_in, _) in found.items()), (
        "the prompt's counts stay"
    )


def test_a_copy_goes_its_own_way() -> None:
    drafter = build("drafter", "trie", dict(depth=32))
    text = [random.Random(1).randrange(4) for _ in range(80)]
    drafter.begin(context(text, 40))
    before = paths(drafter._forest.roots)
    other = copy.deepcopy(drafter)
    other.propose(context([*text, 3, 3, 3], 40))
    assert paths(drafter._forest.roots) == before != paths(other._forest.roots)


@pytest.mark.parametrize("sampler", ["T=0.7", "T=1.5, top-p 0.8", "penalty, mirostat"])
def test_law_of_whole_runs_is_the_targets(sampler: str) -> None:
    logits, prompt = logit_table(3, seed=1), [1, 2, 0, 1, 0, 2, 1, 2, 0, 1]
    drafter = build(
        "drafter", "trie", dict(nodes=4, depth=2, max_suffix=1, output_weight=0.5, max_output_nodes=1)
    )
    method = Method(drafter=drafter, sampler=SAMPLERS[sampler][0])
    walk = Walk(method, {"target": table_model(logits, 3)}, 5, prompt=prompt)
    propose, trees = walk.s.drafter.propose, []
    walk.s.drafter.propose = lambda ctx: trees.append(propose(ctx)) or trees[-1]  # type: ignore[method-assign]
    assert (
        distribution_distance(
            walk.full_run_distribution(), text_distribution(logits, SAMPLERS[sampler][1], prompt, 5, 3)
        )
        <= 1e-12
    )
    assert sum(not draft.is_chain for draft in trees) > 10, "the test needs trees"
    assert max(draft.notes["dropped"] for draft in trees if draft) > 0, "and tries that lost nodes"


def test_trace_says_what_was_matched() -> None:
    trace = toys.decode(toys.method(drafter=("trie", dict(nodes=10, depth=4)))).sink
    text, seen = list(toys.PROMPT), 0
    for step in trace.steps:
        if step.drafted:
            notes = step.draft.notes
            assert notes["matched"] == text[-len(notes["matched"]) :] and len(notes["f_in"]) == step.drafted
            seen += 1
        text += step.emitted
    assert seen > 10
