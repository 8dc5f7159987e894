"""Sessions that run together: each writes what it writes alone, its trace is sound, and passes are shared."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import toys
from sizes import thinned

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.core.component import registry
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.model.forward import executor
from decodescope.engine.model.forward.batched import PassRequest, forward_batched
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import ExecutedLayers
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.session.batch import shared_passes as going
from decodescope.engine.session.batch.owner_sessions import decode_for_owners, session_sets
from decodescope.engine.session.batch.shared_passes import (
    PATIENCE,
    ROWS,
    SharedExecutor,
    SharedPassStats,
    decode_together,
)
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.records.events import Step

PROMPTS = [toys.PROMPT, [5], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5, 9, 0, 4, 5, 2, 3, 5, 3, 6, 0, 2, 8, 7]]
COUNTS = [18, 40, 5]


def sessions(
    method: Method,
    executor: type[SharedExecutor] | None = SharedExecutor,
    more: tuple[dict[str, Any], ...] = ({}, {}, {}),
) -> list[Session]:
    """Three sessions with different prompts, lengths and seeds; None: each with an executor of its own."""
    made = []
    for i, (prompt, count, changes) in enumerate(zip(PROMPTS, COUNTS, more, strict=True)):
        target = (
            toys.pair()[0] if "strategy" not in method.used_parts else toys.strategy_target(method.strategy)
        )
        about = {"max_new_tokens": count, "seed": i + 3, "models": toys.helper_models(), **changes}
        made.append(
            Session(target, method, prompt, executor=None if executor is None else executor("cpu"), **about)
        )
        made[-1].sink = Trace()
    return made


def alone(method: Method, **more: Any) -> list[Session]:
    """The same sessions, each run by itself."""
    made = sessions(method, None, **more)
    for one in made:
        list(one.stream())
    return made


def raise_(session: Session, error: Exception | None) -> None:
    if error is not None:
        raise error


def same(method: Method) -> SharedPassStats:
    """Run three sessions together and compare them with single runs; return how passes were shared."""
    seen = sessions(method)
    figures = decode_together(seen, over=raise_)
    for one, other in zip(seen, alone(method), strict=True):
        assert one.tokens == other.tokens and one.end is not None and other.end is not None
        assert one.end.reason == other.end.reason and one.steps == other.steps
        assert [x.lane for step in one.sink.steps for x in step.passes] == [
            x.lane for s in other.sink.steps for x in s.passes
        ]
        assert one.target.cache.lengths() == other.target.cache.lengths()
        checked = check(one.sink)
        assert checked.ok, checked
    return figures


METHODS: dict[str, dict[str, Any]] = {
    "plain": {},
    "sampled": dict(sampler="temperature"),
    "copied": dict(drafter=("prompt_lookup", dict(max_draft_tokens=4, ngram=1))),
    "chain": dict(drafter=("draft_model", dict(max_draft_tokens=3)), sampler="temperature"),
    "tree": dict(drafter=("draft_model", dict(max_draft_tokens=3, width=3))),
    "heads": dict(drafter=("medusa", dict(nodes=8)), acceptance="typical", sampler="temperature"),
    "states": dict(drafter=("eagle", dict(nodes=8)), sampler="temperature"),
    "heavy hitters": dict(policy=("h2o", dict(heavy=6, recent=4))),
    "drafts, evicted": dict(
        drafter=("prompt_lookup", dict(ngram=1)), policy=("h2o", dict(heavy=6, recent=4))
    ),
    "sinks": dict(policy=("streaming_llm", dict(sink_tokens=2, recent=6))),
    "prompt, cut": dict(policy=("snapkv", dict(prompt_budget=4, window=3))),
    "few bits": dict(kv_compression=("kivi", dict(group=4, buffer=4))),
}

# the drafts that a rule judges, if not a chain of the draft model
DRAFTS: dict[str, tuple[str, dict[str, Any]]] = {
    "spectr": ("chains", dict(max_draft_tokens=3, chains=3)),
    "lantern": ("sjd", dict(window=4)),
}


@pytest.mark.parametrize("name", METHODS)
def test_sessions_write_together_what_each_writes_alone(name: str) -> None:
    figures = same(toys.method(**METHODS[name]))
    assert figures.pass_counts[3] >= 3, "while all three go their passes are one"
    assert figures.pass_counts[2] > 0 and figures.pass_counts[1] > 0, "those that end leave"


@pytest.mark.parametrize("rule", sorted(registry("acceptance")))
def test_every_rule_judges_a_text_as_it_does_alone(rule: str) -> None:
    drafter = DRAFTS.get(rule, ("draft_model", dict(max_draft_tokens=3)))
    assert same(toys.method(drafter=drafter, acceptance=rule, sampler="temperature")).pass_counts[3] >= 3


@pytest.mark.parametrize("policy", thinned(2, toys.representatives("policy")), ids=lambda policy: policy[0])
def test_every_policy_keeps_of_a_text_what_it_keeps_alone(policy: tuple[str, dict[str, Any]]) -> None:
    assert same(toys.method(policy=policy)).pass_counts[3] >= 3


def test_every_drafter() -> None:
    """A batch of each kind of draft: the greedy texts are the target's, and verifying passes are shared."""
    target, counts, unshared = toys.pair()[0], (5, 6, 3), []
    for name, settings in toys.representatives("drafter"):
        drafting = sessions(
            toys.method(drafter=(name, settings)), more=tuple({"max_new_tokens": x} for x in counts)
        )
        figures = decode_together(drafting, over=raise_)
        for one, prompt, count in zip(drafting, PROMPTS, counts, strict=True):
            assert one.tokens[len(prompt) :] == toys.cached_greedy_text(target, prompt, 40)[:count], name
            assert check(one.sink).ok, name
        unshared += [name] * (not figures.pass_counts[3])
    assert not unshared


