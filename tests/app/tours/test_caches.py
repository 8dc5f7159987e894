"""Guided tours of caches: what each tour says about its run is true."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from toured import TOURS, cache_of, likely, opened, says, steps_of, text_of, told

from decodescope.engine import load
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import Trace
from decodescope.engine.trace.query.repeats import emitted_probabilities
from decodescope.lab.cache.lifetimes import EntryLifetimes
from decodescope.lab.cache.needle import find_text, span_lifetime, text_lifetime


def test_what_is_said_of_a_cache_that_drops_and_of_successors_seen_before() -> None:
    h2o = [next(x for x in step["kv"] if x["lane"] == "target") for step in told("h2o")]
    assert [h2o[i]["evicted"] > 0 for i in (12, 13, 14, 28, 30, 35)] == [False, False, True, True, True, True]
    with opened("h2o") as trace:
        held = [next(x for x in step.cache if x.lane == "target").held for step in trace.steps]
        assert held[0] == len(trace.header.prompt) == 11 and held[13:] == [24] * len(held[13:])
        assert len(trace.header.prompt) + len(trace.steps) - 1 == 46 and len(trace.steps) == 36
        left = [{at for _, _, at in step.cache[0].evicted.tolist()} for step in trace.steps[14:]]
        assert len(left[0]) > 1 and len(left[28 - 14]) == 11 and all(at and 0 not in at for at in left)
    recycling = told("recycling")
    with opened("recycling") as trace:
        prompt = [trace.text([x]) for x in trace.header.prompt]
    made = [piece for step in recycling for _, piece, _ in step["made"]]
    behind = {after for before, after in pairwise(prompt) if before == "\n"}
    assert behind == {node[1] for node in recycling[0]["nodes"][1:] if node[0] == 0} and len(behind) == 3
    name = [piece for _, piece, _ in recycling[4]["made"]]
    assert (
        len(name) == 5
        and recycling[3]["made"][-1][1] + "".join(name[:3]) == "Bertha"
        and "Bertha" in "".join(prompt)
    )
    assert [origin for *_, origin in recycling[4]["made"]] == ["accept"] * 4 + ["bonus"]
    assert (recycling[5]["drafted"], recycling[5]["refused"], len(recycling[5]["made"])) == (13, 7, 1)
    assert [x[0] for x in recycling[5]["nodes"][1:-1]].count(0) == 7, "all that hang on the root are refused"
    assert (
        (len(made), len(recycling)) == (40, 14)
        and made[-1] == "<|end|>"
        and recycling[-1]["made"][-1][2] == "accept"
    )
    assert "".join(made[:-1]) in "".join(prompt)


def held_of(trace: Trace, text: str) -> list[int]:
    """How many tokens of the first place of a text the heads still hold at the end, in rising order."""
    return sorted(row["kept"] for row in text_lifetime(trace, text)["rows"])


def gone_of(cache: Any) -> list[list[int]]:
    """The positions that left the cache in a step, head by head."""
    rows: dict[tuple[int, int], list[int]] = {}
    for layer, head, position in cache.evicted.tolist():
        rows.setdefault((layer, head), []).append(position)
    return [sorted(x) for x in rows.values()]


def test_what_is_said_of_the_tokens_that_vote() -> None:
    tour, cache, steps, kept = TOURS["snapkv"], cache_of("snapkv"), told("snapkv"), steps_of("snapkv")
    with opened("snapkv") as trace:
        policy = trace.header.method["policy"]
        assert len(trace.header.prompt) == 74 and {k: policy[k] for k in ("prompt_budget", "window")} == {
            "prompt_budget": 20, "window": 4,
        }  # fmt: skip
        name, beach, pink, box = (held_of(trace, x) for x in ("Rufus", "beach", "pink", "box"))
        prompt = trace.text([int(x) for x in trace.header.prompt])
    assert (name[-4:], name.count(3), name.count(0), len(name)) == ([3, 3, 3, 3], 4, 9, 16)
    assert (beach, pink, box) == ([0] * 14 + [2, 2], [0] * 15 + [1], [0] * 3 + [1] * 13)
    assert "to the beach with a pink wheel" in prompt and "Julia, who had a box" in prompt
    assert (cache[0].evicted_count, cache[0].held, cache[24].held) == (50, 24, 48)
    assert (cache[0].plan.entries == 24).all() and cache[0].plan.kind is None, (
        "the Cache tab draws what was settled"
    )
    assert not any(x.evicted_count for x in cache[1:]) and len({tuple(x) for x in gone_of(cache[0])}) == 16
    for stop in tour[2:6]:
        says(stop, likely(kept[stop.step])[0])
    assert (
        text_of(steps) == "Rufus went to the town with a box. Rufus put the box on the table."
        and 74 + 24 == 98
    )
    assert [steps[x.step]["made"][0][1] for x in tour[3:6]] == [" to", " box", " p"]


def test_what_is_said_of_the_needles() -> None:
    """One needle is kept and one is lost, for the same question.

    Check the number that is written, and what the heads still hold of it.
    """
    runs = {name: (TOURS[name], steps_of(name), cache_of(name)) for name in ("needle-kept", "needle-lost")}
    with opened("needle-kept") as kept, opened("needle-lost") as lost:
        prompt = kept.text([int(x) for x in kept.header.prompt])
        assert (
            kept.header.prompt.tolist() == lost.header.prompt.tolist()
            and kept.header.model["name"] == "lab-recall"
        )
        (key,) = re.findall(r"The [a-z ]+ is (\d{4,5})\.", prompt)
        count, written = (
            len(kept.header.prompt),
            {x: kept.text(x.emitted_ids).removesuffix("<|end|>") for x in (kept, lost)},
        )
        assert written[kept] == key != written[lost] and written[lost][0] == key[0], (
            "the first digit saw all in both"
        )
        most = {x: max(row["kept"] for row in text_lifetime(x, key)["rows"]) for x in (kept, lost)}
        assert most[lost] < most[kept] <= len(key)
    assert prompt.rstrip().removesuffix("<|assistant|>").rstrip().removesuffix("<|end|>")[-1] in "?."
    for tour, steps, cache in runs.values():
        held, laws = [x.held for x in cache], [emitted_probabilities(x)[0] for x in steps]
        assert str(count) in tour[0].text and str(held[1]) in tour[1].text and held[1] < count
        for stop in tour:
            quoted = re.findall(r"\d\.\d{4}", stop.text)
            assert quoted == [f"{laws[stop.step][0]:.4f}"] * len(quoted), stop.title  # type: ignore[index] # never None here
        assert str(held[-1]) in tour[-1].text and str(count + len(steps) - 1) in tour[-1].text


def test_what_is_said_of_two_bits_a_number() -> None:
    tour, cache, steps, kept = TOURS["kivi"], cache_of("kivi"), told("kivi"), steps_of("kivi")
    packed = {i: (x.packed.first, x.packed.stop) for i, x in enumerate(cache) if x.packed is not None}
    assert packed == {0: (0, 64), 22: (64, 96)} and (cache[0].held - 64, cache[22].held) == (10, 96)
    with opened("kivi") as trace:
        prompt, tokens = [int(x) for x in trace.header.prompt], [x for step in kept for x in step.emitted]
        codec, written = trace.header.method["kv_compression"], trace.text(prompt)
        last, instead = (
            trace.text([x]) for x in (whole_choice(prompt, tokens[:27]), whole_choice(prompt, tokens[:28]))
        )
    assert (
        (codec["bits"], codec["group"]) == ("2", 32)
        and "Tobias" not in written
        and "There Kurt met Julia" in written
    )
    assert prompt[27:29] == tokens[11:13] and [steps[i]["made"][0][1] for i in (11, 12)] == [" p", "ink"]
    assert (last, instead) == (" T", "here") and [steps[i]["made"][0][1] for i in (27, 28, 29)] == [
        " T",
        "ob",
        "ias",
    ]
    for stop, ranks in ((2, (0,)), (4, (0, 1)), (5, (0,))):
        says(tour[stop], *(likely(kept[tour[stop].step])[i] for i in ranks))
    assert 0.37 < cache[39].held_bytes / cache[39].full_bytes < 0.42
    assert cache[39].held == 113 and not any(x.evicted_count for x in cache)
    assert (
        text_of(steps)
        == 'Rufus went to the beach with a pink wheel. "Yes," said Rufus. Tobias and Rufus ate grapes.'
    )


def whole_choice(prompt: list[int], tokens: list[int]) -> int:
    """The token that the uncompressed model with its full cache would write after these."""
    lane = Lane("target", load("lab", "float32", "cpu").decoder, KeepAll())
    return int(lane.forward(Feed.causal_chain([*prompt, *tokens], 0))[0, -1].argmax())


def test_what_is_said_of_entries_that_become_one() -> None:
    tour, cache, steps, kept = TOURS["d2o"], cache_of("d2o"), told("d2o"), steps_of("d2o")
    spread, budget = (cache[0].notes[x] for x in ("spread", "budget"))
    assert (budget[spread.index(max(spread))], budget[spread.index(min(spread))]) == (21, 31)
    assert (min(budget), max(budget)) == (21, 31)
    assert cache[0].plan.entries.tolist() == [[x] * 2 for x in budget]
    assert (cache[0].merged[:, 3] >= 0).mean() > 0.5
    with opened("d2o") as trace:
        lives, prompt = EntryLifetimes.of(trace), trace.text([int(x) for x in trace.header.prompt])
        spans = {x: find_text(x, lives.tokens, trace.piece)[0] for x in ("Rufus", "beach", "pink", "Kurt")}
        held = {
            (x, step): [row["kept"] for row in span_lifetime(lives, *spans[x], step)["rows"]]
            for x, step in (("Rufus", 3), ("beach", 7), ("pink", 12), ("Kurt", 23))
        }
        assert "beach" in prompt and prompt.count("Kurt") == 5 and len(trace.header.prompt) + 27 == 101
    assert (spans["Rufus"], held["Rufus", 3].count(4)) == ((6, 9), 1) and not any(held["beach", 7])
    assert (sorted(held["pink", 12])[-3:], held["Kurt", 23].count(3)) == ([0, 1, 1], 4)
    for stop, ranks in ((3, (0,)), (4, (0, 2)), (6, (0, 1))):
        says(tour[stop], *(likely(kept[tour[stop].step])[i] for i in ranks))
    assert text_of(steps) == 'Rufus went to the bridge with a turquoise. "Yes," said Kurt.<|end|>'
    assert [steps[x.step]["made"][0][1] for x in tour[3:5]] == [" b", " t"]
    says(tour[5], cache[20].notes["threshold"][2], digits=3)
    entry = 2 * 64 * 4  # bytes of a key and a value
    assert cache[27].by_head.sum() * entry == 217 * 2**10 and cache[27].full_bytes == 808 * 2**10
    assert "217 KiB of 808 are held" in tour[7].text


def heads_that_hold(trace: Trace, text: str, step: int) -> list[int]:
    """How many tokens of the first place of a text each head holds after a step, in rising order."""
    lives = EntryLifetimes.of(trace)
    span = find_text(text, lives.tokens, trace.piece)[0]
    return sorted(row["kept"] for row in span_lifetime(lives, *span, step)["rows"])


def say_probabilities(name: str, stops: dict[int, tuple[int, ...]], digits: int = 4) -> None:
    """Assert that these stops (by number) quote their steps' probabilities of these ranks."""
    kept = steps_of(name)
    for stop, ranks in stops.items():
        says(TOURS[name][stop], *(likely(kept[TOURS[name][stop].step])[i] for i in ranks), digits=digits)


