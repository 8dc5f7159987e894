"""Guided tours: every stop is what it says, and the page leads there, by keyboard too."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from math import exp
from typing import Any

import pytest
from browser import Lab

from decodescope.app.runs.examples import examples
from decodescope.app.runs.tours import Stop, tours
from decodescope.engine import Method, Session, load, run
from decodescope.engine.bench.parallel_tasks import at_once
from decodescope.engine.decoding.lane import Lane
from decodescope.engine.load import SHIPPED
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.feed import Feed
from decodescope.engine.trace import Step, Trace, open_trace
from decodescope.engine.trace.events import Beams
from decodescope.engine.trace.repeats import repeats, rounds, said_again, written_laws
from decodescope.engine.trace.searched import Planner, Search
from decodescope.lab.cache.lives import Lives
from decodescope.lab.cache.needle import fate, fate_of, places
from decodescope.lab.wire.messages import messages

NEAR = 1e-3  # between two logits of which either may be the greater on another machine
SHOWN = "document.querySelector('.ds-tour .count')?.textContent"


TOURS = tours()


@contextmanager
def opened(name: str) -> Iterator[Trace]:
    """The trace of an example."""
    trace = open_trace(next(x.path for x in examples() if x.name == name))
    try:
        yield trace
    finally:
        trace.close()


def told(name: str) -> list[dict[str, Any]]:
    """The steps of an example as the views get them."""
    with opened(name) as trace:
        return [x for x in messages(trace) if x["kind"] == "step"]


def steps_of(name: str) -> list[Step]:
    """The steps of an example as they are recorded."""
    with opened(name) as trace:
        return list(trace.steps)


def rows(step: dict[str, Any]) -> list[list[Any]]:
    """The nodes of a step; those of a block that settles are its tokens, of which the final ones count as accepted, and those
    of a canvas its places, which count so once they are settled. Of texts side by side each has a node."""
    side = len(step.get("threads", {}).get("alive", ())) or len(step.get("beams", {}).get("tokens", ()))
    if side:
        return [*step["nodes"], *([k, *[None] * 5, "target"] for k in range(side))]
    if "fill" in step:
        fill = step["fill"]
        waiting, (first, length) = {*fill["open"]} - {x[0] for x in fill["now"]}, fill["at"]
        places = range(first, first + length)
        return [*step["nodes"], *([x, *[None] * 5, "unreached" if x in waiting else "accept"] for x in places)]
    if "tally" in step:
        tried = step["tally"]["rows"]
        return [step["nodes"][0], *([k, *[None] * 5, "accept" if x[3] else "reject"] for k, x in enumerate(tried))]
    if "iteration" not in step:
        return list(step["nodes"])
    block = step["iteration"]
    after = [[k, text, token, None, None, None, "accept"] for k, (token, text) in enumerate(block["after"])]
    return [step["nodes"][0], *(row if k < block["fixed"] else row[:4] for k, row in enumerate(after))]


def says(stop: Stop, *numbers: float, digits: int = 4) -> None:
    """The text of the stop has these numbers, as they are recorded."""
    for number in numbers:
        assert f"{number:.{digits}f}" in stop.text, (stop.title, number)


def origins(step: dict[str, Any]) -> list[str]:
    """Where the tokens of a step come from."""
    return [origin for *_, origin in step["made"]]


def notes(step: Step) -> dict[str, Any]:
    """What the drafter said of its draft."""
    assert step.draft is not None and step.draft.notes is not None
    return step.draft.notes


def given(step: Step, node: int) -> float:
    """The probability that a tree of scores gives to a node after its parent."""
    assert step.draft is not None
    scores, parent = notes(step)["scores"], step.draft.parents[node - 1]
    return exp(scores[node - 1] - (scores[parent] if parent >= 0 else 0))


def text_of(steps: list[dict[str, Any]]) -> str:
    """What was written."""
    return "".join(piece for step in steps for _, piece, _ in step["made"])


def test_every_example_has_a_tour_and_every_tour_an_example() -> None:
    assert list(TOURS) == [x.name for x in examples()]


@pytest.mark.parametrize("name", TOURS)
def test_every_stop_is_a_node_of_that_status(name: str) -> None:
    steps = told(name)
    assert 5 <= len(TOURS[name]) <= 8
    for stop in TOURS[name]:
        row = rows(steps[stop.step])[stop.node]
        assert (row[6] if len(row) > 6 else "unreached") == stop.status, stop.title
        assert len(stop.text) < 160 and stop.text.endswith(".")


def test_what_is_said_of_the_first_rejection() -> None:
    tour, steps = TOURS["first-rejection"], told("first-rejection")
    assert [(x.step, x.node) for x in tour[1:]] == [(0, 1), (0, 7), (0, 16), (2, 2), (2, 16), (13, 2), (25, 10)]
    holds, refused, own = (steps[0]["nodes"][x.node] for x in tour[1:4])
    says(tour[1], *(holds[k] for k in (3, 4, 5, 8)))
    says(tour[2], *(refused[k] for k in (3, 4, 5, 8)))
    assert holds[5] < holds[8] < 1 and holds[4] == holds[7] and refused[5] > refused[8] and refused[4] == refused[7]
    branch = [steps[0]["nodes"][x] for x in (4, 7, 10)]
    assert "".join(x[1] for x in branch) == " Milo" and [x[0] for x in branch] == [1, 4, 7] and branch[0][6] == "accept"
    assert (own[0], own[1]) == (4, "ari") and text_of(steps).startswith(" named Maria who")
    assert origins(steps[0]) == ["accept", "accept", "resample"]
    before, second = steps[2]["nodes"][1:3]
    assert (before[0], before[6], second[0]) == (0, "reject", 0) and second[7] < second[4]
    says(tour[4], *(second[k] for k in (7, 3, 5)))
    assert second[5] < second[8] == pytest.approx(second[7] / second[3])
    assert steps[2]["made"][0][1] == second[1] and origins(steps[2]) == ["accept"] * 5 + ["bonus"]
    one, none = steps[13]["nodes"][1:3]
    assert (one[0], one[6], none[0]) == (0, "reject", 0) and none[4] > 0 == none[7]
    assert steps[13]["refused"] == 3 and origins(steps[13]) == ["resample"]
    assert (sum(len(x["made"]) for x in steps), len(steps)) == (96, 26) and tour[7].text.startswith("96 tokens, 3.69 from")
    says(tour[7], 96 / 26, digits=2)
    with opened("first-rejection") as trace:
        assert trace.header.lossless and not trace.header.chat


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
    assert len(name) == 5 and recycling[3]["made"][-1][1] + "".join(name[:3]) == "Bertha" and "Bertha" in "".join(prompt)
    assert [origin for *_, origin in recycling[4]["made"]] == ["accept"] * 4 + ["bonus"]
    assert (recycling[5]["drafted"], recycling[5]["refused"], len(recycling[5]["made"])) == (13, 7, 1)
    assert [x[0] for x in recycling[5]["nodes"][1:-1]].count(0) == 7, "all that hang on the root are refused"
    assert (len(made), len(recycling)) == (40, 14) and made[-1] == "<|end|>" and recycling[-1]["made"][-1][2] == "accept"
    assert "".join(made[:-1]) in "".join(prompt)


def test_what_is_said_of_the_tree_from_a_trained_head() -> None:
    tour, steps, kept = TOURS["eagle"], told("eagle"), steps_of("eagle")
    assert steps[0]["drafted"] == 16 and origins(steps[0]) == ["accept"] * 5 + ["bonus"]
    assert notes(kept[0])["pool"] == 68 and notes(kept[0])["dropped"]["nodes"] == 68 - 16
    assert steps[0]["nodes"][tour[2].node][:2] == [0, "The"] and steps[0]["nodes"][1][:2] == [0, '{"']
    assert steps[0]["nodes"][1][6] == "accept"
    around = [x[0] for x in steps[3]["nodes"][:-1]]
    assert given(kept[3], tour[3].node) > 0.9998 and around.count(around[tour[3].node]) == 1
    s, t = tour[4].node, tour[5].node
    assert [steps[3]["nodes"][x][1] for x in (s, t)] == ["S", "T"] and around[s] == around[t]
    says(tour[4], given(kept[3], s), given(kept[3], t), digits=2)
    assert [notes(kept[3])["ranks"][x - 1] for x in (s, t)] == [0, 1] and origins(steps[3]) == ["accept"] * 5 + ["bonus"]
    assert steps[3]["nodes"][15][0] == t and steps[3]["nodes"][15][6] == "accept"
    on, end = steps[5]["nodes"][8], steps[5]["nodes"][tour[6].node]
    assert (on[0], on[1], on[6], end[0], end[1]) == (4, '",', "reject", 4, '"],')
    says(tour[6], given(kept[5], 8), given(kept[5], tour[6].node), digits=2)
    says(tour[7], 40 / len(steps), digits=2)
    assert (sum(len(x["made"]) for x in steps), len(steps), len(told("recycling"))) == (40, 7, 14)
    assert text_of(steps) == text_of(told("recycling")) and all(notes(x)["passes"] for x in kept)


def test_what_is_said_of_the_model_that_drafts_for_itself() -> None:
    tour, steps, kept = TOURS["kangaroo"], told("kangaroo"), steps_of("kangaroo")
    sure = [notes(x)["sure"] for x in kept]
    assert all(notes(x)["layers"] == [2, 8] for x in kept)
    with opened("kangaroo") as trace:
        prompt, method = [int(x) for x in trace.header.prompt], trace.header.method
        assert trace.header.lossless and method["drafter"]["stop"] == 0.6 and "Kurt" in trace.text(prompt)
    for step in (0, 1):
        assert origins(steps[step]) == ["accept"] * 6 + ["bonus"] and notes(kept[step])["exit"] == "length"
    (check,) = [x for x in kept[0].passes if x.phase == "verify"]
    assert (check.tokens, check.attn, check.ffn) == (7, [2, 3, 4, 5, 6, 7], [2, 3, 4, 5, 6, 7])
    says(tour[2], min(sure[1]), digits=2)
    says(tour[3], sure[3][1], digits=2)
    assert [x[1] for x in steps[3]["nodes"][2:]] == [" K", "ur", "t", ".", " T", " R"]
    assert origins(steps[3]) == ["accept", "resample"] and kept[3].draft is not None
    assert kept[3].draft.parents == [-1, 0, 1, 2, 3, 4] and text_of(steps[3:5]).startswith(" said Rufus.")
    says(tour[5], sure[4][5], digits=2)
    assert notes(kept[4])["exit"] == "threshold" and origins(steps[4]) == ["accept"] * 6 + ["bonus"]
    says(tour[6], sure[9][1], digits=2)
    assert "".join(x[1] for x in steps[9]["nodes"][2:6]) == " Rufus" and steps[9]["made"][-1][1:] == ["<|end|>", "resample"]
    assert [x.attn for step in kept for x in step.passes if x.phase == "verify"] == [[2, 3, 4, 5, 6, 7]] * 10
    tokens = [token for step in steps for token, *_ in step["made"]]
    lane = Lane("target", load("lab", "float32", "cpu").decoder, KeepAll())
    logits = lane.forward(Feed.causal([*prompt, *tokens], 0))[0, len(prompt) - 1 : -1]
    behind = (logits.amax(-1) - logits[range(53), tokens]).max()
    assert len(tokens) == 53 and behind < NEAR, "the text of plain decoding, but for a near tie, which falls by machine"


def test_what_is_said_of_the_layers_left_out() -> None:
    tour, steps, kept = TOURS["early-exit"], told("early-exit"), steps_of("early-exit")
    exits = [x.exits[0] for x in kept if x.exits]
    assert len(exits) == len(kept) == 58
    for stop in (x for x in tour[:-1] if x is not tour[2]):
        says(stop, exits[stop.step].tests[-1][1], digits=2)
    assert [exits[x.step].depth for x in tour] == [4, 2, 6, 2, 2, 2, 6, 2] and max(x.depth for x in exits) == 6
    assert kept[3].passes[0].propagated == 6 and steps[3]["made"][0][1] == " "
    says(tour[2], *(confidence for _, confidence, _ in exits[12].tests), digits=2)
    assert [layer for layer, *_ in exits[12].tests] == [2, 3, 4, 5, 6] and text_of(steps[12:15]) == "Berlin"
    plain, text = text_of(told("recycling")), text_of(steps)
    before = text_of(steps[:14])
    assert plain.startswith(before + "th") and text.startswith(before + "lin"), "the same up to there"
    made, whole = (json.loads(x.removesuffix("<|end|>")) for x in (text, plain))
    assert (made["name"], whole["name"], made["city"], whole["city"]) == ("Berlin", "Bertha", "Tokyo", "Toronto")
    assert text_of(steps[20:24]) == "Tokyo" and steps[32]["made"][0][1] == '",' and len(whole["tags"]) == 1
    assert text_of(steps[:33]).endswith('["silver",') and len(made["tags"]) == 5 and 'tags": ["silver"]' in plain
    assert text_of(steps[34:36]) == "golden" and "golden" not in whole["tags"]
    assert [key for key in whole if made[key] != whole[key]] == ["name", "city", "tags", "active"] and len(whole) == 5
    says(tour[-1], sum(x["depth"]["saved"] for x in steps) / steps[-1]["sum"]["tokens"], digits=2)
    with opened("early-exit") as trace, opened("recycling") as other:
        assert trace.header.prompt.tolist() == other.header.prompt.tolist() and not trace.header.lossless


def test_what_is_said_of_the_exit_that_is_checked() -> None:
    tour, steps, kept = TOURS["exit-checked"], told("exit-checked"), steps_of("exit-checked")
    lossy = steps_of("early-exit")
    says(tour[0], kept[0].exits[0].tests[-1][1], lossy[0].exits[0].tests[-1][1], digits=2)
    assert [x.depth for x in kept[0].exits] == [4, 2, 2, 2, 5, 5] and lossy[0].exits[0].depth == 4
    assert [x[0] for x in steps[0]["depth"]["ran"][6:]] == ["rr------", "--rrrrrr"]
    assert origins(steps[0]) == ["accept"] * 6 + ["bonus"]
    says(tour[3], kept[2].exits[0].tests[-1][1], lossy[14].exits[0].tests[-1][1], digits=2)
    assert kept[2].exits[0].depth == 2 and steps[2]["nodes"][1][1] == "lin" and "Berlin" in text_of(told("early-exit"))
    assert text_of(steps[:3]).endswith("Berth") and steps[3]["made"][0][1] == "a" and origins(steps[2]) == ["resample"]
    guessed = [x[1] for x in steps[4]["nodes"][1:7]]
    assert text_of(steps[:4]).endswith("T") and guessed == ["ok", "y", "o", '",', ' "', "tags"]
    assert origins(steps[4]) == ["resample"] and text_of(steps[:6]).endswith('Toronto", "tags": ["')
    says(tour[5], kept[6].exits[3].tests[-1][1], digits=2)
    assert kept[6].exits[3].depth == 2 and [x[1] for x in steps[6]["nodes"]][4] == '",' and steps[6]["made"][-1][1] == '"],'
    assert (sum(len(x["made"]) for x in steps), len(steps)) == (40, 9) and text_of(steps) == text_of(told("recycling"))
    assert all(x["depth"]["saved"] < 0 for x in steps)


def test_what_is_said_of_the_blocks_left_out() -> None:
    tour, steps, kept = TOURS["ffn-skip"], told("ffn-skip"), steps_of("ffn-skip")
    exits = [x.exits[0] for x in kept]
    assert not any(x.tests for x in exits[:8]) and all(x.tests for x in exits[8:])
    for stop, passed in ((tour[1], 1), (tour[2], 3)):
        left = exits[stop.step]
        says(stop, *(c for at, c, _ in left.tests if at), digits=2)
        assert left.closed == [passed + 1, passed + 2, passed + 3] == [int(x) for x in left.closed]
    assert len(exits[13].tests) == 6 and not exits[13].closed and max(c for _, c, _ in exits[13].tests) < 0.96
    says(tour[4], max(c for _, c, _ in exits[13].tests), digits=2)
    text, line = text_of(steps), " had a friend, Mabel, who was"
    assert len(exits[11].closed) == len(exits[23].closed) == 3 and text_of(steps[11:14]) == " careful"
    assert text_of(steps[:23]).endswith("\n\nLily") and text_of(steps[23:33]) == line and text.startswith(line)
    with opened("ffn-skip") as trace:
        prompt = [int(x) for x in trace.header.prompt]
    whole = run(load("lab", "float32", "cpu"), Method(), prompt, max_new_tokens=len(steps)).text
    assert whole.startswith(text_of(steps[:11]) + " curious") and "\n\nLily wanted to learn" in whole
    assert sum(bool(x.closed) for x in exits) == 22 and max(len(x.closed) for x in exits) == 3 and len(steps) == 40
    says(tour[6], sum(x["depth"]["saved"] for x in steps) / 40, digits=2)


def test_what_is_said_of_the_staircase() -> None:
    tour, steps = TOURS["skipdecode"], told("skipdecode")
    ran = [x.get("depth", {"ran": [["rrrrrrrr"]]})["ran"][0][0] for x in steps]
    assert [x.count("r") for x in ran] == [8] * 7 + [7] * 12 + [6] * 12 + [5] * 12 + [4] * 13
    assert (ran[7], ran[19], ran[38], ran[43]) == ("r-rrrrrr", "r--rrrrr", "r---rrrr", "r----rrr")
    assert not any(x["depth"]["exits"][0]["tests"] for x in steps)
    first, again = ([piece for x in steps[i : i + 3] for _, piece, _ in x["made"]] for i in (0, 36))
    assert first == again == [" b", "rid", "ge"] and tour[3].step == 38 and set(ran[36:39]) == {"r---rrrr"}
    before = sum(len(x["made"]) for x in steps[:51])
    assert text_of(steps).endswith('"Will you home in the brid') and text_of(steps[:52]).endswith("you home") and before == 51
    assert set(ran[47:52]) == {"r----rrr"}
    saved = sum(x["depth"]["saved"] for x in steps)
    says(tour[6], saved / len(steps), digits=2)


def test_what_is_said_of_two_models_in_turns() -> None:
    tour, steps, kept = TOURS["two-lanes"], told("two-lanes"), steps_of("two-lanes")
    blocks = [x.switch.block for x in kept if x.switch and x.switch.block]
    assert len(blocks) == len(kept) and kept[1].switch is not None and kept[1].switch.caught == 51
    says(tour[0], blocks[1].sure[-1], digits=3)
    says(tour[1], blocks[2].sure[-1], digits=3)
    assert steps[2]["made"][0][1:] == ["7", "target"] and text_of(steps[:3]).endswith(" 507")
    assert [len(blocks[i].tokens) for i in (1, 3, 6, 7, 9)] == [4, 5, 8, 4, 5] and blocks[3].choice == blocks[3].tokens
    assert steps[3]["made"][5][1:] == ["B", "target"]
    assert (blocks[6].kept, len(kept[6].emitted), sum(x.lane == "target" for x in kept[6].passes)) == (8, 9, 1)
    says(tour[4], blocks[7].sure[2], digits=3)
    says(tour[4], -blocks[7].loss[2], digits=2)
    assert (blocks[7].kept, blocks[7].bar, steps[7]["tally"]["rows"][2][0], steps[7]["made"][2][1]) == (2, 2, '",', '"],')
    says(tour[5], -blocks[9].loss[2], digits=2)
    assert [x[0] for x in steps[9]["tally"]["rows"]] == ["active", '":', " false", "}", "<|end|>"] and blocks[9].kept == 2
    assert min(blocks[9].sure) > 0.5 and min(blocks[9].sure[3:]) > 0.8
    count, large = sum(len(x.emitted) for x in kept), sum(y.lane == "target" for x in kept for y in x.passes)
    assert f"{count} tokens, {count / large:.2f} from each pass" in tour[6].text
    assert text_of(steps) == text_of(told("recycling"))
    with opened("two-lanes") as trace:
        assert not trace.header.lossless


def test_what_is_said_of_tokens_that_wait() -> None:
    tour, steps, kept = TOURS["flush"], told("flush"), steps_of("flush")
    exits = [x.exits[0] for x in kept if x.exits]
    assert len(exits) == len(kept) == 40
    for stop in tour:
        says(stop, exits[stop.step].tests[0][1], digits=3)
    assert [exits[x.step].depth for x in tour] == [4, 8, 8, 8, 4, 8, 4] and {x.tests[0][2] for x in exits} == {0.7}
    assert [kept[i].passes[-1].joined for i in (4, 12, 21, 33)] == [[[4, n]] for n in (3, 5, 7, 2)]
    assert {x.passes[-1].tokens for x in kept} == {1}, "those that go along are beside the one that is read"
    assert steps[24]["made"][0][1] == "to" and text_of(steps[21:25]) == "Toronto" and steps[33]["made"][0][1] == '"],'
    assert text_of(steps) == text_of(told("recycling"))
    assert [(x.phase, x.tokens) for x in kept[39].passes] == [("verify", 1), ("flush", 1)]
    assert [x.depth for x in exits[37:]] == [8, 8, 4] and sum(x.phase == "flush" for y in kept for x in y.passes) == 1
    with opened("flush") as trace:
        assert not trace.header.lossless


def test_what_is_said_of_turns_by_entropy() -> None:
    tour, steps, kept = TOURS["entropy-turns"], told("entropy-turns"), steps_of("entropy-turns")
    turns = [x.switch for x in kept if x.switch]
    assert len(turns) == len(kept) == 48 and {x.tau for x in turns} == {2.0}
    for stop, score in ((tour[0], True), (tour[1], False), (tour[3], True), (tour[4], True), (tour[5], True)):
        one = turns[stop.step]
        says(stop, *[one.score] * score, one.mean, digits=2)
    assert [turns[i].next for i in (1, 6, 12, 13, 30)] == ["large", "small", "small", "small", "large"]
    assert (turns[6].stay, turns[7].caught, turns[31].caught) == (7, 19, 24) and steps[7]["made"][0][1] == "a"
    assert max(turns[i].score for i in (9, 10, 11)) < 0.3 and text_of(steps[5:8]) == text_of(steps[12:15]) == " Maria"
    assert text_of(steps).startswith(" named Maria. Maria had a friend, Maria,")
    assert text_of(steps[29:31]) == "Max" and text_of(steps[29:]).startswith("Max had a pink brush")
    assert all(kept[i].origins == ["draft"] for i in (12, 13, 30))
    assert round(100 * sum(x.wrote == "large" for x in turns) / 48) == 31
    changes = [i for i in range(1, 48) if turns[i].wrote != turns[i - 1].wrote]
    assert changes == [7, 31, 39] and all(turns[i].caught for i in changes)


def test_what_is_said_of_three_answers() -> None:
    tour, steps, kept = TOURS["no-agreement"], told("no-agreement"), steps_of("no-agreement")
    record = kept[0].candidates
    assert record is not None and not record.kept and len(record.answers) == 3
    answers = [row[0] for row in steps[0]["tally"]["rows"]]
    assert all(x.startswith("77 ") and "*" not in x for x in answers) and len({*answers}) == 3
    says(tour[1], *record.votes, record.tau, digits=3)
    assert f"{record.rows} rows" in tour[2].text and f"{kept[0].passes[-1].tokens} tokens of the prompt" in tour[2].text
    assert text_of(steps) == "7 * 6 = 42<|end|>" and steps[3]["made"][0][1] == "6"
    assert all(steps[k]["nodes"][1][4] > 0.9999 for k in (0, 3)) and steps[1]["made"][0][1] == " *"
    assert all({x.lane for x in y.passes} == {"target"} for y in kept[1:])
    says(tour[4], steps[7]["nodes"][1][4], steps[7]["nodes"][1][5], digits=3)
    assert steps[7]["made"][0][1] == "2"


def test_what_is_said_of_the_block_that_settles() -> None:
    tour, steps = TOURS["jacobi"], told("jacobi")
    block = [x["iteration"] for x in steps]
    before, after = ([[piece for _, piece in x[side]] for x in block] for side in ("before", "after"))
    assert [x.step for x in tour] == [0, 1, 7, 9, 20, 26, 28]
    assert before[0] == [" lived"] * 8 and steps[0]["nodes"][0][1] == " lived"
    assert [x["fixed"] for x in block[:8]] == [1] * 8 and len(after[1]) == 7 and len(after[8]) == 8
    assert before[1] == after[0][1:] and before[1][1] != after[1][1] != after[2][0], "wrong, and taken back"
    assert before[8] == [" g"] * 8 and before[9] == ["irl"] * 7 and after[9] == ["."] * 7 == [*before[10], "."]
    assert text_of(steps[9:12]) == ".\n\nS", "right in the first place alone"
    assert before[20][:2] == after[20][:2] and before[20][2] != after[20][2] and block[20]["fixed"] == 3
    assert max(x["fixed"] for x in block) == 3 and [x["fixed"] for x in block].count(3) == 1
    assert (block[26]["fixed"], after[26][2], after[27][0]) == (2, " The", "ch") and before[26][1:3] != after[26][1:3]
    assert text_of(steps).endswith(" allowed to touch.")
    assert (sum(len(x["made"]) for x in steps), len(steps)) == (32, 29)
    says(tour[6], 32 / 29, digits=2)
    with opened("jacobi") as trace:
        assert trace.header.lossless


def test_what_is_said_of_the_guesses_that_ride_along() -> None:
    steps, kept = told("lookahead"), steps_of("lookahead")
    assert [x.draft.passengers for x in kept[:1]] == [list(range(6))] and kept[0].drafted == 0
    assert "harvested" not in notes(kept[1]) and len(notes(kept[2])["harvested"]) == 5 and len(steps[2]["made"]) == 1
    words = [[x[1] for x in step["nodes"]] for step in steps]
    assert notes(kept[3])["tried"] == 1 and words[3][1:4] == [' "', "B", "er"] and origins(steps[3]) == ["resample"]
    assert text_of(steps[4:7]) == "507", "a number was due"
    assert notes(kept[9])["tried"] == 2 and kept[9].path == [0, 1, 2] and origins(steps[9]) == ["accept"] * 3 + ["bonus"]
    parents = list(kept[14].draft.parents)
    assert notes(kept[14])["tried"] == 4 and kept[14].path == [6, 7, 8] and len(steps[14]["made"]) == 4
    assert [k for k in range(11) if parents[k] == -1] == [0, 3, 6] and parents[9] == 6
    assert (words[14][8], words[14][10]) == ("T", "B")
    assert text_of(steps[:17]).endswith('Toronto",')
    assert (notes(kept[19])["pool"], notes(kept[19])["tried"], kept[19].drafted) == (53, 5, 14)
    assert origins(steps[19]) == ["resample"] and steps[19]["made"][0][1] == ' ["' and ' ["' not in words[19][1:15]
    assert (sum(len(x["made"]) for x in steps), f"{40 / len(steps):.2f}") == (40, "1.67")
    with opened("lookahead") as trace, opened("recycling") as other:
        assert trace.header.prompt.tolist() == other.header.prompt.tolist() and trace.header.lossless
        assert trace.header.method["drafter"]["guesses"] == 5 and trace.emitted == other.emitted, "the text is the plain one"


def test_what_is_said_of_the_canvas() -> None:
    tour, steps = TOURS["canvas"], told("canvas")
    fills = [x["fill"] for x in steps]
    wants = [[fill["tokens"][k][1] for k in fill["which"]] for fill in fills]
    assert [(len(x["open"]), len(x["now"])) for x in fills] == [(16, 11), (5, 1), (4, 1), (3, 1), (2, 1), (1, 1)]
    assert {tuple(x[1:]) for x in fills[0]["now"]} == {("sure", 0, "<|end|>")} and {x["bars"][0] for x in fills} == {0.9}
    assert min(fills[0]["c"][5:]) > 0.9 > max(fills[0]["c"][:5])
    assert [x["now"][0][1] for x in fills[1:]] == ["best"] * 4 + ["sure"]
    assert wants[2] == [" Finn"] * 4 and fills[2]["now"][0][0] != fills[2]["open"][0]
    assert [x[fill["open"].index(12)] for x, fill in zip(wants[:4], fills, strict=False)] == [" Ben", " Ben", " Finn", " Ada"]
    says(tour[1], max(fills[1]["c"]), digits=2)
    says(tour[2], max(fills[2]["c"]), digits=2)
    says(tour[3], fills[3]["c"][fills[3]["open"].index(12)], digits=2)
    assert fills[3]["now"] == [[13, "best", fills[3]["now"][0][2], " Ada"]] and not any(x["made"] for x in steps[:4])
    says(tour[4], fills[4]["c"][0], digits=2)
    assert fills[4]["now"] == [[10, "best", fills[4]["now"][0][2], " Hugo"]] and len(steps[4]["made"]) == 2
    says(tour[5], *fills[5]["c"], digits=2)
    names = text_of(steps).removesuffix("<|end|>").split()
    with opened("canvas") as trace:
        asked = trace.text([int(x) for x in trace.header.prompt])
        assert trace.header.method["selector"]["tau"] == 0.9 and not trace.header.lossless
    assert sum(len(x["made"]) for x in steps) == len(steps) == 6 and sorted(names) == ["Ada", "Ben", "Clara", "Finn", "Hugo"]
    assert " ".join(sorted(names)) in asked and names != sorted(names)


def test_what_is_said_of_the_digit() -> None:
    tour, steps = TOURS["digit"], told("digit")
    fills = [x["fill"] for x in steps]
    with opened("digit") as trace:
        picture, method = trace.header.model["picture"], trace.header.method
    level = picture["levels"].index
    assert (picture["height"], picture["width"], method["strategy"]["window"], len(steps)) == (8, 8, 3, 16 + 6 * 3)
    assert [[x[0] for x in fill["now"]] for fill in fills[:9]] == [[1 + cell] for cell in range(9)]
    assert level(fills[0]["now"][0][2]) == level(fills[8]["now"][0][2]) == 0
    says(tour[0], *fills[0]["c"], digits=2)
    says(tour[1], *fills[8]["c"], digits=2)
    assert [x[0] for x in fills[11]["now"]] == [12, 17] and [x[0] for x in fills[10]["now"]] == [11]
    ((place, token, _),) = fills[11]["standins"]
    assert place == 16 and level(token) == level(fills[10]["now"][0][2]) == 9
    assert [x[0] for x in fills[14]["now"]] == [15, 20, 25] and fills[15]["now"][0][0] == 16
    assert (len(fills[16]["now"]), fills[16]["fed"]) == (2, 3) and sum(len(x["made"]) for x in steps) == 64


def test_what_is_said_of_the_model_that_was_trained_to_settle() -> None:
    tour, steps = TOURS["cllm"], told("cllm")
    blocks = [x["iteration"] for x in steps]
    assert [piece for _, piece in blocks[0]["before"]] == ["\n"] * 8 and blocks[0]["after"][0][1] == '{"'
    first = "".join(piece for x in blocks[:6] for _, piece in x["after"][: x["fixed"]])
    assert first == '{"id": 507,' and [x["fixed"] for x in blocks[:6]] == [1, 1, 1, 1, 2, 2]
    done = [0, 1, 2, 3, 4]  # tokens of the block in front of each of these passes
    late = [done[i] + [piece for _, piece in blocks[i]["after"]].index("5") for i in (1, 2, 3)]
    assert late == [6, 5, 4] and [late[0] - done[1] + 1, late[1] - done[2] + 1] == [tour[1].node, tour[2].node]
    assert blocks[4]["before"][0] == blocks[4]["after"][0] == blocks[3]["after"][1] and blocks[4]["after"][0][1] == "5"
    assert [blocks[4]["after"][1][1], blocks[4]["before"][1][1]] == ["0", "5"]
    with opened("cllm") as trace:
        header = trace.header
        assert header.lossless and header.method["strategy"]["block"] == 8
    prompt, count = [int(x) for x in header.prompt], sum(len(x["made"]) for x in steps)
    base = run(load("lab"), Method.named({"strategy": "jacobi"}), prompt, max_new_tokens=count, seed=7)
    assert (count, len(steps), len(base.trace.steps)) == (32, 26, 30) and base.text == text_of(steps)
    card = json.loads((SHIPPED / "lab" / "adapters" / "cllm" / "config.json").read_text())["measured"]
    says(tour[5], count / len(steps), digits=2)
    assert "in twenty-six passes" in tour[5].text and "takes thirty" in tour[5].text
    eight = card["passes of a block of 8"]
    assert "four of a hundred" in tour[5].text and round(100 * (1 - eight["adapted"] / eight["base"])) == 4


def test_what_is_said_of_the_list_that_forks() -> None:
    tour, steps = TOURS["apar"], told("apar")
    rounds = [x["threads"] for x in steps]
    forks = [(i, begun[0], begun[1]) for i, x in enumerate(rounds) for begun in x["begun"]]
    assert forks == [(0, 0, -1), (11, 1, 0), (26, 2, 0), (39, 3, 0)] and rounds[11]["tokens"][0][1] == "<|reserved_0|>"
    assert rounds[11]["begun"][0][3][0][1] == "<|reserved_1|>"
    assert [rounds[i]["alive"] for i in (4, 13, 27, 40, 43, 56)] == [[0], [0, 1], [0, 1, 2], [0, 2, 3], [2, 3], [3]]
    assert [i for i, x in enumerate(rounds) if len(x["tokens"]) == 3] == [27, 40]
    assert (rounds[27]["ended"], len(steps[27]["made"])) == ([[1, "stop_token"]], 16)
    assert (rounds[40]["ended"], rounds[43]["ended"]) == ([[0, "stop_token"]], [[2, "stop_token"]])
    assert (len(steps), sum(len(x["tokens"]) for x in rounds)) == (57, 91) and tour[6].text.startswith("57 passes")
    longest = 40 + sum(3 in x["alive"] for x in rounds)
    assert longest == 57, "the way down to the last thread's end"
    first, second, third = (line.partition(":<|reserved_0|>") for line in text_of(steps).splitlines())
    assert first[2] == " Oliver lives in Lisbon and has a lamp." and second[2] == " Rufus lives in Tokyo and has a lamp."
    assert third[0] == "3. Bertha, a doctor" and third[2].startswith(" Rufus")
    with opened("apar") as trace:
        asked = trace.text([int(x) for x in trace.header.prompt])
        assert "Rufus is a musician in Tokyo and has a kite." in asked and not trace.header.lossless


def test_what_is_said_of_the_wall() -> None:
    tour, (step,) = TOURS["wall"], told("wall")
    fill, names = step["fill"], ("Ada", "Ben", "Clara", "Finn", "Hugo")
    drawn = [x[3].strip() for x in fill["now"]]
    assert drawn == ["Hugo", "Ben", "Hugo", "Ada", "Ada", *["<|end|>"] * 3] and len(fill["open"]) == fill["fed"] - 10 == 8
    for stop in tour[:5]:
        says(stop, fill["c"][stop.node - 1], digits=3)
        assert fill["tokens"][fill["which"][stop.node - 1]][1].strip() == drawn[stop.node - 1]
    assert {*names} - {*drawn} == {"Clara", "Finn"} and text_of([step]).split()[:1] == ["Hugo"]
    assert round(1 / at_once("shuffle", 5, differs=False)) == 26
    with opened("wall") as trace, opened("canvas") as canvas:
        assert trace.header.prompt.tolist() == canvas.header.prompt.tolist() and trace.header.method["selector"]["steps"] == 1


def test_what_is_said_of_the_draft_that_is_drawn_ahead() -> None:
    tour, steps = TOURS["sjd"], told("sjd")
    at = [steps[x.step]["nodes"][x.node] for x in tour]
    assert steps[0]["drafted"] == steps[1]["drafted"] == 8 and round(at[0][3], 3) == 0.034
    says(tour[0], at[0][4], digits=6)
    says(tour[1], at[1][4] / at[1][3], digits=2)
    says(tour[2], *at[2][3:6], digits=3)
    assert round(100 * at[2][4] / at[2][3]) == 40
    assert [x["ok"] for x in (steps[2]["verdict"],)] == [[1] * 5 + [0]] and abs(at[3][4] - at[3][3]) < 0.05
    says(tour[4], at[4][3], at[4][4], digits=3)
    assert [len(x["made"]) for x in steps[11:17]] == [3, 1, 1, 1, 1, 6] and at[5][6] == "reject"
    says(tour[5], at[5][5], digits=3)
    assert origins(steps[23]) == ["accept"] * 8 + ["bonus"] and len(steps) == 24 and f"{64 / 24:.2f}" == "2.67"
    with opened("sjd") as trace:
        assert trace.header.lossless and len(text_of(steps)) == 64


def test_what_is_said_of_cells_in_any_order() -> None:
    with opened("randar") as trace:
        fills = [step.fill for step in trace.steps if step.fill is not None]
        assert not trace.header.lossless and len(fills) == 16 and len(trace.emitted) == 64
        tour, level = TOURS["randar"], trace.header.model["picture"]["levels"]
        assert [len(x.places) for x in fills[:4]] == [1, 1, 1, 2]
        assert [len(fills[x.step].places) for x in tour[2:]] == [4, 6, 6, 6]
        for stop in tour:
            fill = fills[stop.step]
            assert stop.node + fill.start - 1 in fill.places, "the cell came in that pass"
        sure = [dict(zip(x.open.tolist(), x.confidence.tolist(), strict=True)) for x in fills]
        cells = [(sure[x.step][x.node + fills[x.step].start - 1], x) for x in tour]
        for k in (0, 2, 3):
            says(cells[k][1], cells[k][0], digits=3)
        corner = fills[6]
        assert corner.tokens[corner.places.index(corner.start + 63)] == level[0]
        assert [len(x.emitted) for x in trace.steps] == [0] * 14 + [3, 61]


def mixture(beams: Beams) -> list[tuple[float, float, float]]:
    """Of each text that was kept: what the model and the n-grams gave its last token, and its share of the next row."""
    rows = {(int(row[0]), int(row[1])): row[2:4] for row in beams.candidates or []}
    weights = [exp(score - beams.scores[0]) for score in beams.scores]
    kept = zip(beams.parents, beams.tokens, weights, strict=True)
    return [(*rows[parent, token], weight / sum(weights)) for parent, token, weight in kept]


def test_what_is_said_of_three_texts_in_one_row() -> None:
    tour, kept = TOURS["superposed"], steps_of("superposed")
    beams, texts = [x.beams for x in kept], [""] * 3
    with opened("superposed") as trace:
        words = [[trace.text([token]) for token in x.tokens] for x in beams]
    assert {len(x.tokens) for x in beams} == {3} and not any(x.finished for x in beams)
    mixed = [mixture(x) for x in beams]
    says(tour[0], *(-x for x in beams[0].scores), digits=2)
    assert words[0][:2] == [" named", " called"] and sum(share for *_, share in mixed[0][:2]) > 0.999
    assert min(share for *_, share in mixed[0][:2]) > 0.2 and beams[1].parents[0] == 1
    says(tour[1], -beams[1].scores[0], digits=2)
    (model, known, share), other = mixed[2][:2]
    assert beams[2].parents[:2] == [0, 1] and words[2][0] == words[2][1] and other[0] == model and other[1] < known / 20
    says(tour[2], model, known, share, digits=3)
    assert beams[5].parents[:2] == [1, 0] and words[5][0] == words[5][1] and mixed[5][0][0] == mixed[5][1][0]
    says(tour[3], mixed[5][0][1], digits=3)
    assert 0 < mixed[5][1][1] < mixed[5][0][1] / 2
    says(tour[4], mixed[6][0][0], digits=3)
    assert words[6][0] == words[6][1] != words[6][2] and mixed[6][2][2] < 1e-20
    says(tour[5], mixed[7][2][1], digits=3)
    says(tour[5], -beams[7].scores[2], digits=2)
    assert mixed[7][2][0] < 1e-30 and beams[7].scores[2] == max(
        row[4] for row in beams[7].candidates or [] if words[7][0] != trace.text([int(row[1])])
    )
    says(tour[6], -beams[15].scores[0], digits=2)
    assert len(kept) == len(kept[15].emitted) == 16
    for one, pieces in zip(beams, words, strict=True):
        texts = [texts[parent] + piece for parent, piece in zip(one.parents, pieces, strict=True)]
    assert texts[0].startswith(" named Marco. Next") and texts[1] == texts[0].replace("named", "called", 1)
    assert texts[2][:-1] == texts[0][:-1] and texts[2] != texts[0]


def test_what_is_said_of_the_draft_that_is_as_long_as_it_dares() -> None:
    tour, steps, kept = TOURS["adaptive"], told("adaptive"), steps_of("adaptive")
    said = [notes(x)["schedule"] for x in kept]
    says(tour[0], said[0]["sure"][0], said[0]["threshold"], digits=2)
    says(tour[1], said[1]["sure"][1], digits=2)
    assert [(steps[k]["drafted"], said[k]["stop"]) for k in (0, 1)] == [(1, "threshold"), (2, "threshold")]
    assert origins(steps[1]) == ["accept"] * 2 + ["bonus"] and said[1]["sure"][1] < said[1]["threshold"] < said[1]["sure"][0]
    says(tour[2], said[2]["sure"][0], digits=2)
    assert steps[2]["drafted"] == 3 and steps[2]["nodes"][-1][1] == "." and origins(steps[2]) == ["resample"]
    low = [x for k in range(5) for x in said[k]["sure"][: origins(steps[k]).count("accept")] if x < said[k]["threshold"]]
    says(tour[3], said[5]["threshold"], digits=2)
    assert len(low) == 3 and said[5]["threshold"] == min(low) < said[4]["threshold"]
    assert steps[5]["drafted"] == 20 == Method.named({"schedule": "confidence"}, {}).schedule.most
    assert origins(steps[5]) == ["accept"] * 13 + ["resample"] and said[5]["stop"] == "length"
    assert [x[1] for x in steps[5]["nodes"][14:17]] == ["el", "la", ","] and text_of(steps[5:7]).endswith(" Bramble, the")
    says(tour[5], said[5]["sure"][13], said[6]["threshold"], said[6]["sure"][1], digits=2)
    assert said[0]["threshold"] < said[6]["sure"][1] < said[6]["threshold"], "at the first bar it would have gone on"
    assert steps[6]["drafted"] == 2 and origins(steps[6]) == ["accept"] * 2 + ["bonus"]
    says(tour[6], said[10]["threshold"], said[10]["sure"][-1], digits=2)
    assert steps[10]["drafted"] == 9 and origins(steps[10]) == ["accept"] * 7 + ["resample"]
    says(tour[7], 40 / len(steps), digits=2)
    lengths = [x["drafted"] for x in steps]
    assert (sum(len(x["made"]) for x in steps), len(steps), min(lengths), max(lengths)) == (40, 12, 1, 20)


def cache_of(name: str) -> list[Any]:
    """What an example records of the target's cache, step by step."""
    return [next(x for x in step.cache if x.lane == "target") for step in steps_of(name)]