def test_the_next_takes_the_place_of_one_that_ended() -> None:
    told: list[Session] = []
    waiting = sessions(toys.method())
    figures = decode_together(iter(waiting), most=2, over=lambda session, error: told.append(session))
    assert told == [waiting[0], waiting[2], waiting[1]], "the second writes longest"
    assert figures.pass_counts[3] == 0 and figures.pass_counts[2] > 15
    assert [x.tokens for x in waiting] == [x.tokens for x in alone(toys.method())]
    seat = waiting[0].target.executor
    assert isinstance(seat, SharedExecutor) and seat.member is None, (
        "behind that it is an executor as any other"
    )
    assert waiting[0].end is not None and len(waiting[0].sink.steps) == waiting[0].steps


def test_every_owner_is_told_of_once_also_one_that_is_refused() -> None:
    """Each owner is reported once, also one that is refused.

    The second is refused. The third says not yet while the first runs. The last comes after a None.
    """
    kept, asked, steps, ends = (
        dict(zip("acd", sessions(toys.method()), strict=True)),
        Counter[str](),
        Counter[str](),
        list[Any](),
    )

    def owners() -> Iterator[str | None]:
        yield from ("a", "b", "c", None, "d")

    def begin(name: str) -> Session | None:
        asked[name] += 1
        if name == "b":
            raise MethodError("no.")
        return None if name == "c" and kept["a"].end is None else kept[name]

    decode_for_owners(
        owners(),
        begin,
        3,
        each=lambda x, step: steps.update(x),
        over=lambda x, error: ends.append((x, str(error or ""))),
    )
    assert ends == [("b", "no."), ("a", ""), ("d", ""), ("c", "")], "in the order of their ends"
    assert asked["c"] > 10 and asked["a"] == asked["b"] == asked["d"] == 1, (
        "the test needs one that has to wait"
    )
    assert steps == {name: session.steps for name, session in kept.items()}
    assert [x.tokens for x in kept.values()] == [x.tokens for x in alone(toys.method())]
    assert session_sets(9, 2) == [range(8), range(8, 9)] and session_sets(0, 2) == []


