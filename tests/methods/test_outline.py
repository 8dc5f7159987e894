"""The adapter lab+outline: skeleton, apar and label_parallel really fork with it, by templates, whatever they write then."""

from __future__ import annotations

from pathlib import Path

import pytest

from decodescope.engine import Method, Session
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.methods.strategies.apar import Apar
from decodescope.engine.methods.strategies.label_parallel import LabelParallel
from decodescope.engine.methods.strategies.skeleton import Skeleton
from decodescope.engine.session.load import Model, load
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.details.threads import build_thread_tree, thread_schedule

LAB = Path(__file__).parents[2] / "assets" / "models" / "lab"
TEXT = (
    "Aaron is a musician in Sydney and likes silver. Nils from Lima is a painter and has a pencil. "
    "Zelda is a postman in Cairo, likes brown and has a letter."
)


@pytest.fixture(scope="module")
def outline() -> Model:
    return load(f"{LAB}+outline", "float32", "cpu")


def run(model: Model, strategy: Strategy, prompt: str) -> Session:
    assert model.tokenizer is not None
    session = Session(model, Method(strategy=strategy), model.tokenizer.encode(prompt), max_new_tokens=160)
    session.sink = Trace()
    for _ in session.stream():
        pass
    assert check(session.sink).ok, str(check(session.sink))
    return session


def test_an_outline_parses_and_its_points_are_written_side_by_side(outline: Model) -> None:
    records = [x.detail("threads") for x in run(outline, Skeleton(), TEXT).sink.steps]
    points = build_thread_tree(records).strands[1:]
    assert len(points) >= 2 and all(x.why == "stop_token" for x in points)
    assert thread_schedule(records).rounds < thread_schedule(records).tokens


def test_it_forks_where_details_stand_and_holds_no_more_than_plain_decoding(outline: Model) -> None:
    marks = Apar(fork_token="<|reserved_0|>", child_token="<|reserved_1|>")
    session = run(outline, marks, TEXT + "\n\nAll of them, one by one.\n")
    records = [x.detail("threads") for x in session.sink.steps]
    tree = build_thread_tree(records).strands
    assert len(tree) >= 3 and all(x.why == "stop_token" for x in tree), "parent and details end by themselves"
    assert thread_schedule(records).rounds < 0.75 * thread_schedule(records).tokens
    plain = len(session.header.prompt) + thread_schedule(records).tokens
    assert max(x.cache[0].held for x in session.sink.steps) <= plain


def test_labels_are_counted_and_their_mentions_written(outline: Model) -> None:
    last = run(outline, LabelParallel(labels="person\njob\ncity"), TEXT).sink.steps[-1]
    counts = last.detail("labels").columns["count"]
    assert len(counts) == 3 and all(counts) and len(last.detail("mentions").columns["text"]) == sum(counts)


def test_without_a_mark_nothing_forks(outline: Model) -> None:
    marks = Apar(fork_token="<|reserved_0|>", child_token="<|reserved_1|>")
    assert (
        len(
            build_thread_tree(
                x.detail("threads") for x in run(outline, marks, "Once upon a time").sink.steps
            ).strands
        )
        == 1
    )