def held_of(trace: Trace, text: str) -> list[int]:
    """How many tokens of the first place of a text the heads still hold in the end, in rising order."""
    return sorted(row["kept"] for row in fate_of(trace, text)["rows"])


def gone_of(cache: Any) -> list[list[int]]:
    """The positions that left the cache in a step, head by head."""
    rows: dict[tuple[int, int], list[int]] = {}
    for layer, head, position in cache.evicted.tolist():
        rows.setdefault((layer, head), []).append(position)
    return [sorted(x) for x in rows.values()]


def test_what_is_said_of_the_tokens_that_vote() -> None:
    tour, cache, steps, kept = TOURS["snapkv"], cache_of("snapkv"), told("snapkv"), steps_of("snapkv")
    with opened("snapkv") as trace:
        assert len(trace.header.prompt) == 74 and {k: trace.header.method["policy"][k] for k in ("chosen", "window")} == {
            "chosen": 20, "window": 4,
        }  # fmt: skip
        name, beach, pink, box = (held_of(trace, x) for x in ("Rufus", "beach", "pink", "box"))
        prompt = trace.text([int(x) for x in trace.header.prompt])
    assert (name[-4:], name.count(3), name.count(0), len(name)) == ([3, 3, 3, 3], 4, 9, 16)
    assert (beach, pink, box) == ([0] * 14 + [2, 2], [0] * 15 + [1], [0] * 3 + [1] * 13)
    assert "to the beach with a pink wheel" in prompt and "Julia, who had a box" in prompt
    assert (cache[0].evicted_count, cache[0].held, cache[24].held) == (50, 24, 48)
    assert (cache[0].plan.entries == 24).all() and cache[0].plan.kind is None, "the Cache tab draws what was settled"
    assert not any(x.evicted_count for x in cache[1:]) and len({tuple(x) for x in gone_of(cache[0])}) == 16
    for stop in tour[2:6]:
        says(stop, likely(kept[stop.step])[0])
    assert text_of(steps) == "Rufus went to the town with a box. Rufus put the box on the table." and 74 + 24 == 98
    assert [steps[x.step]["made"][0][1] for x in tour[3:6]] == [" to", " box", " p"]