def test_what_is_said_of_values_that_are_handed_on() -> None:
    tour, cache, steps = TOURS["cam"], cache_of("cam"), told("cam")
    assert (cache[0].evicted_count, cache[0].merged) == (46, None) and {x.held for x in cache} == {28}
    assert cache[0].evicted_all.tolist() == [*range(4, 50)], "the first 4 and the newest 24 of 74 stay"
    assert [x.evicted_all.tolist() for x in cache[1:]] == [[49 + i] for i in range(1, 28)]
    merging = {i: int((x.merged[:, 3] >= 0).sum()) for i, x in enumerate(cache) if i}
    assert [merging[x] for x in (3, 18, 11, 27)] == [8, 1, 5, 13]
    assert all(
        set(x.merged[:, 3].tolist()) <= {-1, 50 + i} and set(x.merged_by[:, 1].tolist()) <= {0, 1 / 8}
        for i, x in enumerate(cache)
        if i
    ), "an eighth each, to the entries from the next one on"
    chances = cache[3].notes["probability"]
    assert [layer for layer, x in chances.items() if x == 1] == ["5", "6", "7"]
    with opened("cam") as trace:
        assert not any(heads_that_hold(trace, "Rufus", 1)) and not any(heads_that_hold(trace, "beach", 0))
        tokens = [int(x) for x in trace.header.prompt] + [x for step in trace.steps for x in step.emitted]
        pieces = [trace.text([tokens[49 + i]]) for i in (3, 18, 11, 27)]
        assert pieces == [",", "rap", "ia", " went"] and " Julia" not in trace.text(tokens[61:74])
        assert len(trace.header.prompt) + 27 == 101
    say_probabilities("cam", {1: (0, 1), 3: (0, 1), 5: (0, 1)})
    assert [steps[x.step]["made"][0][1] for x in (tour[1], tour[3], tour[5])] == ["osa", " is", " M"]
    assert text_of(steps) == "Rosa went to the island with a turquoise needle. There Rosa met Martha"


