"""DySpec: the tree equals the one that repeatedly taking the most valuable slot would grow, one level per pass."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import pytest
import torch
import toys

from decodescope.engine import Session
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.methods.drafters.draft_model.dyspec import DySpec
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.session.method import Method
from decodescope.testing.tables import PROMPT, constant_logits, table_model

HALF = (0.5, 0.3, 0.2)


class Likeliest(Chance):
    """Every draw takes the likeliest token."""

    def uniform(self, position, purpose):
        return 0.0  # the distributions below are in falling order


def proposed(
    drafter: DySpec, table=None, chance: Chance | None = None, room: int = 20
) -> tuple[Draft, Session]:
    """One proposal with a table as the draft model."""
    made = table_model(table or constant_logits(*HALF), len(HALF))
    method = Method(drafter=drafter, sampler=Temperature(temperature=1.0))
    session = Session(made, method, PROMPT, models={"draft": made}, max_new_tokens=room + 1)
    session.start()
    if chance is not None:
        session.chance = chance
    with torch.inference_mode():
        return session.drafter.propose(session.context), session


def test_a_tree_made_by_hand() -> None:
    """The distribution is (0.5, 0.3, 0.2) everywhere, and the likeliest token is drawn.

    Slot values: the root's first child has 1; the slot below it has 0.5, and its sibling slot 0.5. The sibling, token 1, is
    drawn with 0.3 / 0.5 = 0.6: below it 0.3, next to it 0.2. Below the first child: 0.25 and 0.25. The best four: 1, 0.5, 0.5,
    0.3.
    """
    draft, _ = proposed(DySpec(nodes=4), chance=Likeliest(0))
    assert (draft.tokens, draft.parents) == ([0, 1, 0, 0], [ROOT, ROOT, 0, 1])
    assert draft.notes["values"] == [1.0, 0.5, 0.5, 0.3]
    assert [round(float(draft.law(x)[draft.tokens[x]]), 6) for x in range(4)] == [0.5, 0.6, 0.5, 0.5]
    assert draft.notes["expected"] == pytest.approx(1 + 0.5 + 0.5 * 0.6 + 0.5 * 0.5 + 0.3 * 0.5)


def one_by_one(nodes: int, length: int) -> tuple[list[float], set[tuple[int, ...]]]:
    """Values in the order of the heap, and the paths: the published algorithm, with the likeliest token drawn."""
    heap, values, paths = [(-1.0, (), HALF)], [], set()
    while heap and len(values) < nodes:
        least, above, law = heapq.heappop(heap)
        y = max(range(3), key=lambda x: law[x])
        values.append(-least)
        paths.add((*above, y))
        if len(above) + 1 < length:
            heapq.heappush(heap, (least * law[y], (*above, y), HALF))
        if law[y] < 1 - 1e-9:
            rest = tuple(0.0 if x == y else v / (1 - law[y]) for x, v in enumerate(law))
            heapq.heappush(heap, (least * (1 - law[y]), above, rest))
    return values, paths


@pytest.mark.parametrize("length", [1, 2, 6])
@pytest.mark.parametrize("nodes", [1, 2, 4, 7, 12, 30])
def test_a_level_to_a_pass_makes_the_tree_of_a_node_to_a_pass(nodes: int, length: int) -> None:
    values, paths = one_by_one(nodes, length)
    draft, session = proposed(DySpec(nodes=nodes, depth=length), chance=Likeliest(0))
    assert values == sorted(values, reverse=True), "popped values never rise"
    assert sorted(draft.notes["values"], reverse=True) == pytest.approx(values, abs=1e-4)
    assert len(draft) == len(paths)
    passes = [x for x in session.lanes["draft"].take_passes() if x.phase == "draft"]
    assert max(draft.depth) - 1 <= len(passes) <= length - 1


def runs(nodes: int, length: int) -> Iterator[Draft]:
    session = Session(
        toys.pair()[0], toys.method(drafter=("dyspec", dict(nodes=nodes, depth=length)), sampler="temperature"),
        toys.PROMPT, models={"draft": toys.pair()[1]}, max_new_tokens=60, seed=3,
    )  # fmt: skip
    session.start()
    propose, seen = session.drafter.propose, []
    session.drafter.propose = lambda ctx: seen.append((propose(ctx), ctx.room)) or seen[-1][0]  # type: ignore[method-assign]
    while not session.is_done:
        session.step()
    yield from (draft for draft, room in seen if room > length)


def test_no_open_slot_was_worth_more_than_a_node() -> None:
    """The set is optimal: its nodes' values are the largest, as re-derived from the distributions in the draft."""
    seen = 0
    for draft in runs(nodes=10, length=4):
        values: list[float] = []
        open_slots: list[float] = []
        for node, token in enumerate(draft.tokens):
            earlier = [x for x in draft.children(draft.parents[node]) if x < node]
            if earlier:
                before = earlier[-1]
                values.append(values[before] * (1 - float(draft.law(before)[draft.tokens[before]])))
            else:
                above = draft.parents[node]
                values.append(
                    1.0 if above == ROOT else values[above] * float(draft.law(above)[draft.tokens[above]])
                )
            taken = float(draft.law(node)[token])
            if not draft.children(node) and draft.depth[node] < 4:
                open_slots.append(values[node] * taken)
            if draft.children(draft.parents[node])[-1] == node and taken < 1:
                open_slots.append(values[node] * (1 - taken))
        assert len(draft) == 10 and values == pytest.approx(draft.notes["values"], abs=1e-4)
        assert max(open_slots) <= min(values) + 1e-12
        seen += 1
    assert seen > 5


def test_the_shape_follows_the_draws() -> None:
    assert len({tuple(draft.parents) for draft in runs(nodes=8, length=4)}) > 3


def test_one_node_is_a_chain_of_one() -> None:
    drafter = DySpec(nodes=1)
    assert not drafter.branches and drafter.proposes == "iid"
    draft, _ = proposed(drafter)
    assert len(draft) == 1 and draft.notes["expected"] == pytest.approx(
        1 + float(draft.law(0)[draft.tokens[0]]), abs=1e-4
    )
