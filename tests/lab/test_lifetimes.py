"""Lifetimes: the records agree with the entries in the cache itself; reasons, overlaps and lost texts follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import toys
from sizes import thinned

from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.session.session import Session
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.records.events import Augmented, CacheChange, Fields, Header, Prefill, Step
from decodescope.lab.cache.attention import attention_rows, attention_shares, received_attention
from decodescope.lab.cache.entry_states import shared_stretches
from decodescope.lab.cache.lifetimes import (
    BY_READING,
    KEPT,
    EntryLifetimes,
    cache_overlap,
    position_ranges,
)
from decodescope.lab.cache.mass import mass_fractions
from decodescope.lab.cache.needle import find_text, span_lifetime, text_lifetime
from decodescope.lab.figures import attention

WINDOW, SINKS, H2O = (
    ("window", {"window": 6}),
    ("streaming_llm", {"sink_tokens": 2, "recent": 6}),
    ("h2o", {"heavy": 4, "recent": 4}),
)


def decoded(policy: Any, **more: Any) -> Any:
    return toys.decode(toys.method(policy=policy), count=20, **more)


@pytest.mark.parametrize(
    ("policy", "drafter"),
    thinned(2, toys.variants("policy"), ["none", "prompt_lookup"]),
    ids=lambda x: x if isinstance(x, str) else "-".join(map(str, [x[0], *x[1].values()])),
)
def test_what_is_kept_is_what_the_cache_holds(policy: Any, drafter: str) -> None:
    session = toys.decode(toys.method(policy=policy, drafter=drafter), count=20)
    made, last = EntryLifetimes.of(session.sink), len(session.sink.steps) - 1
    for i, step in enumerate(session.sink.steps):
        change = step.cache[0]
        each = [change.held] * made.rows if change.by_head is None else change.by_head.flatten().tolist()
        assert made.held_mask(i).sum(1).tolist() == each and made.held[i] == change.held
        assert not made.untold and made.length[i] == session.sink.prefill.n + sum(
            x.cache[0].appended for x in session.sink.steps[: i + 1]
        )
    for layer, store in enumerate(session.target.cache.layers):
        for head, due in enumerate(store.positions()[0].expand(2, -1).sort(1).values.tolist()):
            assert np.flatnonzero(made.held_mask(last)[layer * 2 + head]).tolist() == [
                p for p in due if p >= 0
            ]
    assert made.tokens == session.tokens


@pytest.mark.parametrize(
    "rule",
    [
        x
        for x in toys.variants("adaptive_depth")
        if x[0] in ("free", "skipdecode", "trigrams", "magic_pyramid", "skip_layer")
    ],
    ids=lambda x: "-".join(map(str, [x[0], *x[1].values()])),
)
def test_what_a_layer_never_computed_is_absent(rule: Any) -> None:
    """Positions without an entry, and those whose entry came late, are the ones that the stores lack, after every step."""
    method = toys.method(adaptive_depth=rule)
    session = Session(toys.pair()[0], method, toys.PROMPT * 2, max_new_tokens=12)
    trace = session.sink = Trace()
    stored = [[x.positions()[0, 0].tolist() for x in session.target.cache.layers] for _ in session.stream()]
    assert not check(trace).problems
    made = EntryLifetimes.of(trace)
    for i, layers in enumerate(stored[: made.count]):
        for layer, positions in enumerate(layers):
            assert np.flatnonzero(made.held_mask(i)[layer * 2]).tolist() == sorted(positions)
    absent = made.absent_mask(made.count - 1)
    for row in range(made.rows if absent is not None else 0):
        letters = made.letters(row, made.count - 1, 0, made.length[-1])
        assert [x == "A" for x in letters] == absent[row].tolist()


def test_what_an_older_record_only_counted_follows_where_it_can() -> None:
    trace = toys.decode(
        toys.method(adaptive_depth=("skipdecode", dict(min_layers=1, decay_horizon=12))), count=12
    ).sink
    due = EntryLifetimes.of(trace).held_mask(11)
    for record in (trace.prefill, *trace.steps):
        record.cache[0].absent = record.cache[0].filled = None
    assert np.array_equal(EntryLifetimes.of(trace).held_mask(11), due) and not due.all()


def test_heads_that_were_cut_hold_nothing_and_are_not_counted() -> None:
    lives = EntryLifetimes(header(n_layers=3, n_kv_heads=2, groups=[[1, 1], [], [2]]))
    lives.learn(Prefill(4, cache=[CacheChange("target", 4, 4, 1, 1)]))
    lives.learn(Step(0, 4, 0.0, 0.0, [3], ["target"], cache=[CacheChange("target", 1, 5, 1, 1)]))
    assert lives.cut == [2, 3, 5] and lives.held_mask(0).sum(1).tolist() == [5, 5, 0, 0, 5, 0]
    assert lives.held_range(0) == (5, 5) and lives.head_summary(0) is None
    assert lives.letters(5, 0, 0, 2) == ["C", "C"] and lives.letters(4, 0, 0, 1) == ["K"]
    assert lives.table(0, 0, 1)[0]["kept"] == 3 and lives.lifetime(0, 0)[2] == (None, "C")


def test_stretches_that_several_texts_read_are_joined() -> None:
    nodes = np.array([[-1, 0, 4, 3], [0, 4, 6, 2], [0, 4, 5, 1], [1, 6, 9, 1], [1, 6, 8, 1]])
    assert shared_stretches(nodes) == [[0, 4, 3], [4, 6, 2]]


def test_each_state_has_its_reason() -> None:
    made = EntryLifetimes.of(decoded(SINKS).sink)
    n = made.length[19]
    assert "".join(made.letters(0, 19, 0, n)) == "SS" + (n - 8) * "O" + 6 * "W" and not made.evicts_by_score
    made = EntryLifetimes.of(decoded(WINDOW).sink)
    assert set(made.letters(3, 19, 0, made.length[19])) == {"O", "W"}
    made = EntryLifetimes.of(decoded(H2O).sink)
    letters = "".join(made.letters(0, 19, 0, made.length[19]))
    assert (
        made.evicts_by_score
        and letters.count("H") == letters.count("W") == 4
        and letters.endswith("WWWW")
        and "O" not in letters
    )
    assert set(EntryLifetimes.of(decoded("keep_all").sink).letters(0, 19, 0, 5)) == {"K"}


def test_what_stands_beside_the_text_is_told_from_its_step_on() -> None:
    trace = decoded("keep_all").sink
    trace.prefill.cache[0].augmented = [Augmented("soft", 0, 16, "trained")]
    trace.steps[3].cache[0].augmented = [Augmented("latent", 12, 4, "model")]
    fates = EntryLifetimes.of(trace).fates
    assert fates.extra_kv(2) == [{"form": "soft", "at": 0, "entries": 16, "origin": "trained"}]
    assert [x["at"] for x in fates.extra_kv(3)] == [0, 12] and not EntryLifetimes.of(
        decoded("keep_all").sink
    ).fates.extra_kv(9)


def test_what_each_head_holds_stands_beside_what_was_settled_for_it() -> None:
    trace = decoded(("adakv", dict(prompt_budget=6, window=3, pool_radius=1)), prompt=toys.PROMPT * 3).sink
    plan = next(x.cache[0].plan for x in trace.steps if x.cache[0].plan is not None)
    heads = EntryLifetimes.of(trace).head_summary(19)
    assert heads["due"] == plan.entries.ravel().tolist() and heads["kind"] is None
    assert heads["held"] == trace.steps[19].cache[0].by_head.ravel().tolist() and len(set(heads["held"])) > 1
    assert EntryLifetimes.of(decoded(H2O).sink).head_summary(19) is None, (
        "all hold the same, and nothing was settled for one"
    )


def test_what_was_settled_ends_where_a_fork_has_another_policy() -> None:
    run = decoded(("adakv", dict(prompt_budget=6, window=3, pool_radius=1)), prompt=toys.PROMPT * 3)
    for policy, plain in (
        ("keep_all", True),
        (("adakv", dict(prompt_budget=9, window=3, pool_radius=1)), False),
    ):
        fork = Fork(toys.pair()[0], run.header, list(run.sink.steps), 5, method=toys.method(policy=policy))
        fork.sink = Trace()
        while fork.end is None:
            fork.step()
        lives = EntryLifetimes(fork.header)
        for record in (run.sink.prefill, *fork.sink.steps):
            lives.learn(record)
        before, after, told = (
            lives.head_summary(4),
            lives.head_summary(12),
            fork.sink.steps[12].cache[0].by_head,
        )
        assert (
            before["due"]
            and before["held"] != (after and after["held"])
            and (after is None) == plain == (told is None)
        )
        assert plain or after["held"] == told.ravel().tolist()


def test_heads_are_told_one_by_one_up_to_some_thousands() -> None:
    few, many = (EntryLifetimes(header(n_layers=layers, n_kv_heads=64)) for layers in (64, 65))
    for lives in (few, many):
        lives.learn(Prefill(4, cache=[CacheChange("target", 4, 4, 1, 1)]))
        gone = np.array([[0, 0, 1]], np.int32)
        change = CacheChange("target", 1, 5, 1, 1, 1, evicted=gone)
        lives.learn(Step(0, 4, 0.0, 0.0, [3], ["target"], cache=[change]))
    assert few.head_summary(0)["held"][:2] == [4, 5] and many.head_summary(0) is None


def test_a_policy_that_speaks_of_its_first_entries_alone_has_no_budget() -> None:
    """Layers or heads of such a policy have separate budgets: a line at the number of the sinks would be wrong."""
    made = EntryLifetimes.of(decoded(("d2o", {"heavy": 3, "recent": 3, "sink_tokens": 2})).sink)
    assert made.budget is None and made.sinks == 2 and max(made.held[1:]) > 2
    assert EntryLifetimes.of(decoded(H2O).sink).budget == 8


def test_what_goes_by_worth_is_told_from_what_goes_by_age_without_a_knob_s_help() -> None:
    session = decoded(H2O)
    session.sink.header.method["policy"] = {"name": "another"}
    assert EntryLifetimes.of(session.sink).evicts_by_score
    session = decoded(WINDOW)
    session.sink.header.method["policy"] = {"name": "another"}
    assert not EntryLifetimes.of(session.sink).evicts_by_score


def test_a_position_s_life_and_the_table_agree_with_the_map() -> None:
    made = EntryLifetimes.of(decoded(H2O).sink)
    prompt = len(toys.PROMPT) - 1
    assert [made.creation_step(p) for p in (0, prompt - 1, prompt, prompt + 3)] == [
        BY_READING,
        BY_READING,
        0,
        3,
    ]
    for i in (0, 7, 19):
        left = made.eviction_steps(i)
        for row in made.table(i, 0, 99):
            p, gone = row["position"], [x for x in left[:, row["position"]].tolist() if x != KEPT]
            assert row["kept"] == made.held_mask(i)[:, p].sum() == made.rows - len(gone)
            assert (row["first"], row["last"]) == ((min(gone), max(gone)) if gone else (None, None))
            assert [x for x, _ in made.lifetime(p, i)] == [
                None if x == KEPT else x for x in left[:, p].tolist()
            ]
    assert (
        made.step_at_length(made.length[7]) == 7
        and made.step_at_length(0) == 0
        and made.step_at_length(1 << 30) == 19
    )


@pytest.mark.parametrize("columns", [1, 3, 7, 400])
def test_a_binned_map_says_how_much_of_each_stretch_is_kept(columns: int) -> None:
    session = decoded(H2O)
    made, mass = EntryLifetimes.of(session.sink), session.sink.steps[12].cache[0].mass
    found, n = made.binned_map(12, columns, mass), made.length[12]
    width = found["bin"]
    assert found["columns"] <= columns and found["columns"] * width >= n > (found["columns"] - 1) * width
    for row in range(made.rows):
        for c in range(found["columns"]):
            part = slice(c * width, min(n, (c + 1) * width))
            assert found["kept"][row, c] == np.ceil(255 * made.held_mask(12)[row, part].mean())
            assert found["mass"][row, c] == mass.reshape(made.rows, -1)[row, part].max()
            assert found["now"][row, c] == (made.eviction_steps(12)[row, part] == 12).any()


def test_the_series_is_short_and_loses_no_eviction() -> None:
    made = EntryLifetimes.of(decoded(WINDOW).sink)
    for points in (1, 3, 7, 500):
        found = made.series(points)
        assert (
            len(found["step"]) <= points
            and found["step"][-1] == 19
            and sum(found["evicted"]) == sum(made.evicted)
        )
        assert found["held"] == [made.held[k] for k in found["step"]] and found["full"][-1] == made.full[19]


def test_two_runs_are_compared_where_their_texts_are_the_same() -> None:
    a, b = EntryLifetimes.of(decoded(H2O, seed=1).sink), EntryLifetimes.of(decoded("keep_all", seed=1).sink)
    found = cache_overlap(a, 19, b, 19)
    same = next((k for k, (x, y) in enumerate(zip(a.tokens, b.tokens, strict=True)) if x != y), len(a.tokens))
    assert found["upto"] == min(same, a.length[19]) and found["parted"] == (same <= a.length[19])
    for row, (both, one, two) in enumerate(found["counts"]):
        held = set(np.flatnonzero(a.held_mask(19)[row, : found["upto"]]).tolist())
        assert (both, one, two) == (len(held), 0, found["upto"] - len(held)) and found["jaccard"][
            row
        ] == both / found["upto"]
        alone = {p for first, last in found["only"][1][row] for p in range(first, last + 1)}
        assert alone == set(range(found["upto"])) - held and not found["only"][0][row]
    assert cache_overlap(b, 3, b, 3)["jaccard"] == [1.0] * b.rows and position_ranges(np.array([], int)) == []


def test_portions_undo_the_root_of_the_recorded_mass() -> None:
    session = decoded(H2O, level="full")
    store = session.target.cache.layers[1]
    due = store.column("mass")[0] / store.column("mass")[0].sum(1, keepdim=True)
    found = mass_fractions(session.sink.steps[-1].cache[0].mass)[2:4]
    for head in range(2):
        assert np.allclose(found[head, store.positions()[0, head].numpy()], due[head].numpy(), atol=0.02)
    assert np.allclose(found.sum(1), 1)


# ---- lost texts


WORDS = ["The", " key", " is", " blue", [0xE2], ["e2", "82"], ["ac"], ".", " KEY"]


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("key is", [(1, 2)]),
        (" key", [(1, 1)]),
        ("ey i", [(1, 2)]),
        ("KEY", [(8, 8)]),
        ("THE", [(0, 0)]),
        ("€", [(5, 6)]),
        ("red", []),
        ("", []),
    ],
)
def test_a_text_is_found_across_tokens_and_bytes(text: str, due: list[tuple[int, int]]) -> None:
    tokens = [0, 1, 2, 3, 7, 5, 6, 7, 8]
    at = {1: 1, 0: 0, 2: 2, 5: 5, 6: 6, 8: 8}
    found = find_text(text, tokens, lambda token: WORDS[token])
    assert found == [(at[a], at[b]) for a, b in due]


def test_what_became_of_a_text_is_said_in_one_sentence() -> None:
    made = EntryLifetimes.of(decoded(SINKS).sink)
    n = made.length[19]
    lost = span_lifetime(made, 3, 5, 19)
    assert "positions 3 to 5" in lost["sentence"] and "no head holds any of it" in lost["sentence"]
    assert "while the prompt was read" in lost["sentence"] and "only the first 2 are kept" in lost["sentence"]
    assert all(
        row["kept"] == 0 and row["why"] == "O" and row["first"] == row["last"] == BY_READING
        for row in lost["rows"]
    )
    assert "all 6 heads hold all of it" in span_lifetime(made, n - 3, n - 1, 19)["sentence"]
    part = span_lifetime(made, n - 7, n - 5, 19)
    assert "6 hold a part" in part["sentence"] and "in step 19" in part["sentence"]
    assert (
        "has not read" in span_lifetime(made, n, n, 19)["sentence"]
        and "1 of 2 are read" in span_lifetime(made, n - 1, n, 19)["sentence"]
    )
    lost = span_lifetime(EntryLifetimes.of(decoded(H2O).sink), 0, 12, 19)
    assert "rated higher" in lost["sentence"] and 0 < sum(row["kept"] for row in lost["rows"]) < 6 * 13
    counted = EntryLifetimes.of(decoded(SINKS, level="summary").sink)
    assert counted.untold and "is not recorded" in span_lifetime(counted, 3, 5, 19)["sentence"]


def test_a_text_s_fate_is_told_of_a_whole_run() -> None:
    trace = decoded(WINDOW).sink
    lives = EntryLifetimes.of(trace)
    first, last = find_text(text := trace.text(lives.tokens[1:3]), lives.tokens, trace.piece)[0]
    story = text_lifetime(trace, text)
    assert (
        story == span_lifetime(lives, first, last, lives.count - 1) and "no head holds" in story["sentence"]
    )
    with pytest.raises(ValueError, match="does not hold 'nowhere'"):
        text_lifetime(trace, "nowhere")
    with pytest.raises(ValueError, match="no reading"):
        EntryLifetimes.of(Trace([trace.header]))
    with pytest.raises(ValueError, match="no step"):
        text_lifetime(Trace([trace.header, trace.prefill]), text)


# ---- attention


def test_heaviest_entries_are_counted_in_one_step_and_over_all() -> None:
    trace = decoded(("keep_all", {}), level="full", layers=[0, 2]).sink
    length = len(trace.header.prompt) + sum(len(step.emitted) for step in trace.steps)
    grids = [received_attention(step.fields, 6, 2, length)[[0, 1, 4, 5]] for step in trace.steps]
    shown = attention.table(trace)
    assert shown["layer"].tolist() == [0, 2] and set(shown["of"]) == {length}

    def enough(row: np.ndarray) -> int:
        return next(k for k in range(1, length + 1) if np.sort(row)[-k:].sum() >= 0.9 * row.sum() - 1e-6)

    run = [enough(row) for row in sum(grids)]
    assert shown["run"].tolist() == [np.mean(run[:2]), np.mean(run[2:])]
    steps = [np.mean([[enough(row) for row in g[k : k + 2]] for g in grids]) for k in (0, 2)]
    assert shown["one step"].tolist() == pytest.approx(steps, abs=1e-3)
    due = [sum(g[k : k + 2, :4].sum() for g in grids) / (2 * len(grids)) for k in (0, 2)]
    assert shown["first"].tolist() == pytest.approx(due, abs=1e-3)
    even, one, over = attention.figure(trace).data
    assert (
        even.y[0] == one.y[0] == over.y[0] == 0 and even.y[-1] == one.y[-1] == pytest.approx(1) == over.y[-1]
    )
    most = np.mean([np.sort(g, 1)[:, ::-1][:, : length * 3 // 5].sum(1) for g in grids])
    assert length % 5 == 0 and one.y[60] == pytest.approx(most) and one.y[60] > over.y[60] > 0.6
    with pytest.raises(ValueError, match="holds attention"):
        attention.figure(decoded(H2O).sink)


def test_rows_of_attention_are_those_of_the_record_by_position() -> None:
    session = decoded(H2O, level="full", layers=[1])
    step = session.sink.steps[9]
    fields = step.fields
    assert fields.layers == [1]
    found = attention_rows(fields, 1, 1, 400)
    assert (
        found["bin"] == 1 and found["positions"] == sorted(fields.positions[0, 1].tolist()) == found["ends"]
    )
    for k, p in enumerate(found["positions"]):
        slot = fields.positions[0, 1].tolist().index(p)
        assert np.allclose(np.array(found["weights"])[:, :, k], fields.attention[0, 1, :, :, slot], atol=1e-4)
    few = attention_rows(fields, 1, 1, 3)
    assert len(few["positions"]) <= 3 and np.allclose(np.array(few["weights"]).sum(-1), 1, atol=1e-2)
    assert sum(attention_shares(found["known"], found["rows"], 2, 4, step.n)) == pytest.approx(1)
    made = received_attention(fields, 6, 2, step.n)
    assert np.isnan(made[:2]).all() and np.isnan(made[4:]).all() and np.allclose(made[2:4].sum(1), 1)
    for asked in ((0, 0), (1, 2), (1, -1)):
        with pytest.raises(ValueError, match="not recorded"):
            attention_rows(fields, *asked, 400)


def test_attention_that_makes_no_sense_is_refused() -> None:
    bad = Fields([0], np.zeros((1, 2, 2, 1, 5), np.float16), np.zeros((1, 2, 4), np.int32))
    with pytest.raises(ValueError, match="do not fit"):
        attention_rows(bad, 0, 0, 10)
    assert received_attention(bad, 2, 2, 5) is None and received_attention(Fields(), 2, 2, 5) is None
    nowhere = Fields([7], np.full((1, 2, 1, 1, 2), np.nan, np.float16), np.zeros((1, 2, 2), np.int32))
    assert received_attention(nowhere, 2, 2, 5) is None and attention_rows(nowhere, 7, 0, 10)["weights"] == [
        [[0.0, 0.0]]
    ]


# ---- foreign records


def header(**model: Any) -> Header:
    return Header(
        {"n_layers": 2, "n_kv_heads": 1, **model}, {"policy": "no object"}, np.array([1, 2], np.int32), 0
    )


def test_entries_that_are_not_there_are_passed_over_and_too_many_are_refused() -> None:
    made = EntryLifetimes(header())
    odd = np.array([[9, 0, 0], [0, 9, 0], [0, 0, 99], [-1, 0, 0], [1, 0, 1]], np.int32)
    made.learn(Prefill(2, cache=[CacheChange("target", 2, 2, 0, 0)]))
    change = CacheChange("target", 1, 1, 5, 9, 2, evicted_all=np.array([0, 77], np.int32), evicted=odd)
    made.learn(Step(0, 2, 0.0, 0.0, [3], ["target"], cache=[change]))
    assert made.held_mask(0).tolist() == [[False, True, True], [False, False, True]] and made.bytes == [5]
    made.learn(Step(1, 3, 0.0, 0.0, [4], ["target"]))
    assert made.length == [3, 3] and made.held == [1, 1] and made.evicted == [2, 0]
    with pytest.raises(ValueError, match="too many to show"):
        made.learn(Step(2, 4, 0.0, 0.0, [5], ["target"], cache=[CacheChange("target", 1 << 40, 1, 1, 1)]))
    with pytest.raises(ValueError, match="more than can be shown"):
        EntryLifetimes(header(n_layers=1 << 30))
    assert EntryLifetimes(header(n_layers="x", n_kv_heads=None)).rows == 1
