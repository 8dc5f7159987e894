"""RandAR: group sizes, the distribution of a cell, the exact distribution with one pass per cell, and independence of order."""

from __future__ import annotations

import math
from itertools import permutations, product
from typing import Any

import pytest
import torch
import toys
from filling import filled, fills

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.core.spec import PictureSpec
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model
from decodescope.engine.session.replay.exact_distribution import EnumeratedChance, outcomes
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.details.picture_passes import randar_group_sizes

START = len(toys.PROMPT)
WARM = ("temperature", {"temperature": 1.0})


def randar(steps: int, order: str = "random", sampler: Any = WARM) -> Method:
    return toys.method(strategy=("randar", {"steps": steps, "order": order}), sampler=sampler)


def begun(method: Method, model: Model | None = None, count: int = 200, **more: Any) -> Session:
    prompt = more.pop("prompt", toys.PROMPT)
    session = Session(
        model or toys.any_order_target(), method, prompt, max_new_tokens=count, stop_tokens=[], **more
    )
    session.sink = Trace()
    return session


def decoded(method: Method, model: Model | None = None, **more: Any) -> Session:
    return filled(begun(method, model, **more))


def groups(session: Session) -> list[list[int]]:
    """The cells of each group in their order."""
    return [[fill.places[i] - fill.start for i in fill.columns["order"].argsort()] for fill in fills(session)]


# ---- groups


@pytest.mark.parametrize("cells", [1, 4, 64, 256])
def test_groups_follow_the_cosine(cells: int) -> None:
    for steps in {1, 2, 5, 24, 64, 88, cells, 2 * cells}:
        sizes, T, done = randar_group_sizes(cells, steps), min(steps, cells), 0
        assert sum(sizes) == cells and min(sizes) >= 1 and len(sizes) <= T
        for i, size in enumerate(sizes):
            done += size
            assert done == max(
                min(math.floor((1 - math.cos(math.pi / 2 * (i + 1) / T)) * cells + 1), cells), done - size + 1
            )
    assert randar_group_sizes(cells, cells) == [1] * cells and randar_group_sizes(cells, 1) == [cells]


@pytest.mark.parametrize("steps", [1, 7, 24, 64])
def test_every_cell_is_drawn_once_and_the_text_is_in_raster_order(steps: int) -> None:
    session = decoded(randar(steps))
    assert [len(group) for group in groups(session)] == randar_group_sizes(64, steps)
    assert sorted(cell for group in groups(session) for cell in group) == list(range(64))
    assert session.end.reason == "picture_full"
    text = {
        place: token for fill in fills(session) for place, token in zip(fill.places, fill.tokens, strict=True)
    }
    assert session.end.tokens == [text[START + i] for i in range(64)]
    assert groups(decoded(randar(steps), seed=1)) != groups(session)
    assert [x for group in groups(decoded(randar(steps, "raster"))) for x in group] == list(range(64))


# ---- what a cell is drawn from


@pytest.mark.parametrize("steps", [9, 64])
@torch.inference_mode()
def test_a_cell_has_the_law_that_it_would_have_if_it_came_next(steps: int) -> None:
    """Each instruction's logits equal those of a fresh reading of all pairs of earlier groups and only that instruction."""
    session, seen = begun(randar(steps), seed=4), list[torch.Tensor]()
    session.start()
    whole = session.target.forward

    def forward(feed: Feed, phase: str = "verify") -> torch.Tensor:
        seen.append(whole(feed, phase)[0])
        return seen[-1][None]

    session.target.forward = forward  # type: ignore[method-assign] # records the logits
    for _ in session.stream():
        pass
    made, instructions = toys.any_order_target().decoder, toys.any_order_target().spec.picture.cells
    text = list(toys.PROMPT)
    for group, logits in zip(groups(session), seen, strict=True):
        for cell, row in zip(group, logits[-len(group) :], strict=True):
            due = made.forward(Feed.causal_chain([*text, instructions[cell]], 0), None)[0, -1]
            assert torch.allclose(row, due, atol=1e-9)
        text += [x for cell in group for x in (instructions[cell], session.tokens[START + cell])]
    assert len(text) == START + 128
    assert session.target.tokens == text[: len(session.target.tokens)], (
        "what is held is what was read, in its order"
    )


