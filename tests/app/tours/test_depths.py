"""Guided tours of skipped layers: what each tour says about its run is true."""

from __future__ import annotations

import json

from toured import TOURS, opened, origins, says, steps_of, text_of, told

from decodescope.engine import Method, load, run


def test_what_is_said_of_the_layers_left_out() -> None:
    tour, steps, kept = TOURS["early-exit"], told("early-exit"), steps_of("early-exit")
    exits = [x.exits[0] for x in kept if x.exits]
    assert len(exits) == len(kept) == 58
    for stop in (x for x in tour[:-1] if x is not tour[2]):
        says(stop, exits[stop.step].tests[-1][1], digits=2)
    assert [exits[x.step].depth for x in tour] == [4, 2, 6, 2, 2, 2, 6, 2] and max(
        x.depth for x in exits
    ) == 6
    assert kept[3].passes[0].propagated == 6 and steps[3]["made"][0][1] == " "
    says(tour[2], *(confidence for _, confidence, _ in exits[12].tests), digits=2)
    assert [layer for layer, *_ in exits[12].tests] == [2, 3, 4, 5, 6] and text_of(steps[12:15]) == "Berlin"
    plain, text = text_of(told("recycling")), text_of(steps)
    before = text_of(steps[:14])
    assert plain.startswith(before + "th") and text.startswith(before + "lin"), "the same up to there"
    made, whole = (json.loads(x.removesuffix("<|end|>")) for x in (text, plain))
    assert (made["name"], whole["name"], made["city"], whole["city"]) == (
        "Berlin",
        "Bertha",
        "Tokyo",
        "Toronto",
    )
    assert text_of(steps[20:24]) == "Tokyo" and steps[32]["made"][0][1] == '",' and len(whole["tags"]) == 1
    assert (
        text_of(steps[:33]).endswith('["silver",') and len(made["tags"]) == 5 and 'tags": ["silver"]' in plain
    )
    assert text_of(steps[34:36]) == "golden" and "golden" not in whole["tags"]
    assert [key for key in whole if made[key] != whole[key]] == ["name", "city", "tags", "active"] and len(
        whole
    ) == 5
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
    assert (
        kept[2].exits[0].depth == 2
        and steps[2]["nodes"][1][1] == "lin"
        and "Berlin" in text_of(told("early-exit"))
    )
    assert (
        text_of(steps[:3]).endswith("Berth")
        and steps[3]["made"][0][1] == "a"
        and origins(steps[2]) == ["resample"]
    )
    guessed = [x[1] for x in steps[4]["nodes"][1:7]]
    assert text_of(steps[:4]).endswith("T") and guessed == ["ok", "y", "o", '",', ' "', "tags"]
    assert origins(steps[4]) == ["resample"] and text_of(steps[:6]).endswith('Toronto", "tags": ["')
    says(tour[5], kept[6].exits[3].tests[-1][1], digits=2)
    assert (
        kept[6].exits[3].depth == 2
        and [x[1] for x in steps[6]["nodes"]][4] == '",'
        and steps[6]["made"][-1][1] == '"],'
    )
    assert (sum(len(x["made"]) for x in steps), len(steps)) == (40, 9) and text_of(steps) == text_of(
        told("recycling")
    )
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
    assert (
        text_of(steps[:23]).endswith("\n\nLily") and text_of(steps[23:33]) == line and text.startswith(line)
    )
    with opened("ffn-skip") as trace:
        prompt = [int(x) for x in trace.header.prompt]
    whole = run(load("lab", "float32", "cpu"), Method(), prompt, max_new_tokens=len(steps)).text
    assert whole.startswith(text_of(steps[:11]) + " curious") and "\n\nLily wanted to learn" in whole
    assert (
        sum(bool(x.closed) for x in exits) == 22
        and max(len(x.closed) for x in exits) == 3
        and len(steps) == 40
    )
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
    assert (
        text_of(steps).endswith('"Will you home in the brid')
        and text_of(steps[:52]).endswith("you home")
        and before == 51
    )
    assert set(ran[47:52]) == {"r----rrr"}
    saved = sum(x["depth"]["saved"] for x in steps)
    says(tour[6], saved / len(steps), digits=2)


def test_what_is_said_of_tokens_that_wait() -> None:
    tour, steps, kept = TOURS["flush"], told("flush"), steps_of("flush")
    exits = [x.exits[0] for x in kept if x.exits]
    assert len(exits) == len(kept) == 40
    for stop in tour:
        says(stop, exits[stop.step].tests[0][1], digits=3)
    assert [exits[x.step].depth for x in tour] == [4, 8, 8, 8, 4, 8, 4] and {
        x.tests[0][2] for x in exits
    } == {0.7}
    assert [kept[i].passes[-1].joined for i in (4, 12, 21, 33)] == [[[4, n]] for n in (3, 5, 7, 2)]
    assert {x.passes[-1].tokens for x in kept} == {1}, "those that go along are beside the one that is read"
    assert (
        steps[24]["made"][0][1] == "to"
        and text_of(steps[21:25]) == "Toronto"
        and steps[33]["made"][0][1] == '"],'
    )
    assert text_of(steps) == text_of(told("recycling"))
    assert [(x.phase, x.tokens) for x in kept[39].passes] == [("verify", 1), ("flush", 1)]
    assert [x.depth for x in exits[37:]] == [8, 8, 4] and sum(
        x.phase == "flush" for y in kept for x in y.passes
    ) == 1
    with opened("flush") as trace:
        assert not trace.header.lossless