def test_methods_differ_and_none_waits_for_ever() -> None:
    """Each step of the second asks for a pass that leaves early, and no other does, so nobody can share it."""
    parts: list[dict[str, Any]] = [
        {},
        dict(adaptive_depth=("confidence_exit", {})),
        dict(drafter=("draft_model", dict(max_draft_tokens=3))),
    ]
    one = [sessions(toys.method(**x))[i] for i, x in enumerate(parts)]
    written: list[int] = []
    figures = decode_together(one, each=lambda session, step: written.append(one.index(session)), over=raise_)
    assert [x.tokens for x in one] == [alone(toys.method(**x))[i].tokens for i, x in enumerate(parts)]
    assert figures.pass_counts[2] > 0
    last = max(i for i, who in enumerate(written) if who == 1)
    assert written.index(0) < last and last > PATIENCE, "who waits for others to come is served at last"


def test_one_that_fails_touches_no_other() -> None:
    """The weights of a token that only one prompt contains are damaged."""
    target, prompts = toys.pair()[0], [[3, 1, 4], [5, 10, 2], [6, 2, 8]]
    broken = toys.model(toys.decoder(seed=toys.LIVELY, dtype=torch.float64))
    broken.decoder.embed[10] = torch.nan
    assert not any(10 in toys.cached_greedy_text(target, prompts[i], 40)[:9] for i in (0, 2)), (
        "the test needs texts without it"
    )
    errors: dict[int, Exception | None] = {}
    made = [
        Session(broken, "prompt_lookup", x, max_new_tokens=9, stop_tokens=[], executor=SharedExecutor("cpu"))
        for x in prompts
    ]
    for one in made:
        one.sink = Trace()
    figures = decode_together(made, over=lambda session, error: errors.update({made.index(session): error}))
    assert [x.end and x.end.reason for x in made] == ["max_new_tokens", "non_finite_logits", "max_new_tokens"]
    assert isinstance(errors[1], EngineFault) and errors[0] is errors[2] is None and figures.pass_counts[3]
    for i in (0, 2):
        assert (
            made[i].tokens[3:] == toys.cached_greedy_text(target, prompts[i], 40)[:9]
            and check(made[i].sink).ok
        )


def test_several_that_fail_at_once_end_the_call_where_its_owner_raises() -> None:
    """A session that has ended but is not yet reported is not waited for."""
    made = sessions(toys.method())

    def fail(session: Session, step: Step) -> None:
        if session in made[1:] and session.steps == 6:  # these two share their passes from the start
            raise ArithmeticError("at the sixth step")

    with pytest.raises(ArithmeticError, match="at the sixth step"):
        decode_together(made, each=fail, over=raise_)
    assert all(one.end is not None for one in made)


def test_a_shared_pass_that_breaks_is_run_again_without_sharing() -> None:
    """One cache cannot grow any more, in the middle of the layers; the rows of the others must not be added twice."""
    made, more = sessions(toys.method()), 0
    store = made[1].target.cache.layers[1]
    append = store.append

    def full(*args: Any) -> None:
        nonlocal more
        more += 1
        if more > 4:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        append(*args)

    store.append = full  # type: ignore[method-assign]
    decode_together(made)
    assert [x.end and x.end.reason for x in made] == ["max_new_tokens", "out_of_memory", "max_new_tokens"]
    for i, one in enumerate(alone(toys.method())):
        assert made[i].tokens == (one.tokens if i != 1 else one.tokens[: len(made[1].tokens)])
        assert made[i].target.cache.lengths() == (
            one.target.cache.lengths() if i != 1 else len(made[1].tokens) - 1
        )
        assert all(x.m == 0 for x in made[i].target.cache.layers) and check(made[i].sink).ok