def test_what_is_said_of_the_needles() -> None:
    """One is kept and one is lost, of the same question: the number that is written, and what the heads still hold of it."""
    runs = {name: (TOURS[name], steps_of(name), cache_of(name)) for name in ("needle-kept", "needle-lost")}
    with opened("needle-kept") as kept, opened("needle-lost") as lost:
        prompt = kept.text([int(x) for x in kept.header.prompt])
        assert kept.header.prompt.tolist() == lost.header.prompt.tolist() and kept.header.model["name"] == "lab-recall"
        (key,) = re.findall(r"The [a-z ]+ is (\d{4,5})\.", prompt)
        count, written = len(kept.header.prompt), {x: kept.text(x.emitted).removesuffix("<|end|>") for x in (kept, lost)}
        assert written[kept] == key != written[lost] and written[lost][0] == key[0], "the first digit saw all in both"
        most = {x: max(row["kept"] for row in fate_of(x, key)["rows"]) for x in (kept, lost)}
        assert most[lost] < most[kept] <= len(key)
    assert prompt.rstrip().removesuffix("<|assistant|>").rstrip().removesuffix("<|end|>")[-1] in "?."
    for tour, steps, cache in runs.values():
        held, laws = [x.held for x in cache], [written_laws(x)[0] for x in steps]
        assert str(count) in tour[0].text and str(held[1]) in tour[1].text and held[1] < count
        for stop in tour:
            quoted = re.findall(r"\d\.\d{4}", stop.text)
            assert quoted == [f"{laws[stop.step][0]:.4f}"] * len(quoted), stop.title  # type: ignore[index] # greedy has laws
        assert str(held[-1]) in tour[-1].text and str(count + len(steps) - 1) in tour[-1].text