def test_what_is_said_of_partitions() -> None:
    tour, cache, steps = TOURS["lag-kv"], cache_of("lag-kv"), told("lag-kv")
    cuts = {i: x.evicted_count for i, x in enumerate(cache) if x.evicted_count}
    assert cuts == {0: 24, 10: 8, 26: 8} and [cache[i].held for i in (1, 9, 10, 26)] == [51, 59, 52, 60]
    parts = {0: [(4, 20), (20, 36), (36, 52)], 10: [(52, 68)], 26: [(68, 84)]}
    for step, ranges in parts.items():
        for gone in gone_of(cache[step]):
            counts = [sum(first <= x < stop for x in gone) for first, stop in ranges]
            assert counts == [8] * len(ranges) and len(gone) == sum(counts)
    assert 4 + 4 * 16 + 6 == 74 and 4 + 24 + 31 == 59 and 74 + 10 == 68 + 16 and 74 + 26 == 84 + 16
    gone = [position for _, _, position in cache[0].evicted.tolist()]
    assert [16 - gone.count(x) for x in (7, 9)] == [14, 4]
    with opened("lag-kv") as trace:
        assert [trace.text([int(trace.header.prompt[x])]) for x in (7, 9)] == ["u", "us"]
        assert '. "Yes,"' in trace.text(trace.header.prompt) and "There" in trace.text(trace.header.prompt)
        assert heads_that_hold(trace, "Rufus", 3) == heads_that_hold(trace, "Rufus", 20)
    say_probabilities("lag-kv", {2: (0, 1), 5: (0, 1, 2), 6: (0, 1)})
    assert [steps[x.step]["made"][0][1] for x in (tour[2], tour[5], tour[6])] == ["u", " R", "us"]
    assert text_of(steps) == "Rufu went to the beach with a pink wheel. Rufus and Rufus ate g"