def test_all_that_were_begun_are_stopped() -> None:
    before, made, count = (
        threading.active_count(),
        sessions(toys.method(drafter=("draft_model", dict(max_draft_tokens=3)))),
        [],
    )
    decode_together(
        made, most=2, halted=lambda: len(count) > 6, each=lambda session, step: count.append(step)
    )
    assert [x.end and x.end.reason for x in made] == ["stopped_by_user", "stopped_by_user", None]
    for one, other in zip(made[:2], alone(made[0].method), strict=False):
        assert (
            one.tokens == other.tokens[: len(one.tokens)]
            and check(one.sink).ok
            and len(one.tokens) > one.prompt
        )
    assert threading.active_count() == before


def test_who_gives_up_watching_one_ends_that_one() -> None:
    def each(session: Session, step: Step) -> None:
        if session is made[1]:
            raise BrokenPipeError

    made, errors = sessions(toys.method()), []
    decode_together(
        made,
        each=each,
        over=lambda session, error: errors.append((session.end and session.end.reason, error)),
    )
    assert [x.end and x.end.reason for x in made] == ["max_new_tokens", "stopped_by_user", "max_new_tokens"]
    assert sum(isinstance(error, BrokenPipeError) for _, error in errors) == 1 and made[1].steps == 1


def test_a_session_without_a_seat_is_refused() -> None:
    with pytest.raises(ValueError, match="executor=Seat"):
        decode_together(sessions(toys.method(), None))


def test_a_pass_that_fills_the_most_rows_is_shared_by_nobody() -> None:
    """Prompts are read in chunks of 512: two of them are one pass, a third is in the next."""
    target = toys.model(toys.decoder(toys.toy_spec(max_positions=700), dtype=torch.float64))
    made = [
        Session(target, None, toys.prompts(1, 600)[0], max_new_tokens=1, executor=SharedExecutor("cpu"))
        for _ in range(3)
    ]
    figures = decode_together(made, over=raise_)
    assert ROWS == 1024 and figures.pass_counts == {2: 1, 1: 1, 3: 2}


def test_the_likeliest_are_looked_for_where_the_pass_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not computed in the sessions' threads, where the logits may first have to reach another core."""
    honest, threads = executor.row_maxima, Counter[str]()

    def highest(logits: torch.Tensor) -> Any:
        threads[threading.current_thread().name] += 1
        return honest(logits)

    monkeypatch.setattr(executor, "row_maxima", highest)
    monkeypatch.setattr(going, "row_maxima", highest)
    decoding = sessions(toys.method())
    figures = decode_together(decoding, over=raise_)
    assert threads == {threading.current_thread().name: sum(x.sequences for x in figures.passes)}
    assert [x.tokens for x in decoding] == [x.tokens for x in alone(toys.method())]


def test_plain_passes_have_together_the_bits_of_general_ones() -> None:
    """Batch a row after a prompt, a chain after a short one and a tree after a long one.

    The result equals that of the same passes when they may not be plain.
    """
    decoder, answers = toys.pair()[0].decoder, []
    tree = Draft([1, 2, 3, 4], [ROOT, ROOT, 0, 0]).build_feed(7, len(PROMPTS[2]))
    for ran in (None, ExecutedLayers()):
        asked = []
        for prompt, feed in zip(
            PROMPTS,
            (Feed.causal_chain([7], len(PROMPTS[0])), Feed.causal_chain([7, 1, 2], 1), tree),
            strict=True,
        ):
            cache = KVCache(decoder.spec, dtype=decoder.dtype)
            decoder.forward(Feed.causal_chain(prompt, 0), cache)
            cache.commit(range(len(prompt)))
            asked.append(PassRequest(decoder, feed, cache, ran=ran))
        assert all(x.is_plain == (ran is None) for x in asked)
        answers.append(forward_batched(asked))
    assert all(torch.equal(a, b) for a, b in zip(*answers, strict=True))


def test_a_chain_that_is_written_in_one_call_says_who_shared_its_passes() -> None:
    made = sessions(toys.method(drafter=("draft_model", dict(max_draft_tokens=3))))
    decode_together(made, over=raise_)
    drafted = [
        [x.together for step in one.sink.steps for x in step.passes if x.phase == "draft"] for one in made
    ]
    assert all(3 in told for told in drafted), "while all three go their passes are one"