def test_what_is_said_of_two_bits_a_number() -> None:
    tour, cache, steps, kept = TOURS["kivi"], cache_of("kivi"), told("kivi"), steps_of("kivi")
    packed = {i: (x.packed.first, x.packed.stop) for i, x in enumerate(cache) if x.packed is not None}
    assert packed == {0: (0, 64), 22: (64, 96)} and (cache[0].held - 64, cache[22].held) == (10, 96)
    with opened("kivi") as trace:
        prompt, tokens = [int(x) for x in trace.header.prompt], [x for step in kept for x in step.emitted]
        codec, written = trace.header.method["codec"], trace.text(prompt)
        last, instead = (trace.text([x]) for x in (whole_choice(prompt, tokens[:27]), whole_choice(prompt, tokens[:28])))
    assert (codec["bits"], codec["group"]) == ("2", 32) and "Tobias" not in written and "There Kurt met Julia" in written
    assert prompt[27:29] == tokens[11:13] and [steps[i]["made"][0][1] for i in (11, 12)] == [" p", "ink"]
    assert (last, instead) == (" T", "here") and [steps[i]["made"][0][1] for i in (27, 28, 29)] == [" T", "ob", "ias"]
    for stop, ranks in ((2, (0,)), (4, (0, 1)), (5, (0,))):
        says(tour[stop], *(likely(kept[tour[stop].step])[i] for i in ranks))
    assert 0.37 < cache[39].held_bytes / cache[39].full_bytes < 0.42
    assert cache[39].held == 113 and not any(x.evicted_count for x in cache)
    assert text_of(steps) == 'Rufus went to the beach with a pink wheel. "Yes," said Rufus. Tobias and Rufus ate grapes.'