@torch.inference_mode()
def test_the_order_within_a_group_changes_no_law_and_no_draw() -> None:
    one, other = (begun(randar(9), seed=2) for _ in range(2))
    for session in (one, other):
        session.start()
    for _ in range(9):
        other.scratch.groups[0] = other.scratch.groups[0][::-1]
        a, b = (session.step().detail_of("canvas") for session in (one, other))
        assert (
            a.places == b.places
            and a.tokens == b.tokens
            and (a.columns["order"].tolist() != b.columns["order"].tolist() or len(a.places) == 1)
        )
        assert abs(a.confidence - b.confidence).max() < 1e-6
        if len(a.places) > 1:  # later groups read these cells, and the model may depend on their order
            break
    else:
        pytest.fail("the test needs a group of several cells")


# ---- the distribution


def small() -> Model:
    """Pictures of 2 x 2 cells, two levels."""
    spec = toys.toy_spec(heads=(), vocab=7, picture=PictureSpec(2, 2, (1, 2), (3, 4, 5, 6)), pad_token=None)
    return toys.model(toys.decoder(spec, 1, torch.float64, sharp=1.0))


@torch.inference_mode()
def likely(read: list[int], allowed: int = 2) -> dict[int, float]:
    """The distribution of the next token after `read`: the likeliest two, by a pass over everything."""
    logits = small().decoder.forward(Feed.causal_chain(read, 0), None)[0, -1]
    best = logits.topk(allowed)
    return dict(zip(best.indices.tolist(), torch.softmax(best.values, 0).tolist(), strict=True))


def counted(steps: int) -> dict[tuple[int, ...], float]:
    """The distribution of pictures by every outcome of chance, including the order."""
    method = toys.method(strategy=("randar", {"steps": steps}), sampler=("top_k", {"k": 2}))
    law: dict[tuple[int, ...], float] = {}

    def write(chance: EnumeratedChance) -> tuple[int, ...]:
        session = Session(small(), method, [0], max_new_tokens=9, stop_tokens=[], level="summary")
        session.chance = chance
        for _ in session.stream():
            pass
        assert len(session.end.tokens) == 4
        return tuple(session.end.tokens)

    for weight, text in outcomes(write):
        law[text] = law.get(text, 0.0) + weight
    return law


def derived(sizes: list[int]) -> dict[tuple[int, ...], float]:
    """The same distribution by the model's own chain over groups of these sizes, with all orders equally likely."""
    law: dict[tuple[int, ...], float] = {}
    for order in permutations(range(4)):
        ways: list[tuple[dict[int, int], float]] = [({}, 1 / 24)]
        left = list(order)
        for size in sizes:
            group, left = left[:size], left[size:]
            grown = []
            for levels, weight in ways:
                told = [x for cell, level in levels.items() for x in (3 + cell, level)]
                laws = [likely([0, *told, 3 + cell]) for cell in group]
                for drawn in product(*(x.items() for x in laws)):
                    more = dict(zip(group, (token for token, _ in drawn), strict=True))
                    grown.append(({**levels, **more}, weight * math.prod(p for _, p in drawn)))
            ways = grown
        for levels, weight in ways:
            text = tuple(levels[cell] for cell in range(4))
            law[text] = law.get(text, 0.0) + weight
    return law


def apart(one: dict[tuple[int, ...], float], other: dict[tuple[int, ...], float]) -> float:
    return sum(abs(one.get(x, 0.0) - other.get(x, 0.0)) for x in one | other) / 2


