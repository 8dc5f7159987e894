"""Session: stops, limits, faults and branches; a fault ends one run and does not affect the next one."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch
import toys

from decodescope.engine import Method, MethodError, Session, run
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.session import session as sessions
from decodescope.engine.session.load import Model
from decodescope.engine.session.session import SessionStopped
from decodescope.engine.trace import Trace, TraceError, check

METHODS = {
    "plain": {},
    "draft_model": dict(drafter=("draft_model", {"max_draft_tokens": 4})),
    "layer_skip": dict(drafter=("layer_skip", {"skip_ratio": 0.5, "min_probability": 0.0})),
    "jacobi": dict(strategy=("jacobi", {"block": 4})),
    "beam": dict(strategy=("beam", {"width": 3})),
    "h2o_sampled": dict(
        policy=("h2o", {"heavy": 4, "recent": 4}), drafter="prompt_lookup", sampler="temperature"
    ),
}


def started(
    parts: dict, prompt: list[int] = toys.PROMPT, pair: tuple[Model, Model] | None = None, **more
) -> Session:
    target, draft = pair or toys.pair()
    session = Session(
        target, toys.method(**parts), prompt, models={"draft": draft}, **{"max_new_tokens": 16, **more}
    )
    session.sink = Trace()
    return session


def broken_at(monkeypatch: pytest.MonkeyPatch, decoder: Decoder, number: int, harm) -> list[int]:
    """Make pass `number` of `decoder` (0 the first, from now on) go through `harm`; the returned list counts the passes."""
    forward, count = decoder.forward, [0]

    def counted(feed, cache, *rest):
        count[0] += 1
        return (
            harm(lambda: forward(feed, cache, *rest))
            if count[0] == number + 1
            else forward(feed, cache, *rest)
        )

    # a shared decoder has no function of its own afterwards
    monkeypatch.setitem(vars(decoder), "forward", counted)
    return count


def no_memory(run):
    run()  # the rows are appended, then memory runs out
    raise torch.OutOfMemoryError("tried to allocate 2.00 GiB")


def spoiled(value: float, row: int = 0):
    def harm(run):
        logits = run().clone()
        if value == -torch.inf:
            logits[:, row] = value
        else:
            logits[:, row, 3] = value
        return logits

    return harm


def fails(session: Session, reason: str) -> None:
    """Run into the fault: it has the named reason, the trace is consistent, nothing is pending, and no step follows."""
    with pytest.raises(EngineFault):
        for _ in session.stream():
            pass
    assert session.end.reason == reason and session.end.message.endswith(".")
    assert len(session.sink.steps) == session.end.steps
    report = check(session.sink)
    assert report.ok, str(report)
    assert all(
        store.m == 0 for lane in (session.target, *session.lanes.values()) for store in lane.cache.layers
    )
    with pytest.raises(ValueError, match="has ended"):
        session.step()


@pytest.mark.parametrize("number", [0, 1, 4], ids=["prefill", "first", "later"])
@pytest.mark.parametrize("parts", METHODS.values(), ids=METHODS)
def test_no_memory_ends_one_run_and_the_next_is_clean(
    parts: dict, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draft = toys.pair()
    clean = toys.decode(toys.method(**parts), count=16)
    for model in (target, draft) if "draft_model" in str(parts) else (target,):
        with monkeypatch.context() as patch:
            broken_at(patch, model.decoder, number, no_memory)
            session = started(parts)
            fails(session, "out_of_memory")
            assert "Memory ran out on cpu" in session.end.message and "smaller" in session.end.message
        assert toys.decode(toys.method(**parts), count=16).end.content_hash == clean.end.content_hash


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", ["target", "draft", "block row"])
def test_broken_logits_end_the_run(value: float, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, draft = toys.pair()
    parts = METHODS["jacobi" if where == "block row" else "draft_model"]
    clean = toys.decode(toys.method(**parts), count=16)
    with monkeypatch.context() as patch:
        row, number = (2, 1) if where == "block row" else (0, 3)
        broken_at(patch, (draft if where == "draft" else target).decoder, number, spoiled(value, row))
        session = started(parts)
        fails(session, "non_finite_logits")
    assert (
        f"Row {row} " in session.end.message
        and ("draft" if where == "draft" else "target") in session.end.message
    )
    assert toys.decode(toys.method(**parts), count=16).end.content_hash == clean.end.content_hash


@pytest.mark.parametrize("when", ["forward", "observe"])
def test_interrupt_ends_the_run_and_its_trace_holds(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def harm(*_):
        raise KeyboardInterrupt

    session = started(METHODS["draft_model"])
    for _ in range(3):
        session.step()
    if when == "forward":
        broken_at(monkeypatch, session.target.decoder, 0, harm)
    else:
        session.drafter.observe = (
            harm  # after the commit: the step is not recorded, so its tokens do not count
        )
    with pytest.raises(KeyboardInterrupt):
        session.step()
    assert session.end.reason == "stopped_by_user" and len(session.sink.steps) == 3
    assert check(session.sink).ok, str(check(session.sink))


@pytest.mark.parametrize(
    "parts", [{}, dict(policy=("h2o", {"heavy": 4, "recent": 4})), dict(prompt_compression="gemfilter")]
)
def test_a_session_that_nobody_has_gives_its_memory_back_at_once(parts: dict) -> None:
    session = started(parts)
    session.step()
    gone = weakref.ref(session.target.cache)
    gc.collect()
    gc.disable()
    try:
        del session
        assert gone() is None, "no circle of references waits for the collector"
    finally:
        gc.enable()


def test_an_interrupt_while_the_header_is_made_leaves_a_whole_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = iter([KeyboardInterrupt])

    def measured(*rest: object) -> None:
        for error in asked:
            raise error

    monkeypatch.setattr(sessions, "known_measurement", measured)
    session = started({})
    with pytest.raises(KeyboardInterrupt):
        session.step()
    assert (
        session.end.reason == "stopped_by_user"
        and session.sink.header.run == session.run_id
        and check(session.sink).ok
    )


def test_closing_the_stream_stops_the_run() -> None:
    session = started({})
    steps = session.stream()
    next(steps), next(steps)
    steps.close()
    assert session.end.reason == "stopped_by_user" and len(session.end.tokens) == 2 and check(session.sink).ok


def test_disk_that_fails_while_writing_ends_the_run() -> None:
    from decodescope.engine.trace import StorageFull

    session = started({})
    for _ in range(2):
        session.step()
    session.sink.write = lambda record: (_ for _ in ()).throw(StorageFull("The disk is full."))
    with pytest.raises(StorageFull):
        session.step()
    del session.sink.write
    assert session.end.reason == "storage_full" and len(session.end.tokens) == 2


@pytest.mark.parametrize("parts", METHODS.values(), ids=METHODS)
def test_text_ends_at_the_first_stop_token_and_nothing_lies_beyond(parts: dict) -> None:
    """The end token inside an accepted path cuts what follows it from text, caches and the sampler's state."""
    if "beam" in str(parts):
        return
    whole = toys.decode(toys.method(**parts), count=30).tokens[len(toys.PROMPT) :]
    cut_inside = 0
    for token in set(whole):
        session = toys.decode(toys.method(**parts), count=30, stop_tokens=[token])
        due = whole[: whole.index(token) + 1]
        assert session.end.tokens == due and session.end.reason == "stop_token"
        assert (
            session.target.tokens == session.tokens[:-1]
            and session.target.cache.length == len(session.tokens) - 1
        )
        last = session.sink.steps[-1]
        cut_inside += last.extra is None and last.detail_of("canvas") is None
        assert check(session.sink).ok, str(check(session.sink))
    assert cut_inside or "draft_model" not in str(parts), "the test needs an end inside a path"