def whole_choice(prompt: list[int], tokens: list[int]) -> int:
    """What the whole model with its whole cache would write behind these."""
    lane = Lane("target", load("lab", "float32", "cpu").decoder, KeepAll())
    return int(lane.forward(Feed.causal([*prompt, *tokens], 0))[0, -1].argmax())


def test_what_is_said_of_the_text_that_fits_a_schema() -> None:
    tour, kept = TOURS["grammar"], steps_of("grammar")
    with opened("grammar") as trace:
        words = [trace.text([step.emitted[0]]) for step in kept]
        record = json.loads(trace.text(trace.emitted[:-1]))
        tops = [zip(x.tops.ids[0], x.tops.p[0], strict=True) for x in kept if x.tops is not None]
        likely = [{trace.text([int(token)]): float(p) for token, p in row} for row in tops]
    assert record == {"name": "Bertha", "city": "Bertha", "tags": ["silver", "gold"], "active": False}
    assert [words[x.step] for x in tour][:-1] == ['{"', "name", "a", "city", "B", "s", "o"] and len(kept) == 37
    sampler = [step.sampler or {} for step in kept]
    assert [sampler[x.step]["allowed"] for x in tour] == [2, 3, 1, 3, 178, 6, 3, 1] and sampler[7]["forced"] == 1
    assert "".join(words[4:7]) == "Berth" and max(likely[7], key=likely[7].__getitem__) == "a" and words[27] == "g"
    says(tour[0], likely[0]["T"], likely[0]["Th"])
    says(tour[1], sampler[1]["refused"])
    says(tour[3], likely[10]["age"], sampler[10]["refused"])
    says(tour[4], likely[13]["T"], likely[13]["B"])
    says(tour[5], likely[22]["y"], likely[22]["s"])
    says(tour[6], likely[28]["olden"])
    orders = [sorted(row, key=row.__getitem__, reverse=True) for row in likely]
    assert orders[0][:2] == ["T", "Th"] and sampler[0]["refused"] > 0.9999 and orders[22][3] == "s"
    assert orders[22][0] == "y" and not {x[0] for x in orders[22][:3]} & {"g", "s", "r"}, "begin none of the three tags"
    allowed = [k for k, step in enumerate(sampler) if k and words[k] == "<|end|>"]
    assert allowed == [36] and words[35] == "}"