@pytest.mark.nightly
def test_with_a_pass_for_each_cell_the_law_is_the_models_over_all_orders() -> None:
    found = counted(4)
    assert abs(sum(found.values()) - 1) < 1e-9 and len(found) > 8
    assert apart(found, derived([1, 1, 1, 1])) < 1e-9


def test_cells_of_one_group_are_drawn_without_each_other() -> None:
    assert randar_group_sizes(4, 2) == [2, 2]
    found = counted(2)
    assert apart(found, derived([2, 2])) < 1e-9
    assert apart(found, derived([1, 1, 1, 1])) > 1e-3, (
        "the test needs a model whose cells depend on each other"
    )


# ---- pictures that are there in part, forks, records, refusals


def test_levels_of_a_prompt_are_cells_that_are_known() -> None:
    prompt = [4, *toys.LEVELS, 7]
    session = decoded(randar(64, "raster", "greedy"), prompt=prompt)
    assert len(session.end.tokens) == 64 - 9 == len(session.sink.steps)
    assert session.end.tokens == toys.greedy_text(toys.any_order_target().decoder, prompt, 55)
    assert (
        decoded(randar(9), prompt=prompt).sink.steps[0].passes[-1].tokens
        == 1 + 2 * 9 + randar_group_sizes(55, 9)[0]
    )


def test_a_branch_has_the_same_future_and_a_fork_writes_on() -> None:
    session = begun(randar(9))
    for _ in range(4):
        session.step()
    twin = session.branch()
    for one in (session, twin):
        for _ in one.stream():
            pass
    assert twin.tokens == session.tokens
    run = decoded(randar(9), count=20, seed=2)
    for change, count in (({"max_new_tokens": 64}, 64), ({"method": randar(20)}, 20), ({"seed": 7}, 20)):
        made = Fork(
            toys.any_order_target(), run.header, list(run.sink.steps), len(run.sink.steps) - 1, **change
        )
        made.sink = Trace()
        for _ in made.stream():
            pass
        assert check(made.sink).ok and len(made.end.tokens) == count, str(check(made.sink))


def test_check_derives_the_groups_and_the_rows() -> None:
    session = decoded(randar(9))
    session.sink.header.method["strategy"]["steps"] = 12
    assert "cells, and" in str(check(session.sink))
    session = decoded(randar(9))
    session.sink.steps[-2].passes[0].tokens += 1
    assert "its passes fed [" in str(check(session.sink))
    session = decoded(randar(9))
    fills(session)[-1].columns["order"][:] = 0
    assert "its order is no order of its cells" in str(check(session.sink))
    session = decoded(randar(9))
    session.sink.header.method["strategy"]["order"] = "raster"
    assert "it draws the cells" in str(check(session.sink))


def test_what_does_not_fit_is_refused_in_one_sentence() -> None:
    sjd = toys.method(drafter="sjd", sampler=WARM)
    for model, method, said in (
        (toys.pair()[0], randar(2), "randar writes pictures, and toy writes none: choose a model"),
        (
            toys.raster_target(),
            randar(2),
            "randar gives a model the next cell, and toy writes all in raster order: choose",
        ),
        (toys.any_order_target(), sjd, "has to be given the next cell: choose the strategy randar"),
        (
            toys.any_order_target(),
            randar(2, sampler="mirostat"),
            "randar fills places in any order, and mirostat remembers",
        ),
    ):
        with pytest.raises(MethodError, match=said):
            Session(model, method, toys.PROMPT, max_new_tokens=9)
    for prompt, said in (
        ([2, 6, 7], "The prompt holds grey levels alone: put a token before the picture"),
        (
            [4] * 400,
            "With 400 tokens before it a picture takes 528 positions, .* reads at most 512 .*: shorten the prompt",
        ),
    ):
        with pytest.raises(Exception, match=said):
            begun(randar(9), prompt=prompt).step()