def test_what_is_said_of_gaps_that_are_closed() -> None:
    """A key is turned by as many positions as entries left after it, counted in what was evicted."""
    tour, cache, steps = TOURS["key-rerotation"], cache_of("key-rerotation"), told("key-rerotation")
    assert (cache[0].evicted_count, cache[0].held, cache[27].held) == (37, 37, 64)
    assert not any(x.evicted_count for x in cache[1:]) and 74 + 27 == 101
    means = []
    for gone in gone_of(cache[0]):
        kept = [x for x in range(74) if x not in gone]
        turns = [sum(x > at for x in gone) for at in kept]
        assert kept[:4] == [0, 1, 2, 3] and turns[:4] == [37] * 4 and turns[-1] == 0
        assert [x + y for x, y in zip(kept, turns, strict=True)] == [*range(37, 74)]
        means.append(sum(turns) / 37)
    recorded = cache[0].notes["turned"].values()
    assert max(abs(x - y) for x, y in zip(sorted(means), sorted(recorded), strict=True)) < 1e-9
    says(tour[2], min(means), max(means), digits=1)
    with opened("key-rerotation") as trace:
        name, place, quoted = (heads_that_hold(trace, x, 0) for x in ("Rufus", "beach", '"Yes,"'))
        with opened("kivi") as other:
            assert trace.header.prompt.tolist() == other.header.prompt.tolist()
        assert trace_tokens("key-rerotation")[:27] == trace_tokens("kivi")[:27], (
            "the whole cache's choice behind these is checked there"
        )
        assert trace.text([int(trace.header.prompt[42])]) == " T"
    assert (name.count(4), place.count(2), place.count(0), quoted.count(4)) == (8, 9, 4, 2)
    assert sum(x == 42 for *_, x in cache[0].evicted.tolist()) == 12
    say_probabilities("key-rerotation", {3: (0,), 4: (0,), 5: (0, 1), 6: (0,)})
    assert [steps[x.step]["made"][0][1] for x in tour[3:7]] == ["us", "ach", ' "', " R"]