def test_what_is_said_of_the_text_that_goes_round() -> None:
    tour = TOURS["loop"]
    with opened("loop") as trace:
        steps, prompt = list(trace.steps), trace.header.prompt.tolist()
        (loop,) = repeats(trace.emitted)
        laws = [law for step in steps for law in written_laws(step)]
        again, texts = said_again(trace.emitted), [trace.text(x.emitted) for x in steps]
    p = [law[0] for law in laws if law is not None]
    by_round = {x.n: x.tp for x in rounds(loop, laws)}
    assert (loop.at, loop.period, loop.ending, len(p)) == (12, 12, True, 84) and tour[2].step == 23
    assert [x.step for x in tour[:4]] == [6, 18, 23, 30] and p[6] < p[18] < p[30]
    assert steps[6].emitted == steps[18].emitted == steps[30].emitted and texts[6] == " b" and texts[40].startswith("\n\n")
    for stop in (0, 1, 3, 4):
        says(tour[stop], p[tour[stop].step])
    says(tour[2], by_round[1], by_round[2], digits=3)
    says(tour[5], by_round[5], digits=3)
    assert tour[5].step == 23 + 3 * 12 and p[40] < 0.5 and by_round[2] - by_round[1] > 5 * abs(by_round[5] - by_round[2])
    assert f"{again:.0%}".replace("%", " %") in tour[6].text and steps[30].tops is not None
    assert sorted(steps[30].tops.p[0])[-2] < 0.1
    made = Session(load("lab", "float32", "cpu"), Method.named({"sampler": ["momentum"]}), prompt, max_new_tokens=84)
    for _ in made.stream():
        pass
    assert not any(x.loop for x in repeats(made.tokens[len(prompt) :]))


def test_what_is_said_of_the_token_that_repeats_least() -> None:
    tour = TOURS["contrastive"]
    with opened("contrastive") as trace:
        steps, prompt = list(trace.steps), [int(x) for x in trace.header.prompt]
        rows, near = [], []
        for i, step in enumerate(steps):
            (choice,) = step.choices or []
            before = prompt + [x for s in steps[:i] for x in s.emitted]
            words = [trace.text([x]) for x in choice.candidates]
            rows.append(dict(zip(words, zip(*choice.terms.values(), strict=True), strict=True)))
            nearest = (step.notes or {})["nearest"]
            near.append({w: trace.text([before[k]]) for w, (_, k) in zip(words, nearest, strict=True)})
        taken = [trace.text(step.emitted) for step in steps]
    assert all((step.choices or [])[0].weights == {"p": pytest.approx(0.4), "max cos": pytest.approx(-0.6)} for step in steps)
    at = [x.step for x in tour]
    assert [taken[i] for i in at] == [" named", " N", " lived", "k", " bo", " M", " the"]
    for stop, words in ((0, [" named"]), (1, [" S"]), (3, ["cy", "k"]), (4, [" g", " bo"]), (5, [" the", " M"])):
        says(tour[stop], *(x for word in words for x in rows[at[stop]][word]))
    says(tour[2], rows[9][" lived"][1], rows[9][" lived"][0])
    likeliest = [max(rows[i], key=lambda word, row=rows[i]: row[word][0]) for i in at[:6]]
    assert likeliest == [" named", " N", " lived", "cy", " bo", " the"] and rows[24][" the"][0] > 7 * rows[24][" M"][0]
    assert [*rows[5]][4] == " S" and [*rows[19]][4] == " g", "the last of five by the score"
    assert [near[i][w] for i, w in ((5, " S"), (9, " lived"), (19, " g"), (24, " the"))] == [" S", " named", " g", "On"]
    assert near[12]["cy"] == "an" and near[0][" named"] == "," and taken[2:5] == ["us", "an", "."]
    assert ["".join(taken[a:b]) for a, b in ((1, 4), (10, 14), (19, 21), (24, 27))] == [" Susan", " Lukas", " boy", " Monday"]
    words = "".join(taken).split()
    assert [x for x in words if words.count(x) > 1] == ["the", "the"]
    assert all(sum(x.tokens for x in step.passes) == 5 and len(step.passes) == 1 for step in steps[1:])


def test_what_is_said_of_texts_weighed_by_what_follows() -> None:
    tour = TOURS["aligned"]
    with opened("aligned") as trace:
        steps = list(trace.steps)
        drawn = [step.drawn for step in steps if step.drawn is not None]
        words = [trace.text(x.texts[0].tokens) for x in drawn]
        pieces = [[trace.text([token]) for token in x.texts[0].tokens[:3]] for x in drawn]
    notes = [step.notes or {} for step in steps]
    law = [{name.partition(" ")[2].strip(): p for name, p in x["aligned"].items()} for x in notes]  # the blank's name is empty
    first = {name.split()[-1]: p for name, p in notes[0]["grammar"].items()}
    says(tour[0], first["bo"], first["g"], first["c"])
    says(tour[1], law[1]["c"])
    says(tour[2], drawn[4].texts[0].logp, digits=2)
    says(tour[3], exp(drawn[10].bound), exp(drawn[9].bound), digits=5)
    says(tour[6], *(law[21][x] for x in ("bo", "g", "c", "do")))
    assert law[3]["d"] > 0.4 and law[4]["d"] < 1e-6 and law[0]["c"] > 0.3 and law[14][""] > 0.5
    assert sorted(law[21], key=law[21].__getitem__, reverse=True)[:4] == ["bo", "g", "c", "do"]
    assert words[1].startswith(" cat named Max.") and words[4].startswith(" dog") and pieces[4] == [" d", "o", "g"]
    assert [x[0] == " " for x in pieces[:16]] == [False] * 15 + [True], "the 16th text is the first that goes that way"
    assert not steps[19].passes and all(step.passes for step in steps[:19]) and len(steps) == 22 and words[19] in words[:19]


def test_what_is_said_of_the_search_by_a_test() -> None:
    tour, (step,) = TOURS["planned"], steps_of("planned")
    search = step.search
    assert search is not None and (len(search.rollouts), search.best, search.why) == (21, 20, "solved")
    again = Search(offers=search.offers[:1], priors=search.priors[:1])
    planner, chosen = Planner(again, 4.0, 10.0), [[0.0]]
    for k, rollout in enumerate(search.rollouts, 1):
        chosen.append([planner.scores(search.parents[k])[n] for n in (0, 1)] if search.offers[search.parents[k]] else [])
        ends = search.closed[k] if not search.offers[k] else ""
        planner.bear(search.parents[k], search.tokens[k], search.offers[k], search.priors[k], ends)
        planner.reward(k, rollout.reward)
    says(tour[2], *chosen[10], *search.priors[search.parents[10]][:2], digits=3)
    says(tour[4], *search.priors[search.parents[19]][:2], digits=3)
    says(tour[5], *chosen[21], digits=3)
    with opened("planned") as trace:
        texts = [trace.text(x.tokens).removesuffix("<|end|>") for x in search.rollouts]
        pieces = [trace.text([x]) for x in search.tokens]
    short, lost = "(14 + 2 - 5 * 3) * (11 - 9)", "(14 + 2 - (7 + 15 + (7 + 15 + (11 - 9))"
    assert {*texts[:9]} == {short} and texts[9] == texts[12] == lost and texts[18] == short and short in tour[0].text
    assert texts[20] == "(14 + 2 - 5 * 3) * (7 + 15 + (11 - 9))" and texts[20] in tour[5].text and lost.count("7 + 15") == 2
    assert (14 + 2 - 5 * 3) * (11 - 9) == 2 and lost.count("(") > lost.count(")")
    assert (14 + 2 - 5 * 3) * (7 + 15 + (11 - 9)) == 24 and len({*texts}) == 3
    assert [pieces[k] for k in (8, 10, 19, 21)] == [" ", " (", "1", "7"] and search.parents[8] == search.parents[10] == 7
    assert search.parents[9] == 8 and search.parents[19] == search.parents[21] == 18, "8 was passed twice, 19 once"
    assert search.rollouts[4].read == 0 and min(search.priors[search.parents[k]][0] for k in range(1, 8)) > 0.99
    assert sum(x.read for x in search.rollouts) == 55 and [x.reward for x in search.rollouts] == [0.0] * 20 + [1.0]


def test_what_is_said_of_the_vote() -> None:
    tour, steps = TOURS["consensus"], steps_of("consensus")
    vote = steps[8].drawn
    assert vote is not None and len(steps) == 9 and len(vote.texts) == 8 and vote.chosen == 3
    with opened("consensus") as trace:
        texts = [trace.text(x.tokens).removesuffix("<|end|>") for x in vote.texts]
    assert [k for k, x in enumerate(texts) if x == "4 * 8 = 32"] == [3, 4] and len({*texts}) == 7
    assert [texts[k] for k in (0, 1, 5)] == ["4 * 8 = 34", "4 - 8 = 7", "4 * 8 = 35"] and "8 texts" in tour[0].text
    says(tour[1], vote.votes[3], digits=3)
    says(tour[2], vote.votes[5], digits=3)
    says(tour[3], vote.texts[0].logp, vote.texts[3].logp, digits=2)
    says(tour[3], vote.votes[0], digits=3)
    says(tour[4], vote.texts[1].logp, digits=2)
    says(tour[4], vote.votes[1], digits=3)
    assert vote.texts[0].logp > vote.texts[3].logp == max(x.logp for x in vote.texts[1:]) and {*vote.votes} == {0.25, 0.125}
    assert len([x for x in texts if not x.endswith("= 32")]) == len({*texts} - {"4 * 8 = 32"}) == 6


def test_what_is_said_of_the_shorter_prompt() -> None:
    tour, steps, kept = TOURS["gemfilter"], told("gemfilter"), steps_of("gemfilter")
    with opened("gemfilter") as trace:
        assert trace.prefill is not None and trace.prefill.cut is not None
        cut, passes = trace.prefill.cut, trace.prefill.passes
        prompt = [trace.text([int(x)]) for x in trace.header.prompt]
        left = "".join(prompt[i] for i in cut.kept)
    assert (len(prompt), len(cut.kept), cut.layers) == (74, 52, [5]) and (passes[0].tokens, passes[0].attn) == (74, 5)
    assert "with Rufus instead" in left and "beach with" in left and "who had a box" in left
    assert "with a pink wheel" in "".join(prompt) and not any(x in left for x in ("pink", "wheel", "grape", "ate"))
    assert left.count("Julia") == 1 and left.count("Jia") == 1 and prompt[6:10] == [" R", "u", "f", "us"]
    assert text_of(steps) == "Rufus went to the beach with a green box. There Rufus met Julia. Julia and Rufus ate pears."
    for stop, ranks in ((2, (0,)), (3, (0,)), (4, (0,)), (5, (0,)), (6, (0, 1))):
        says(tour[stop], *(likely(kept[tour[stop].step])[i] for i in ranks))
    assert [steps[x.step]["made"][0][1] for x in tour[2:7]] == [" be", " green", " box", "ul", " pe"]
    assert cache_of("gemfilter")[37].held == 89


