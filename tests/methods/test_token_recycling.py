"""Token recycling: the table holds the target's latest top tokens, and the templates are the best trees of their size."""

from __future__ import annotations

from itertools import product

import pytest
import torch
import toys

from decodescope.engine import Session
from decodescope.engine.core.component import build
from decodescope.engine.decoding.shared import verify_cost as curve
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.methods.drafters.lookup.token_recycling import RATES, SIZES
from decodescope.engine.methods.drafters.shared.trees import best_tree


def test_table_holds_the_top_successors_at_a_place_where_the_token_was_read() -> None:
    """After a step A[t] is the top 8 of a row with the token t, of the accepted row if there is one."""
    session = Session(
        *toys.pair()[:1], toys.method(drafter=("token_recycling", {"nodes": "24"})), toys.PROMPT
    )
    session.start()
    drafter, rejected = session.drafter, 0
    seen, observe = [], drafter.observe
    drafter.observe = lambda outcome: (seen.append(outcome), observe(outcome))  # type: ignore[method-assign]
    while not session.is_done:
        before = dict(drafter._table)
        session.step()
        out = seen[-1]
        read = [out.root, *out.draft.tokens]
        path = [0, *(node + 1 for node in out.verdict.path)]
        best = out.logits.topk(8, -1).indices.tolist()
        for token, row in drafter._table.items():
            places = [i for i, t in enumerate(read) if t == token]
            accepted = [i for i in places if i in path]
            assert row in [best[i] for i in (accepted[-1:] or places)] if places else row == before[token]
        rejected += len(read) - len(path)
    assert rejected > 50


@pytest.mark.parametrize("size", SIZES)
def test_template_is_prefix_closed(size: int) -> None:
    tree = best_tree(RATES, size)
    ranks = {(parent, rank) for parent, rank in zip(tree.parents, tree.ranks, strict=True)}
    assert len(tree) == len(ranks) == size and all(parent < node for node, parent in enumerate(tree.parents))
    assert all((parent, rank - 1) in ranks for parent, rank in ranks if rank), "a better rank is tried first"


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("rates", [(0.6, 0.3), (0.4, 0.35, 0.2), (0.9, 0.05), (0.5, 0.5)])
def test_template_is_the_best_tree_of_its_size(rates: tuple[float, ...], size: int) -> None:
    """Compared with every prefix-closed set of `size` rank paths."""
    paths = [p for depth in range(1, size + 1) for p in product(range(len(rates)), repeat=depth)]
    worth = {p: torch.tensor([rates[r] for r in p], dtype=torch.float64).prod().item() for p in paths}
    grown = {frozenset[tuple[int, ...]]()}
    for _ in range(size):
        grown = {s | {p} for s in grown for p in paths if p not in s and (len(p) == 1 or p[:-1] in s)}
    best = 1 + max(sum(worth[p] for p in s) for s in grown)
    assert best_tree(rates, size).expected == pytest.approx(best)


def cold(unread: str) -> Session:
    """A run from an empty table."""
    knobs = {"nodes": "16", "table_from_prompt": False, "unseen_token": unread}
    return toys.decode(toys.method(drafter=("token_recycling", knobs)), count=20)


def test_without_a_table_there_is_nothing_to_draft_or_id_0_along_the_first_ranks() -> None:
    stop, zero = cold("stop"), cold("zero")
    assert stop.sink.steps[0].drafted == 0 and len(stop.sink.steps[0].emitted) == 1
    assert any(step.drafted for step in stop.sink.steps[1:])
    first, template = zero.sink.steps[0].draft, best_tree(RATES, 16)
    depth = max(Draft([0] * 16, list(template.parents)).depth)
    assert first.tokens == [0] * depth and first.parents == list(range(-1, depth - 1)), "once a place"
    assert stop.tokens == zero.tokens, "the text is the target's"


@pytest.mark.parametrize("unread", ["stop", "zero"])
def test_what_follows_a_token_that_was_never_read(unread: str) -> None:
    """Every node has its parent's successor of its rank in the table at that time; a token without a row has none, or id 0."""
    knobs = {"nodes": "24", "table_from_prompt": False, "unseen_token": unread}
    session = Session(
        toys.pair()[0], toys.method(drafter=("token_recycling", knobs)), toys.PROMPT, max_new_tokens=40
    )
    session.start()
    tree, ends = best_tree(RATES, 24), 0
    while session.context.room > max(Draft([0] * 24, list(tree.parents)).depth):
        table = {token: list(row) for token, row in session.drafter._table.items()}
        due: dict[tuple[int, ...], int] = {}  # ranks from the root -> token
        paths: list[tuple[int, ...]] = []
        for parent, rank in zip(tree.parents, tree.ranks, strict=True):
            path = (*(paths[parent] if parent >= 0 else ()), rank)
            paths.append(path)
            above = session.tokens[-1] if len(path) == 1 else due.get(path[:-1])
            row = [] if above is None else table.get(above, [0] if unread == "zero" else [])
            ends += above is not None and above not in table
            if rank < len(row):
                due[path] = row[rank]
        assert session.drafter.propose(session.context).tokens == list(due.values())
        session.step()
    assert ends > 10, "the test needs tokens that were never read"


def test_auto_takes_the_size_with_most_tokens_per_microsecond(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = Session(toys.pair()[0], toys.method(), toys.PROMPT).context
    yields = [best_tree(RATES, n).expected for n in SIZES]
    for costs in (
        [1.0] * 4,
        [1, 1.01, 5, 9],
        [1, 2, 3, 4],
        [y * c for y, c in zip(yields, (2, 2, 1.9, 2), strict=True)],
    ):
        monkeypatch.setattr(curve, "verify_costs", lambda *_, costs=costs: costs)
        rates = [y / c for y, c in zip(yields, costs, strict=True)]
        assert build("drafter", "token_recycling").best_size(ctx) == SIZES[rates.index(max(rates))]


def test_auto_measures_this_device_and_says_what_it_took() -> None:
    target, draft = toys.model(toys.decoder()), toys.draft()
    session = toys.decode(toys.method(drafter="token_recycling"), pair=(target, draft), count=10)
    assert session.header.method["drafter"]["nodes"] in map(str, SIZES)
    (measured,) = target.decoder.costs.values()
    assert set(measured) == {n + 1 for n in SIZES} and all(x > 0 for x in measured.values())