def test_sampler_state_ends_where_the_text_ends() -> None:
    parts = dict(
        drafter=("layer_skip", {"skip_ratio": 0.0, "min_probability": 0.0}),
        sampler=("repetition_penalty", {"penalty": 1.0}),
    )
    whole = toys.decode(toys.method(**parts), [7], 30)
    for token in set(whole.end.tokens):
        session = toys.decode(toys.method(**parts), [7], 30, stop_tokens=[token])
        assert session.sampler_state == frozenset(session.tokens)


class Letters:
    """A tokenizer with at most three bytes per token, with the methods that a session needs."""

    words = (b"a", b"b", b"ab", b"ba", b"bab", b"c", b"ca", b"", b"bc", b"d", b"cab", b"e", b"f")

    def piece(self, i: int) -> str:
        return self.words[i].decode()

    def bytes_of(self, i: int) -> bytes:
        return self.words[i]


def test_stop_text_is_found_across_tokens() -> None:
    letters = Letters()
    named, draft = (Model("toy", None, x.spec, x.decoder, letters, "0" * 16, []) for x in toys.pair())
    for parts in ({}, METHODS["draft_model"], METHODS["jacobi"]):
        whole = toys.decode(toys.method(**parts), count=40, pair=(named, draft)).end.tokens
        text = b"".join(map(named.tokenizer.bytes_of, whole)).decode()
        for stop in {text[i : i + n] for i in range(0, len(text) - 4, 4) for n in (1, 2, 4)}:
            session = toys.decode(
                toys.method(**parts), count=40, pair=(named, draft), stop_texts=[stop, "zz"]
            )
            due = next(
                n for n in range(1, 41) if stop in b"".join(map(Letters().bytes_of, whole[:n])).decode()
            )
            assert session.end.tokens == whole[:due] and session.end.reason == "stop_token"