def test_what_is_said_of_the_phrase_that_was_left_out() -> None:
    tour, steps = TOURS["short-prompt"], steps_of("short-prompt")
    with opened("short-prompt") as trace:
        cut = None if trace.prefill is None else trace.prefill.cut
        assert cut is not None and cut.units is not None and cut.worth is not None and cut.reason is not None
        words = [trace.text([int(x)]) for x in trace.header.prompt]
        written = [trace.text(x.emitted) for x in steps]
    left, seen = ("".join(w for w, r in zip(words, cut.reason, strict=True) if (r == 0) == out) for out in (True, False))
    units = {"".join(words[a:b]): k for k, (a, b) in enumerate(zip(cut.units, [*cut.units[1:], len(words)], strict=True))}
    beach, wheel = (float(cut.worth[units[x]]) for x in (" to the beach", " with a pink wheel."))
    read = [float(cut.worth[k]) for k in units.values() if cut.reason[cut.units[k]] == 1]
    assert left == " with a pink wheel." and wheel < beach == min(read)
    assert (len(words), len(cut.kept)) == (74, 66) and (cut.reason[2:17] == 3).all()
    sure = [float(x.tops.p[0].max()) for x in steps if x.tops is not None]
    assert len(sure) == 28 and min(sure[:4]) > 0.99
    for stop, word in zip(tour[4:7], (" with", " box", " R"), strict=True):
        assert written[stop.step] == word
        says(stop, sure[stop.step], digits=3)
    assert " with Rufus instead" in seen and " with" not in seen.split("Kurt went", 1)[1]
    assert "".join(written) == "Rufus went to the beach with a box. Rufus and Rufus ate grapes.<|end|>"
    assert seen.split("who had a box.")[1].startswith(" Julia and Kurt ate grapes.<|end|>") and "Yes" in seen
    assert f"{cache_of('short-prompt')[27].held} entries" in tour[7].text


