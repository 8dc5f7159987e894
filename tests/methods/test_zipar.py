"""ZipAR: which cell comes in which pass, what its row sees, that stand-ins leave, and a window that is plain decoding."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import toys
from filling import filled, fills

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.core.spec import PictureSpec
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.details.picture_passes import zipar_passes

START = len(toys.PROMPT)
WARM = ("temperature", {"temperature": 1.0})


def zipar(window: int, sampler: Any = WARM) -> Method:
    return toys.method(strategy=("zipar", {"window": window}), sampler=sampler)


def shaped(height: int, width: int) -> Model:
    spec = toys.toy_spec(heads=(), picture=PictureSpec(height, width, toys.LEVELS))
    return toys.model(toys.decoder(spec, toys.LIVELY, torch.float64))


def decoded(method: Method, model: Model | None = None, count: int = 200, **more: Any) -> Session:
    return filled(
        Session(
            model or toys.raster_target(),
            method,
            more.pop("prompt", toys.PROMPT),
            max_new_tokens=count,
            **more,
        )
    )


# ---- when a cell comes


def pushed(height: int, width: int, window: int) -> list[list[int]]:
    """The passes by the rule itself.

    A row is alive once the row above has `window` cells; the second row is alive once the first is whole. Each pass gives one
    cell to every row that was alive before it.
    """
    counts, passes = [0] * height, []
    while sum(counts) < height * width:
        due = [0, width, *[window] * height]
        alive = [r for r in range(height) if counts[r] < width and (r == 0 or counts[r - 1] >= due[r])]
        passes.append([r * width + counts[r] for r in alive])
        for r in alive:
            counts[r] += 1
    return passes


@pytest.mark.parametrize(("height", "width"), [(8, 8), (5, 3), (2, 7), (1, 4), (6, 1)])
def test_passes_are_those_of_the_formula(height: int, width: int) -> None:
    for window in range(1, width + 1):
        passes = zipar_passes(0, height * width, width, window)
        assert passes == pushed(height, width, window)
        assert len(passes) == (2 * width + (height - 2) * window if height > 1 else width)


@pytest.mark.parametrize("window", [1, 2, 3, 5])
def test_a_picture_takes_16_passes_and_6_for_each_cell_of_the_window(window: int) -> None:
    session = decoded(zipar(window))
    assert len(session.sink.steps) == 16 + 6 * window and session.end.reason == "picture_full"
    assert [[place - START for place in fill.places] for fill in fills(session)] == pushed(8, 8, window)
    assert len(session.end.tokens) == 64 and sum(len(fill.places) for fill in fills(session)) == 64
    text = {
        place: token for fill in fills(session) for place, token in zip(fill.places, fill.tokens, strict=True)
    }
    assert session.end.tokens == [text[START + i] for i in range(64)]


# ---- a window as wide as the picture


@pytest.mark.parametrize("window", [8, 99])
@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("sampler", ["greedy", WARM])
def test_a_window_of_the_width_is_plain_decoding_with_the_same_coins(
    window: int, seed: int, sampler: Any
) -> None:
    session = decoded(zipar(window, sampler), seed=seed)
    plain = Session(
        toys.raster_target(),
        toys.method(sampler=sampler),
        toys.PROMPT,
        max_new_tokens=64,
        seed=seed,
        stop_tokens=[],
    )
    for _ in plain.stream():
        pass
    assert session.end.tokens == plain.end.tokens and len(session.sink.steps) == 64
    assert all(
        torch.equal(a.k, b.k) and torch.equal(a.v, b.v)
        for a, b in zip(session.target.cache.layers, plain.target.cache.layers, strict=True)
    )
    assert decoded(zipar(2, sampler), seed=seed).end.tokens != plain.end.tokens, (
        "a narrow window is to change something"
    )


# ---- what a row sees


class Watched:
    """A session that records its passes: tokens, positions and logits of the rows."""

    def __init__(self, window: int, **more: Any):
        self.session = Session(
            toys.raster_target(), zipar(window), toys.PROMPT, max_new_tokens=200, stop_tokens=[], **more
        )
        self.rows: list[tuple[int, int, int]] = []  # pass, position, token
        self.logits: list[torch.Tensor] = []
        self.session.sink = Trace()
        self.session.start()
        whole, number = self.session.target.forward, iter(range(1000))

        def forward(feed: Feed, phase: str = "verify") -> torch.Tensor:
            logits, at = whole(feed, phase), next(number)
            self.rows += [
                (at, p, x) for p, x in zip(feed.positions[0].tolist(), feed.tokens[0].tolist(), strict=True)
            ]
            self.logits.append(logits[0])
            return logits

        self.session.target.forward = forward  # type: ignore[method-assign] # records the rows
        for _ in self.session.stream():
            pass


@pytest.mark.parametrize("window", [1, 2, 3, 6])
@torch.inference_mode()
def test_a_row_sees_all_that_stands_before_it_and_no_cell_that_is_open(window: int) -> None:
    """All rows of a run in one pass without a cache, under a mask that follows the method's definition.

    A row sees those of its own and earlier passes at smaller places, except for a stand-in whose real token has come.
    """
    run = Watched(window)
    made, rows = toys.raster_target().decoder, run.rows
    real = {p: t for t, p, x in rows if x == run.session.tokens[p]}  # the last one of them is the real one
    settled = {place: t for t, fill in enumerate(fills(run.session)) for place in fill.places}
    standins = {(p, t) for t, fill in enumerate(fills(run.session)) for p, _ in fill.standins or []}
    assert len(standins) == 6
    for t, p, x in rows:  # no row belongs to an open cell, except for stand-ins
        assert (p, t) in standins or (x == run.session.tokens[p] and settled.get(p, -1) < t)
    sees = torch.zeros(len(rows), len(rows), dtype=torch.bool)
    for i, (t, p, _) in enumerate(rows):
        for j, (u, q, _) in enumerate(rows):
            gone = (q, u) in standins and q in real and real[q] <= t and real[q] > u
            sees[i, j] = q <= p and u <= t and not gone
    prompt = toys.PROMPT[:-1]
    n = len(prompt)
    visible = torch.ones(n + len(rows), n + len(rows), dtype=torch.bool).tril()
    visible[n:, n:] = sees
    tokens = torch.tensor([prompt + [x for _, _, x in rows]])
    positions = torch.tensor([list(range(n)) + [p for _, p, _ in rows]])
    due = made.forward(Feed(tokens, positions, visible[None]), None)[0, n:]
    assert torch.allclose(torch.cat(run.logits), due, atol=1e-9)


@pytest.mark.parametrize("window", [1, 3])
def test_a_stand_in_is_the_latest_of_the_row_above_and_its_entry_leaves(window: int) -> None:
    session = Session(toys.raster_target(), zipar(window), toys.PROMPT, max_new_tokens=200, stop_tokens=[])
    session.sink = Trace()
    text: dict[int, int] = {}
    waiting: dict[int, int] = {}
    replaced = 0
    while not session.is_done:
        known = dict(text)
        fill = session.step().detail_of("canvas")
        held = session.target.cache.layers[0].positions()[0, 0].tolist()
        assert len(set(held)) == len(held), "no place is held twice"
        for place, token in fill.standins or []:
            row = (place - START) // 8
            assert token == known[START + row * 8 + window - 1] and place not in known
            waiting[place] = token
        for place in [p for p in waiting if p in known]:
            del waiting[place]
            replaced += 1
        due = [waiting.get(p, session.tokens[p] if p < START else known.get(p)) for p in held]
        assert session.target.tokens == due, "each entry is the real token's, once that is known"
        text |= dict(zip(fill.places, fill.tokens, strict=True))
        assert len(held) == session.target.cache.length == len(session.target.tokens)
    assert replaced == 6 and not waiting
    assert sum(len(x.standins or []) for x in fills(session)) == 6


# ---- pictures that are there in part, forks, limits


def test_a_picture_that_has_begun_is_written_on_from_where_it_stands() -> None:
    prompt = [4, *toys.LEVELS, *toys.LEVELS[:3]]
    session = decoded(zipar(2), prompt=prompt)
    assert len(session.end.tokens) == 64 - 11 and session.end.reason == "picture_full"
    first = [[place - 1 for place in fill.places] for fill in fills(session)][:8]
    assert first == [[11], [12], [13], [14], [15], [16], [17], [18, 24]]
    plain = Session(
        toys.raster_target(), toys.method(sampler=WARM), prompt, max_new_tokens=53, stop_tokens=[]
    )
    for _ in plain.stream():
        pass
    assert decoded(zipar(8), prompt=prompt).end.tokens == plain.end.tokens


def test_fewer_cells_than_a_picture_are_the_first_of_it() -> None:
    whole, part = decoded(zipar(3)), decoded(zipar(3), count=30)
    assert part.end.tokens == whole.end.tokens[:30] and part.end.reason == "max_new_tokens"
    assert max(place for fill in fills(part) for place in fill.places) == START + 29
    stop = whole.end.tokens[20]
    ended = decoded(zipar(3), stop_tokens=[stop])
    assert (
        ended.end.tokens == whole.end.tokens[: whole.end.tokens.index(stop) + 1]
        and ended.end.reason == "stop_token"
    )


def test_a_branch_has_the_same_future_and_a_fork_writes_on() -> None:
    session = Session(toys.raster_target(), zipar(3), toys.PROMPT, max_new_tokens=200, stop_tokens=[])
    for _ in range(13):
        session.step()
    twin = session.branch()
    for one in (session, twin):
        for _ in one.stream():
            pass
    assert twin.tokens == session.tokens
    run = decoded(zipar(3), count=30, seed=2)
    at = len(run.sink.steps) - 1
    made = Fork(toys.raster_target(), run.header, list(run.sink.steps), at, max_new_tokens=64)
    made.sink = Trace()
    for _ in made.stream():
        pass
    assert made.end.tokens[:30] == run.end.tokens and len(made.end.tokens) == 64 and check(made.sink).ok
    made = Fork(toys.raster_target(), run.header, list(run.sink.steps), 9, method=zipar(8))
    made.sink = Trace()
    for _ in made.stream():
        pass
    assert check(made.sink).ok and len(made.end.tokens) == 30


# ---- records that are wrong, and what is refused


@pytest.mark.parametrize(("name", "value", "said"), [
    ("standins", None, r"stand-ins None, and \[\["), ("standins", [[23, 0]], "stand-ins"), ("standins", [[23]], "no position"),
    ("standins", [[23, 99]], "the id 99, and one of them is none"), ("stale", 2, "does not settle each"),
    ("tokens", None, "does not settle each"),
])  # fmt: skip
def test_check_derives_cells_and_stand_ins(name: str, value: Any, said: str) -> None:
    session = decoded(zipar(3))
    step = next(step for step in session.sink.steps if step.detail_of("canvas").standins)
    if name == "tokens":
        value = [x + 1 for x in step.detail_of("canvas").tokens]
    setattr(step.detail_of("canvas"), name, value)
    report = check(session.sink)
    assert not report.ok and re.search(said, str(report)), str(report)


def test_check_knows_the_cells_and_rows_of_a_pass() -> None:
    session = decoded(zipar(3))
    session.sink.header.method["strategy"]["window"] = 4
    assert "are due" in str(check(session.sink))
    session = decoded(zipar(3))
    session.sink.steps[-2].passes[0].tokens += 1
    assert "its passes fed [" in str(check(session.sink))


def test_what_does_not_fit_is_refused_in_one_sentence() -> None:
    for model, method, said in (
        (toys.pair()[0], zipar(2), "zipar writes pictures, and toy writes none: choose a model"),
        (
            toys.any_order_target(),
            zipar(2),
            "zipar writes one token behind another, and toy has to be given the next cell",
        ),
        (
            toys.any_order_target(),
            Method(),
            "draft_verify writes one token behind another, and toy has to .* the strategy randar",
        ),
        (
            toys.raster_target(),
            zipar(2, "mirostat"),
            "zipar fills places in any order, and mirostat remembers",
        ),
    ):
        with pytest.raises(MethodError, match=said):
            Session(model, method, toys.PROMPT, max_new_tokens=9)
    whole = Session(toys.raster_target(), zipar(2), [4, *toys.LEVELS * 8], max_new_tokens=9)
    with pytest.raises(
        Exception, match="The prompt ends with 64 grey levels, and a picture has 64: leave some of them out"
    ):
        whole.step()


def test_text_is_written_by_a_model_of_pictures_as_by_any_other() -> None:
    plain = toys.decode(Method(), count=40, pair=(toys.raster_target(), toys.pair()[1]))
    lookup = toys.method(drafter=("prompt_lookup", {"ngram": 1}))
    looked = toys.decode(lookup, count=40, pair=(toys.raster_target(), toys.pair()[1]))
    assert (
        plain.end.tokens
        == looked.end.tokens
        == toys.greedy_text(toys.raster_target().decoder, toys.PROMPT, 40)
    )