@pytest.mark.parametrize("parts", METHODS.values(), ids=METHODS)
def test_full_context_and_exact_lengths(parts: dict) -> None:
    small = toys.model(toys.decoder(toys.toy_spec(max_positions=24), toys.LIVELY, torch.float64))
    pair = (small, toys.pair()[1])
    session = toys.decode(toys.method(**parts), count=40, pair=pair)
    assert len(session.tokens) == 24 and session.end.reason == "context_full"
    session = toys.decode(toys.method(**parts), toys.PROMPT[:11], 13, pair=pair)
    assert len(session.tokens) == 24 and session.end.reason == "max_new_tokens"
    with pytest.raises(
        MethodError, match=r"the prompt has 24 tokens, and the model toy reads at most 24 tokens.*\.$"
    ):
        started(parts, [1] * 24, pair)
    for prompt, count in ([2], 9), ([1] * 23, 1):
        assert len(toys.decode(toys.method(**parts), prompt, count, pair=pair).end.tokens) == count


def test_refusals_come_before_anything_is_computed() -> None:
    with pytest.raises(MethodError, match="at least one"):
        started({}, [])
    with pytest.raises(MethodError, match="at least 1"):
        started({}, max_new_tokens=0)
    with pytest.raises(MethodError, match="token id 13; the ids of toy are 0 to 12"):
        started({}, [13])
    with pytest.raises(MethodError, match="no tokenizer"):
        started({}, stop_texts=["x"])


def test_the_reading_of_a_prompt_stops_between_two_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decodescope.engine.decoding.bases.lane.CHUNK", 4)
    session, places = started(METHODS["draft_model"], toys.PROMPT[:11]), []

    def halted() -> bool:
        places.append(session.reading)
        return len(places) == 5

    session.halted = halted
    branch = session.branch()
    with pytest.raises(SessionStopped):
        session.start()
    assert places == [
        ("target", 0, 10),
        ("target", 4, 10),
        ("target", 8, 10),
        ("draft", 0, 10),
        ("draft", 4, 10),
    ]
    assert (
        session.end.reason == "stopped_by_user" and session.sink.end is session.end and not session.sink.steps
    )
    assert branch.halted is None and branch.start().n == 10


def test_padded_vocabularies_are_cut_to_the_smaller_and_models_stay_as_they_were() -> None:
    """A draft with fewer rows in its matrix works, also sampled; a plain run of the target still has every id."""
    wide = toys.model(toys.decoder(toys.toy_spec(vocab=20), 5, torch.float64, sharp=1.0))
    pair = (wide, toys.pair()[1])
    for parts in (
        METHODS["draft_model"],
        {**METHODS["draft_model"], "sampler": ("temperature", {"temperature": 3.0})},
    ):
        beside = started({"sampler": ("temperature", {"temperature": 3.0})}, pair=pair, max_new_tokens=60)
        session = started(parts, pair=pair, max_new_tokens=60)
        for _ in beside.stream():
            pass
        for _ in session.stream():
            pass
        assert max(session.end.tokens) < 13 <= max(beside.end.tokens)
        assert check(session.sink).ok
    wide.decoder.usable = 15
    assert max(toys.decode(toys.method(sampler="temperature"), count=200, pair=pair).end.tokens) in (13, 14)


# what a policy remembers next to its cache is branched too
SELDOM = dict(policy=("interval_eviction", dict(target_entries=7, interval=5, sink_tokens=2)))


@pytest.mark.parametrize("parts", [*METHODS.values(), SELDOM], ids=[*METHODS, "seldom"])
def test_branch_has_the_same_future_and_its_own_trace(parts: dict) -> None:
    session = started(parts, max_new_tokens=24, seed=2)
    for _ in range(3):
        session.step()
    branch, ahead = session.branch(), session.branch()
    branch.sink = Trace()
    for one in (ahead, session, branch):
        for _ in one.stream():
            pass
    assert branch.tokens == session.tokens == ahead.tokens and check(session.sink).ok
    head = branch.sink.header
    assert head.parent == {"run": session.run_id, "step": 3} and head.run != session.run_id
    assert branch.sink.tokens == session.sink.tokens
    assert check(branch.sink).ok, str(check(branch.sink))
    cache = session.target.cache
    assert branch.target.cache.lengths() == cache.lengths()
    assert all(
        a.kv.data_ptr() != b.kv.data_ptr()
        for a, b in zip(cache.layers, branch.target.cache.layers, strict=True)
    )


def test_branch_is_independent() -> None:
    session = started({"sampler": "temperature"}, max_new_tokens=30)
    for _ in range(3):
        session.step()
    branch = session.branch()
    branch.chance.seed = 99
    for one in (branch, session):
        for _ in one.stream():
            pass
    assert branch.tokens != session.tokens
    assert session.tokens == toys.decode(toys.method(sampler="temperature"), count=30).tokens


def test_default_method_is_plain_greedy_decoding() -> None:
    session = toys.decode(Method())
    assert session.tokens[len(toys.PROMPT) :] == toys.greedy_text(toys.pair()[0].decoder, toys.PROMPT, 40)
    assert [step.origins for step in session.sink.steps] == [["target"]] * 40 and session.header.lossless


def test_a_trace_that_cannot_be_begun_ends_the_run_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"\.$"):
        run(toys.target(), None, toys.PROMPT, max_new_tokens=4, path=tmp_path / "no" / "such" / "folder")