def test_what_is_said_of_entries_that_become_one() -> None:
    tour, cache, steps, kept = TOURS["d2o"], cache_of("d2o"), told("d2o"), steps_of("d2o")
    spread, budget = (cache[0].notes[x] for x in ("spread", "budget"))
    assert (budget[spread.index(max(spread))], budget[spread.index(min(spread))]) == (21, 31)
    assert (min(budget), max(budget)) == (21, 31)
    assert cache[0].plan.entries.tolist() == [[x] * 2 for x in budget]
    assert (cache[0].merged[:, 3] >= 0).mean() > 0.5
    with opened("d2o") as trace:
        lives, prompt = Lives.of(trace), trace.text([int(x) for x in trace.header.prompt])
        spans = {x: places(x, lives.tokens, trace.piece)[0] for x in ("Rufus", "beach", "pink", "Kurt")}
        held = {
            (x, step): [row["kept"] for row in fate(lives, *spans[x], step)["rows"]]
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


def test_what_is_said_of_pages_that_are_read() -> None:
    tour, cache, steps, kept = TOURS["quest"], cache_of("quest"), told("quest"), steps_of("quest")
    read = [step.passes[-1].read for step in kept]
    assert read[0] is None and read[1] is not None and read[1][:2] == [[74, 74]] * 2 and not any(x.evicted_count for x in cache)
    above = [entries for layer in (read[1] or [])[2:] for entries in layer]
    assert (min(above), max(above)) == (42, 74) and "half of all, or more" in tour[1].text
    assert text_of(steps).startswith("Rufus") and cache[3].read[2:, :, 6:10].any(), "the page with the name is read"
    with opened("quest") as trace:
        prompt, tokens = [int(x) for x in trace.header.prompt], [x for step in kept for x in step.emitted]
        there = [trace.text([whole_choice(prompt, tokens[:27])])]
        there.append(trace.text([whole_choice(prompt, [*tokens[:27], *trace_tokens("kivi")[27:28]])]))
        assert "said Kurt. There Kurt met Julia" in trace.text(prompt) and trace.text(prompt[58:70]).startswith(" Julia and")
    assert there == [" T", "here"] and cache[36].read[2:, :, 64:70].any()
    for stop, ranks in ((3, (0,)), (4, (0, 1)), (5, (0,))):
        says(tour[stop], *(likely(kept[tour[stop].step])[i] for i in ranks))
    assert [steps[i]["made"][0][1] for i in (22, 27, 36)] == [" R", " J", " g"]
    assert text_of(steps) == 'Rufus went to the beach with a pink wheel. "Yes," said Rufus. Julia and Rufus ate grapes.'
    last = [entries / 112 for layer in (read[39] or [])[2:] for entries in layer]
    assert cache[39].held == 113 and min(last) > 0.25 and max(last) < 0.6


def trace_tokens(name: str) -> list[int]:
    """The tokens that an example wrote."""
    return [token for step in steps_of(name) for token in step.emitted]


def test_what_is_said_of_texts_that_branch_off_one_another() -> None:
    tour, cache, steps = TOURS["beam"], cache_of("beam"), steps_of("beam")
    beams, texts = [x.beams for x in steps if x.beams is not None], [[""] * 4]
    assert [x.step for x in tour] == [0, 5, 8, 11, 12, 26, 31]
    assert [beams[i].parents for i in (5, 12, 26)] == [[0, 0, 2, 1], [2, 0, 0, 0], [1, 0, 0, 2]]
    says(tour[0], -beams[0].scores[0], -beams[0].scores[3], digits=2)
    kib = [(x.kept_bytes(x.held) / 2**10, x.full_bytes / 2**10) for x in cache]
    assert kib[8] == (272, 672) and kib[12] == (232, 800) and kib[26][0] == 400 < kib[25][0]
    with opened("beam") as trace:
        for x in beams:
            pieces = [trace.text([token]) for token in x.tokens]
            texts.append([texts[-1][parent] + piece for parent, piece in zip(x.parents, pieces, strict=True)])
    del texts[0]
    leads, lived = " named Lukas. Next door", " named Lukas. Next door lived"
    assert [texts[i][0] for i in (9, 10)] == [leads, lived] and texts[11][0].startswith(" named Mabel")
    assert [texts[11][k] for k in (1, 3)] == [lived + " M", lived + " J"] and not any("Lukas" in x for x in texts[12])
    says(tour[3], -beams[11].scores[1], -beams[11].scores[0], digits=2)
    assert beams[10].scores[0] - beams[11].scores[1] > 2 and len({x.rpartition(" ")[0] for x in texts[12][1:]}) == 1
    assert [refs for *_, stop, refs in cache[12].shared.tolist() if stop == 25] == [1, 3], "three read one path to its end"
    assert cache[0].held == 13 and len(steps) == 32 and text_of(told("beam")).startswith(" named Mabel. Mabel and Mabel had")
    says(tour[6], -beams[31].scores[0], digits=2)
    assert "Mabel and Mabel had been friends" in text_of(told("beam"))


def test_what_is_said_of_heads_that_look_far_back() -> None:
    cache = cache_of("duo-attention")
    gates, kinds = (cache[0].notes[x] for x in ("alpha", "retrieval"))
    says(TOURS["duo-attention"][1], max(gates.values()), digits=3)
    assert sum(kinds.values()) == 8 and min(gates[x] for x in kinds if kinds[x]) >= max(gates[x] for x in kinds if not kinds[x])
    assert [sorted(set(x.by_head.ravel().tolist())) for x in (cache[0], cache[39])] == [[16, 74], [16, 113]]
    assert [cache[39].kept_bytes(cache[39].held) / 2**10, cache[39].full_bytes / 2**10] == [516, 904]
    kind, entries = cache[0].plan.kind.ravel().tolist(), cache[0].plan.entries.ravel().tolist()
    assert [cache[0].plan.kinds[x] for x in kind] == ["retrieval" if x else "streaming" for x in kinds.values()]
    assert set(zip(kind, entries, strict=True)) == {(0, -1), (1, 16)}
    with opened("duo-attention") as trace:
        assert sorted(row["kept"] for row in fate_of(trace, "Rufus")["rows"]) == [0] * 8 + [4] * 8
    for name, place in (("snapkv", "town"), ("d2o", "bridge"), ("duo-attention", "beach")):
        assert text_of(told(name)).startswith(f"Rufus went to the {place} with a"), name


def test_what_the_tours_say_of_runs_that_are_not_shipped() -> None:
    """What the whole cache writes is what it would choose behind each token, but for a near tie, which falls by machine."""
    model, steps = load("lab", "float32", "cpu"), told("duo-attention")
    with opened("d2o") as trace:
        prompt, record = [int(x) for x in trace.header.prompt], trace.header.method
    tokens = [token for step in steps for token, *_ in step["made"]]
    feed = Feed.causal([*prompt, *tokens], 0)
    logits = Lane("target", model.decoder, KeepAll()).forward(feed)[0, len(prompt) - 1 : -1]
    chosen = logits[range(len(tokens)), tokens]
    assert len(tokens) == 40 and (logits.amax(-1) - chosen).max() < NEAR, "the text is that of the whole cache"
    assert text_of(told("quest")) != text_of(steps)
    dropping = Method.from_record(record | {"policy": record["policy"] | {"floor": 2.0}})  # no similarity is as large
    assert run(model, dropping, prompt, max_new_tokens=8).text.startswith("Rosa went")


def test_what_is_said_of_two_drafts() -> None:
    tour, steps, kept = TOURS["two-drafts"], told("two-drafts"), steps_of("two-drafts")
    assert notes(kept[0])["drawn_by"] == [1] * 6 + [2] * 6
    agreed = steps[5]["nodes"][tour[1].node]
    assert [x[2] for x in steps[5]["nodes"][1:]].count(agreed[2]) == 4 and notes(kept[5])["models"][0] == [1, 2]
    one, again, other = (steps[6]["nodes"][x.node] for x in tour[2:5])
    says(tour[2], one[3], one[4], one[5], one[8])
    assert one[2] == again[2] and again[7] == 0 and again[6] == "reject"
    says(tour[4], other[4], other[7])
    assert notes(kept[6])["drawn_by"][tour[4].node - 1] == 2
    assert [x[6] for x in steps[10]["nodes"][1:-1] if x[0] == 0] == ["reject"] * 4
    assert [notes(kept[11])["drawn_by"][x - 1] for x in steps[11]["verdict"]["path"][1:]] == [2, 2, 2]
    assert [x[6] for x in steps[11]["nodes"][1:3]] == ["reject"] * 2 and len(steps[11]["made"]) == 4


def test_what_is_said_of_the_dart_that_saves_the_draft() -> None:
    tour, steps = TOURS["block"], told("block")
    failed, saved, far, fifth = steps[4]["nodes"][1], steps[4]["nodes"][5], steps[11]["nodes"][2], steps[11]["nodes"][5]
    assert origins(steps[0]) == ["accept"] * 2 + ["resample"] and steps[0]["verdict"]["ok"] == [0, 1, 0, 0, 0]
    assert failed[5] > failed[8] and failed[5] > failed[4] / failed[3] and saved[5] < saved[8]
    says(tour[3], failed[8], failed[5], failed[4] / failed[3])
    says(tour[4], saved[5], saved[8])
    assert origins(steps[4]) == ["accept"] * 5 + ["bonus"] and steps[4]["verdict"]["ok"] == [0, 0, 0, 0, 1]
    assert all(x[4] > x[3] and x[8] == 1 for x in steps[5]["nodes"][1:6])
    says(tour[7], far[5], far[8], fifth[5], fifth[8])
    assert far[5] > far[8] and fifth[5] < fifth[8] and origins(steps[11]) == ["accept"] * 5 + ["bonus"]
    with opened("block") as trace:
        assert trace.header.lossless


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_a_tour_is_walked_with_the_keyboard_and_left(lab: Lab) -> None:
    stops = TOURS[examples()[0].name]
    page = lab.open()
    page.wait_for_selector(".ds .node:visible")
    page.focus(".ds-tour button:visible")
    page.keyboard.press("Enter")
    for i, stop in enumerate(stops):
        page.wait_for_function(f"{SHOWN} == '{i + 1} of {len(stops)}'")
        page.wait_for_selector(f".ds h1:text-is('Step {stop.step}')")
        assert stop.title in page.inner_text(".ds-tour") and stop.text in page.inner_text(".ds-tour")
        if stop.status == "reject":
            page.wait_for_function("document.querySelector('.ds .decision')?.textContent.includes('Rejected')")
        assert page.evaluate("document.activeElement.matches('.ds-tour .go')"), "the next press leads on"
        page.keyboard.press("Enter")
    page.wait_for_selector(".ds-tour .stop", state="hidden")
    assert page.evaluate("document.activeElement.textContent").startswith("Guided tour")


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_a_tour_begins_in_the_library(lab: Lab) -> None:
    other = examples()[2]
    page = lab.open("/#library", ready=False)
    page.locator("#ds-page-library .examples li").nth(2).get_by_text("Guided tour").click()
    page.wait_for_function(f"document.documentElement.dataset.dsTab == 'lab' && {SHOWN} == '1 of {len(TOURS[other.name])}'")
    page.wait_for_selector(".ds h1:text-is('Step 0')")
    page.click("#ds-tab-library")
    page.locator("#ds-page-library .card").first.click()
    page.wait_for_function("!document.querySelector('.ds-tour .stop')?.checkVisibility()")


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize(
    ("name", "mark"),
    [
        ("adaptive", ".ds .node[data-node='%d'][aria-selected=true]"),
        ("canvas", ".ds .canvas [data-node='%d'][aria-pressed=true]"),
    ],
)
def test_on_a_small_screen_each_stop_and_its_node_are_in_view_together(lab: Lab, name: str, mark: str) -> None:
    example = next(x for x in examples() if x.name == name)
    stops = TOURS[example.name]
    page = lab.open(f"/#run={example.run}", width=390, height=844)
    page.wait_for_selector(".ds .node:visible, .ds .canvas button:visible")
    for i, stop in enumerate(stops):
        page.click(".ds-tour .go" if i else ".ds-tour button:visible")
        page.wait_for_function(f"{SHOWN} == '{i + 1} of {len(stops)}'")
        page.wait_for_selector(f".ds h1:text-is('Step {stop.step}')")
        page.wait_for_function(
            """mark => ['.ds-tour .stop', mark].every(x => {
            const box = document.querySelector(x)?.getBoundingClientRect();
            return box && box.height && box.top >= -1 && box.bottom <= innerHeight + 1; })""",
            arg=mark % stop.node,
        )


def test_what_is_said_of_tokens_in_a_pipeline() -> None:
    tour = TOURS["pipeline"]
    with opened("pipeline") as trace:
        steps = list(trace.steps)
        notes = [(step.draft.notes or {})["speed"] for step in steps if step.draft is not None]
        flown = "".join(trace.text([bar[3]]) for bar in notes[22]["flight"])
        assert trace.header.lossless
    assert [x.step for x in tour] == [0, 2, 5, 13, 19, 22, 31]
    for stop in (0, 1, 2, 4, 5):
        says(tour[stop], notes[tour[stop].step]["sure"][0])
    assert [len(step.path) for step in (steps[x.step] for x in tour)] == [1, 1, 0, 0, 1, 0, 1]
    assert [[bar[2] - bar[1] for bar in notes[k]["flight"]] for k in (0, 2)] == [[8, 6, 4, 2], [2, 2, 2, 2]]
    assert [notes[k]["ticks"] for k in (2, 5, 13)] == [2, 2, 8] and [notes[k]["work"] for k in (13, 19)] == [20, 8]
    assert [[bar[4] for bar in notes[k]["flight"][1:]] for k in (5, 22)] == [["dropped"] * 3] * 2
    assert [len(steps[k].path) for k in (12, 13, 14, 21)] == [0, 0, 0, 1], "guess after guess, and the T was right"
    text, whole = text_of(told("pipeline")), text_of(told("recycling"))
    assert flown == "Tokyo" and text_of(told("pipeline")[21:25]) == "Toronto" and whole.startswith(text)
    assert (notes[-1]["clock"], notes[-1]["plain"]) == (112, 256)


def read_along(name: str) -> list[tuple[float, str | None]]:
    """Of each token KL to the whole model, and what that would have said where it is another."""
    with opened(name) as trace:
        beside = [next(x.shadow for x in step.cache if x.lane == "target") for step in trace.steps]
        assert trace.header.along == "model" and all(x is not None and x.said is not None for x in beside)
        rows = [(float(x.drift[0]), int(x.said[0])) for x in beside if x is not None and x.said is not None]
        return [(kl, None if [x] == step.emitted else trace.text([x])) for (kl, x), step in zip(rows, trace.steps, strict=True)]


def likely(step: Step) -> list[float]:
    """The probabilities of the likeliest tokens of a plain step, in doubles."""
    assert step.tops is not None
    return [float(x) for x in step.tops.p[0]]


def test_what_is_said_of_four_bits() -> None:
    tour, steps, kept, beside = TOURS["four-bits"], told("four-bits"), steps_of("four-bits"), read_along("four-bits")
    with opened("four-bits") as trace:
        assert trace.header.model["weights"] == "int4" and trace.header.reports is not None
        (made,) = trace.header.reports["target"]
        assert all(0.05 < x < 0.15 for row in made.findings["error"].values[:-1] for x in row)
        model, prompt = load("lab", "float32", "cpu"), [int(x) for x in trace.header.prompt]
    assert [(i, other) for i, (_, other) in enumerate(beside) if other] == [(25, "Not")] and len(steps) == 36
    written = text_of(steps)
    assert written.startswith(' bridge.\n\n"How much is a silver brush?"') and written.endswith(
        '"On Sunday I must help my aunt.'
    )
    for stop, ranks in enumerate([(0, 1), (0, 1), (0, 1), (0,), (0, 1, 2), (0,)]):
        says(tour[stop], *(likely(kept[tour[stop].step])[i] for i in ranks))
    assert [steps[i]["made"][0][1] for i in (12, 13, 14, 15)] == [" silver", " b", "r", "ush"]
    assert beside[25][0] == max(kl for kl, _ in beside) and beside[8][0] == max(kl for kl, _ in beside[:9])
    whole = run(model, Method.named({}, {}), prompt, max_new_tokens=36).text
    assert written.split('"On')[0] == whole.split('"Not')[0] and whole.split('"')[3].startswith("Not mine")


def test_what_is_said_of_two_blocks_less() -> None:
    tour, steps, kept, beside = (
        TOURS["fewer-blocks"],
        told("fewer-blocks"),
        steps_of("fewer-blocks"),
        read_along("fewer-blocks"),
    )
    with opened("fewer-blocks") as trace:
        model = trace.header.model
        assert model["weights"] == "cut_layers skip=a6,f4" and model["widths"][4] == 0 and model["groups"][6] == []
        assert "Oliver" in trace.text(trace.header.prompt.tolist())
    for stop, ranks in enumerate([(0, 1), (0,), (0, 1), (0, 4), (0,), (0, 1)]):
        says(tour[stop], *(likely(kept[tour[stop].step])[i] for i in ranks))
    assert [(i, other) for i, (_, other) in enumerate(beside) if other] == [(0, " b"), (5, "H"), (9, " co")]
    assert len(steps) == 39 and beside[9][0] == max(kl for kl, _ in beside) > 0.3
    assert [steps[x.step]["made"][0][1] for x in tour] == [" cast", ".", "D", " time", "li", " But", "ome"]
    asked = ' castle.\n\n"Do you have time today, Oliver?" asked Bertha.\n\n"Yes, of course. But I must be home'
    assert text_of(steps) == asked


def test_what_is_said_of_fewer_heads() -> None:
    tour, steps, kept, beside = TOURS["fewer-heads"], told("fewer-heads"), steps_of("fewer-heads"), read_along("fewer-heads")
    with opened("fewer-heads") as trace:
        groups, (made,) = trace.header.model["groups"], (trace.header.reports or {})["target"]
        assert sum(map(sum, groups)) == 36 and [len(x) for x in groups].count(1) == 1
        order = [x for row in made.findings["order"].values for x in row if x]
        assert sorted(order) == [*range(1, 13)] and trace.header.model["weights"] == made.weights == "head_sensitivity"
        assert "There Kurt met Julia, who" in trace.text(trace.header.prompt.tolist())
    for stop, ranks in ((0, (0,)), (1, (0,)), (2, (0,)), (3, (0, 1)), (4, (0, 3)), (5, (0, 1)), (6, (0, 1))):
        says(tour[stop], *(likely(kept[tour[stop].step])[i] for i in ranks))
    assert [(i, x) for i, (_, x) in enumerate(beside) if x] == [(22, " R"), (28, " R"), (36, "."), (37, " R")]
    assert len(steps) == 40
    assert beside[22][0] == max(kl for kl, _ in beside) > 5 and beside[17][0] > 10 * max(kl for kl, _ in beside[:17])
    assert text_of(steps) == 'Rufus went to the beach with a pink wheel. "Yes," said Kurt. There Kurt met Julia, "Yes'