def test_what_is_said_of_pages_that_are_read() -> None:
    tour, cache, steps, kept = TOURS["quest"], cache_of("quest"), told("quest"), steps_of("quest")
    read = [step.passes[-1].read for step in kept]
    assert (
        read[0] is None
        and read[1] is not None
        and read[1][:2] == [[74, 74]] * 2
        and not any(x.evicted_count for x in cache)
    )
    above = [entries for layer in (read[1] or [])[2:] for entries in layer]
    assert (min(above), max(above)) == (42, 74) and "half of all, or more" in tour[1].text
    assert text_of(steps).startswith("Rufus") and cache[3].read[2:, :, 6:10].any(), (
        "the page with the name is read"
    )
    with opened("quest") as trace:
        prompt, tokens = [int(x) for x in trace.header.prompt], [x for step in kept for x in step.emitted]
        there = [trace.text([whole_choice(prompt, tokens[:27])])]
        there.append(trace.text([whole_choice(prompt, [*tokens[:27], *trace_tokens("kivi")[27:28]])]))
        assert "said Kurt. There Kurt met Julia" in trace.text(prompt) and trace.text(
            prompt[58:70]
        ).startswith(" Julia and")
    assert there == [" T", "here"] and cache[36].read[2:, :, 64:70].any()
    for stop, ranks in ((3, (0,)), (4, (0, 1)), (5, (0,))):
        says(tour[stop], *(likely(kept[tour[stop].step])[i] for i in ranks))
    assert [steps[i]["made"][0][1] for i in (22, 27, 36)] == [" R", " J", " g"]
    assert (
        text_of(steps)
        == 'Rufus went to the beach with a pink wheel. "Yes," said Rufus. Julia and Rufus ate grapes.'
    )
    last = [entries / 112 for layer in (read[39] or [])[2:] for entries in layer]
    assert cache[39].held == 113 and min(last) > 0.25 and max(last) < 0.6


def trace_tokens(name: str) -> list[int]:
    """The tokens that an example wrote."""
    return [token for step in steps_of(name) for token in step.emitted]


def test_what_is_said_of_heads_that_look_far_back() -> None:
    cache = cache_of("duo-attention")
    gates, kinds = (cache[0].notes[x] for x in ("alpha", "retrieval"))
    says(TOURS["duo-attention"][1], max(gates.values()), digits=3)
    assert sum(kinds.values()) == 8 and min(gates[x] for x in kinds if kinds[x]) >= max(
        gates[x] for x in kinds if not kinds[x]
    )
    assert [sorted(set(x.by_head.ravel().tolist())) for x in (cache[0], cache[39])] == [[16, 74], [16, 113]]
    assert [cache[39].kept_bytes(cache[39].held) / 2**10, cache[39].full_bytes / 2**10] == [516, 904]
    kind, entries = cache[0].plan.kind.ravel().tolist(), cache[0].plan.entries.ravel().tolist()
    assert [cache[0].plan.kinds[x] for x in kind] == [
        "retrieval" if x else "streaming" for x in kinds.values()
    ]
    assert set(zip(kind, entries, strict=True)) == {(0, -1), (1, 16)}
    with opened("duo-attention") as trace:
        assert sorted(row["kept"] for row in text_lifetime(trace, "Rufus")["rows"]) == [0] * 8 + [4] * 8
    for name, place in (("snapkv", "town"), ("d2o", "bridge"), ("duo-attention", "beach")):
        assert text_of(told(name)).startswith(f"Rufus went to the {place} with a"), name


