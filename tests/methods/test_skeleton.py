"""Skeleton-of-Thought: an outline, then its points side by side; an outline that does not parse continues as plain decoding."""

from __future__ import annotations

from typing import Any

import bytewise
import pytest
import toys
from torch import Tensor

from decodescope.engine import MethodError, Session
from decodescope.engine.methods.strategies.skeleton import points_of
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.session.load import Model
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.details.threads import build_thread_tree, thread_schedule

PROMPT = list(b"What makes a river?")
ASK, EXPAND = "\nOutline:\n1.", "\nPoint {number}.\n{number}. {point}:"
OUTLINE = " rain in the hills\n2. a bed\n3. a way to the sea\n"
POINTS = [("1", "rain in the hills"), ("2", "a bed"), ("3", "a way to the sea")]


class Outlining(Decoder):
    """A model that writes a given text from a given place on, and its own text after that."""

    at = 0
    text: tuple[int, ...] = ()

    def forward(self, feed: Any, *rest: Any) -> Tensor:
        logits = super().forward(feed, *rest)
        for row, place in enumerate(feed.positions[0, feed.rows].tolist()):
            if 0 <= place + 1 - self.at < len(self.text):
                logits[0, row, self.text[place + 1 - self.at]] = 90.0
        return logits


def model(outline: str = OUTLINE, ends: bool = False) -> Model:
    made, decoder = bytewise.lively(), Outlining.__new__(Outlining)
    decoder.share(made.decoder)
    assert made.tokenizer is not None
    decoder.at = len(PROMPT) + len(made.tokenizer.encode_plain(ASK))
    decoder.text = (*made.tokenizer.encode_plain(outline), *([bytewise.END] if ends else []))
    made.decoder = decoder
    return made


def run(
    made: Model, prompt: list[int] = PROMPT, count: int = 120, settings: Any = (), **more: Any
) -> Session:
    knobs = {"outline_prompt": ASK, "point_template": EXPAND, "max_point_tokens": 12, **dict(settings or {})}
    parts = {"strategy": ("skeleton", knobs)} if settings is not None else {}
    session = Session(
        made, toys.method(**parts, **more.pop("parts", {})), prompt, max_new_tokens=count, **more
    )
    session.sink = Trace()
    for _ in session.stream():
        pass
    assert check(session.sink).ok, str(check(session.sink))
    return session


@pytest.mark.parametrize("ends", [False, True], ids=["blank line", "stop token"])
@pytest.mark.parametrize(
    "parts", [{}, {"sampler": ("temperature", {"temperature": 0.9})}], ids=["greedy", "drawn"]
)
def test_each_point_is_a_run_of_its_own_behind_the_outline(ends: bool, parts: dict[str, Any]) -> None:
    made = model(OUTLINE if ends else OUTLINE + "\n", ends)
    session = run(made, seed=7, stop_tokens=[bytewise.END], parts=parts)
    first, *points = build_thread_tree(step.detail("threads") for step in session.sink.steps).strands
    plain, outline = made.tokenizer.encode_plain, [x for x in first.tokens if x != bytewise.END]
    assert first.given == plain(ASK) and first.tokens[: len(plain(OUTLINE))] == plain(OUTLINE)
    assert first.why == ("stop_token" if ends else "outline")
    for i, (number, words) in reversed([*enumerate(POINTS, 1)]):  # in any order
        asked = plain(EXPAND.format(number=number, point=words))
        prompt = [*PROMPT, *first.given, *outline, *asked]
        alone = run(made, prompt, 12, None, seed=7 + i, stop_tokens=[bytewise.END], parts=parts)
        assert points[i - 1].tokens == alone.end.tokens and points[i - 1].given == asked
    written = [token for point in points for token in point.tokens]
    assert session.end.tokens == outline + written + ([bytewise.END] if ends else [])
    assert len({tuple(x.tokens) for x in points}) == 3, "the test needs points that differ"


def test_passes_are_those_of_outline_and_longest_point_and_the_prefix_is_there_once() -> None:
    made = model(OUTLINE + "\n")
    free = run(made)
    points = build_thread_tree(step.detail("threads") for step in free.sink.steps).strands[1:]
    stop = next(x for x in points[1].tokens[3:9] if x not in points[0].tokens)
    session = run(made, stop_tokens=[stop])
    first, *points = build_thread_tree(step.detail("threads") for step in session.sink.steps).strands
    lengths = [len(x.tokens) for x in points]
    assert len(set(lengths)) > 1, "the test needs points of different lengths"
    took = thread_schedule(step.detail("threads") for step in session.sink.steps)
    assert took.rounds == took.longest == session.steps == len(first.tokens) + max(lengths)
    assert took.tokens == len(first.tokens) + sum(lengths)
    reads = [x for step in session.sink.steps for x in step.passes if x.phase == "prefill"]
    requests = [len(x.given) for x in points]
    alike = len("\nPoint ")
    assert [x.tokens for x in reads] == [1 + alike + sum(requests) - 3 * alike - 3], (
        "what is alike is read once"
    )
    held = [step.cache[0].held for step in session.sink.steps]
    end = held[len(first.tokens) - 1]  # after the outline, only the points' own reads are added
    assert end == len(PROMPT) + len(first.given) + len(first.tokens) + reads[0].tokens - 1


@pytest.mark.parametrize("outline", ["a river needs rain\n\n", " only one\n\n", "no end of it " * 9])
def test_an_outline_that_does_not_parse_goes_on_as_plain_decoding(outline: str) -> None:
    made = model(outline)
    session = run(made, count=60, settings={"max_outline_tokens": 30})
    asked = made.tokenizer.encode_plain(ASK)
    assert session.end.tokens == run(made, [*PROMPT, *asked], 60, None).end.tokens
    assert (
        len(build_thread_tree(step.detail("threads") for step in session.sink.steps).strands) == 1
        and session.steps == 60
    )
    assert session.target.cache.layers[0].in_order, "nothing forked"


def test_an_outline_that_is_cut_off_has_the_points_that_were_whole() -> None:
    session = run(model(OUTLINE), settings={"max_outline_tokens": len(OUTLINE) - 6})
    assert len(build_thread_tree(step.detail("threads") for step in session.sink.steps).strands) == 3


def test_points_are_numbered_lines_each_number_once() -> None:
    assert points_of("1. a\n 2.b \nwords\n3. \n2. c\n10. d", 10) == [("1", "a"), ("2", "b"), ("10", "d")]
    assert points_of("1. a\n2. b\n3. c", 2) == [("1", "a"), ("2", "b")]
    assert points_of("", 3) == points_of("one. two", 3) == []


def test_a_request_that_names_no_point_is_refused() -> None:
    with pytest.raises(MethodError, match=r"^skeleton\.point_template is the same for all points"):
        Session(model(), toys.method(strategy=("skeleton", {"point_template": "go on"})), PROMPT)