def test_what_is_said_of_keys_that_differ() -> None:
    cache, steps, kept = cache_of("key-diff"), told("key-diff"), steps_of("key-diff")
    assert cache[0].evicted_count == 34 and {x.held for x in cache} == {40}
    gone = [position for *_, position in cache[0].evicted.tolist()]
    assert [16 - gone.count(x) for x in (7, 41, 47)] == [16, 1, 1] and max(gone) == 69
    with opened("key-diff") as trace:
        prompt = trace.header.prompt.tolist()
        assert [trace.text([prompt[x]]) for x in (7, 40, 41, 47, 48)] == ["u", "t", ".", " me", "t"]
        held = {
            (x, step): heads_that_hold(trace, x, step)
            for x, step in (("Rufus", 0), ("beach", 7), ('"Yes,"', 16), ("There", 26))
        }
        assert "There Kurt met Julia, who had a box. Julia and Kurt ate grapes." in trace.text(prompt)
    assert held["Rufus", 0].count(4) == 10
    assert (held["beach", 7].count(2), held["beach", 7].count(0)) == (8, 4)
    assert (held['"Yes,"', 16].count(4), held['"Yes,"', 16].count(0)) == (2, 2)
    assert sum(x > 0 for x in held["There", 26]) == 4
    late = [position for *_, position in cache[21].evicted.tolist()]
    assert late.count(90) == 11 and kept[90 - 74].emitted == [prompt[41]] and 90 == 73 + 21 - 4
    tokens = trace_tokens("key-diff")
    assert tokens[:27] == trace_tokens("kivi")[:27] and whole_choice(prompt, tokens[:27]) != tokens[27]
    say_probabilities("key-diff", {3: (0,), 4: (0, 1), 6: (0, 1)}, digits=3)
    assert [steps[i]["made"][0][1] for i in (8, 17, 27)] == ["ach", ' "', "<|end|>"]
    assert len(prompt) + 27 == 101
    assert text_of(steps) == 'Rufus went to the beach with a pink wheel. "Yes," said Rufus.<|end|>'


def test_what_is_said_of_cuts_in_intervals() -> None:
    cache, steps = cache_of("interval"), told("interval")
    gone = {i: [at for *_, at in x.evicted.tolist()] for i, x in enumerate(cache) if x.evicted_count}
    assert {i: cache[i].evicted_count for i in gone} == {0: 34, 8: 8, 16: 8, 24: 8}
    assert [cache[i].held for i in (0, 7, 27)] == [40, 47, 43] and max(x.held for x in cache) == 47
    assert min(gone[0]) == 4, "the first 4 stay in every head"
    assert [(len(gone[i]), sum(x >= 74 for x in gone[i])) for i in (8, 16, 24)] == [
        (128, 25),
        (128, 70),
        (128, 82),
    ]
    assert gone[16].count(89) == 8 and gone[24].count(90) == 13 and max(gone[16]) == 89
    assert [steps[x - 74]["made"][0][1] for x in (88, 89, 90)] == ["he", "el", "."]
    with opened("interval") as trace:
        whole = {i: heads_that_hold(trace, "Rufus", i).count(4) for i in (7, 9)}
        assert whole == {7: 10, 9: 3} and heads_that_hold(trace, '"Yes,"', 16).count(4) == 3
        assert len(trace.header.prompt) + 27 == 101
    say_probabilities("interval", {3: (0,), 5: (0, 1), 7: (0, 1)}, digits=3)
    assert [steps[i]["made"][0][1] for i in (9, 17, 27)] == [" with", ' "', "<|end|>"]
    assert text_of(steps) == text_of(told("key-diff"))
