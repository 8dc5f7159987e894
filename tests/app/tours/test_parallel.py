"""Guided tours of places that are written at once: what each tour says about its run is true."""

from __future__ import annotations

import json
from math import exp

from followed import Followed, followed
from toured import TOURS, opened, says, steps_of, text_of, told

from decodescope.engine import Method, load, run
from decodescope.engine.bench.questions.parallel_tasks import chance_at_once
from decodescope.engine.session.load import SHIPPED


def test_what_is_said_of_the_block_that_settles() -> None:
    tour, steps = TOURS["jacobi"], told("jacobi")
    block = [x["chain"] for x in steps]
    before, after = ([[piece for _, piece in x[side]] for x in block] for side in ("before", "after"))
    assert [x.step for x in tour] == [0, 1, 7, 9, 20, 26, 28]
    assert before[0] == [" lived"] * 8 and steps[0]["nodes"][0][1] == " lived"
    assert [x["fixed"] for x in block[:8]] == [1] * 8 and len(after[1]) == 7 and len(after[8]) == 8
    assert before[1] == after[0][1:] and before[1][1] != after[1][1] != after[2][0], "wrong, and taken back"
    assert (
        before[8] == [" g"] * 8 and before[9] == ["irl"] * 7 and after[9] == ["."] * 7 == [*before[10], "."]
    )
    assert text_of(steps[9:12]) == ".\n\nS", "right in the first place alone"
    assert before[20][:2] == after[20][:2] and before[20][2] != after[20][2] and block[20]["fixed"] == 3
    assert max(x["fixed"] for x in block) == 3 and [x["fixed"] for x in block].count(3) == 1
    assert (block[26]["fixed"], after[26][2], after[27][0]) == (2, " The", "ch") and before[26][1:3] != after[
        26
    ][1:3]
    assert text_of(steps).endswith(" allowed to touch.")
    assert (sum(len(x["made"]) for x in steps), len(steps)) == (32, 29)
    says(tour[6], 32 / 29, digits=2)
    with opened("jacobi") as trace:
        assert trace.header.lossless


def test_what_is_said_of_the_canvas() -> None:
    tour, steps = TOURS["canvas"], told("canvas")
    fills = [x["canvas"] for x in steps]
    wants = [[fill["tokens"][k][1] for k in fill["which"]] for fill in fills]
    assert [(len(x["open"]), len(x["now"])) for x in fills] == [
        (16, 11),
        (5, 1),
        (4, 1),
        (3, 1),
        (2, 1),
        (1, 1),
    ]
    assert {tuple(x[1:]) for x in fills[0]["now"]} == {("sure", 0, "<|end|>")} and {
        x["bars"][0] for x in fills
    } == {0.9}
    assert min(fills[0]["c"][5:]) > 0.9 > max(fills[0]["c"][:5])
    assert [x["now"][0][1] for x in fills[1:]] == ["best"] * 4 + ["sure"]
    assert wants[2] == [" Finn"] * 4 and fills[2]["now"][0][0] != fills[2]["open"][0]
    assert [x[fill["open"].index(12)] for x, fill in zip(wants[:4], fills, strict=False)] == [
        " Ben",
        " Ben",
        " Finn",
        " Ada",
    ]
    says(tour[1], max(fills[1]["c"]), digits=2)
    says(tour[2], max(fills[2]["c"]), digits=2)
    says(tour[3], fills[3]["c"][fills[3]["open"].index(12)], digits=2)
    assert fills[3]["now"] == [[13, "best", fills[3]["now"][0][2], " Ada"]] and not any(
        x["made"] for x in steps[:4]
    )
    says(tour[4], fills[4]["c"][0], digits=2)
    assert fills[4]["now"] == [[10, "best", fills[4]["now"][0][2], " Hugo"]] and len(steps[4]["made"]) == 2
    says(tour[5], *fills[5]["c"], digits=2)
    names = text_of(steps).removesuffix("<|end|>").split()
    with opened("canvas") as trace:
        asked = trace.text([int(x) for x in trace.header.prompt])
        assert trace.header.method["unmasking"]["tau"] == 0.9 and not trace.header.lossless
    assert sum(len(x["made"]) for x in steps) == len(steps) == 6 and sorted(names) == [
        "Ada",
        "Ben",
        "Clara",
        "Finn",
        "Hugo",
    ]
    assert " ".join(sorted(names)) in asked and names != sorted(names)


def test_what_is_said_of_the_digit() -> None:
    tour, steps = TOURS["digit"], told("digit")
    fills = [x["canvas"] for x in steps]
    with opened("digit") as trace:
        picture, method = trace.header.model["picture"], trace.header.method
    level = picture["levels"].index
    assert (picture["height"], picture["width"], method["strategy"]["window"], len(steps)) == (
        8,
        8,
        3,
        16 + 6 * 3,
    )
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
    blocks = [x["chain"] for x in steps]
    assert [piece for _, piece in blocks[0]["before"]] == ["\n"] * 8 and blocks[0]["after"][0][1] == '{"'
    first = "".join(piece for x in blocks[:6] for _, piece in x["after"][: x["fixed"]])
    assert first == '{"id": 507,' and [x["fixed"] for x in blocks[:6]] == [1, 1, 1, 1, 2, 2]
    done = [0, 1, 2, 3, 4]  # finished tokens of the block before each of these passes
    late = [done[i] + [piece for _, piece in blocks[i]["after"]].index("5") for i in (1, 2, 3)]
    assert late == [6, 5, 4] and [late[0] - done[1] + 1, late[1] - done[2] + 1] == [
        tour[1].node,
        tour[2].node,
    ]
    assert (
        blocks[4]["before"][0] == blocks[4]["after"][0] == blocks[3]["after"][1]
        and blocks[4]["after"][0][1] == "5"
    )
    assert [blocks[4]["after"][1][1], blocks[4]["before"][1][1]] == ["0", "5"]
    with opened("cllm") as trace:
        header = trace.header
        assert header.exactness == "exact_for_settings" and header.method["strategy"]["block"] == 8
    prompt, count = [int(x) for x in header.prompt], sum(len(x["made"]) for x in steps)
    base = run(load("lab"), Method.from_names({"strategy": "jacobi"}), prompt, max_new_tokens=count, seed=7)
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
    assert (
        forks == [(0, 0, -1), (11, 1, 0), (26, 2, 0), (39, 3, 0)]
        and rounds[11]["tokens"][0][1] == "<|reserved_0|>"
    )
    assert rounds[11]["begun"][0][3][0][1] == "<|reserved_1|>"
    assert [rounds[i]["alive"] for i in (4, 13, 27, 40, 43, 56)] == [
        [0],
        [0, 1],
        [0, 1, 2],
        [0, 2, 3],
        [2, 3],
        [3],
    ]
    assert [i for i, x in enumerate(rounds) if len(x["tokens"]) == 3] == [27, 40]
    assert (rounds[27]["ended"], len(steps[27]["made"])) == ([[1, "stop_token"]], 16)
    assert (rounds[40]["ended"], rounds[43]["ended"]) == ([[0, "stop_token"]], [[2, "stop_token"]])
    assert (len(steps), sum(len(x["tokens"]) for x in rounds)) == (57, 91) and tour[6].text.startswith(
        "57 passes"
    )
    longest = 40 + sum(3 in x["alive"] for x in rounds)
    assert longest == 57, "the way down to the last thread's end"
    first, second, third = (line.partition(":<|reserved_0|>") for line in text_of(steps).splitlines())
    assert (
        first[2] == " Oliver lives in Lisbon and has a lamp."
        and second[2] == " Rufus lives in Tokyo and has a lamp."
    )
    assert third[0] == "3. Bertha, a doctor" and third[2].startswith(" Rufus")
    with opened("apar") as trace:
        asked = trace.text([int(x) for x in trace.header.prompt])
        assert "Rufus is a musician in Tokyo and has a kite." in asked and not trace.header.lossless


def test_what_is_said_of_the_wall() -> None:
    tour, (step,) = TOURS["wall"], told("wall")
    fill, names = step["canvas"], ("Ada", "Ben", "Clara", "Finn", "Hugo")
    drawn = [x[3].strip() for x in fill["now"]]
    assert (
        drawn == ["Hugo", "Ben", "Hugo", "Ada", "Ada", *["<|end|>"] * 3]
        and len(fill["open"]) == fill["fed"] - 10 == 8
    )
    for stop in tour[:5]:
        says(stop, fill["c"][stop.node - 1], digits=3)
        assert fill["tokens"][fill["which"][stop.node - 1]][1].strip() == drawn[stop.node - 1]
    assert {*names} - {*drawn} == {"Clara", "Finn"} and text_of([step]).split()[:1] == ["Hugo"]
    assert round(1 / chance_at_once("shuffle", 5, differs=False)) == 26
    with opened("wall") as trace, opened("canvas") as canvas:
        assert (
            trace.header.prompt.tolist() == canvas.header.prompt.tolist()
            and trace.header.method["unmasking"]["steps"] == 1
        )


def test_what_is_said_of_cells_in_any_order() -> None:
    with opened("randar") as trace:
        fills = [step.detail("group_cells") for step in trace.steps if step.details]
        assert not trace.header.lossless and len(fills) == 16 and len(trace.emitted_ids) == 64
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


def mixture(beams: Followed) -> list[tuple[float, float, float]]:
    """For each kept text the probabilities of its last token by the model and by the n-grams, and its share of the next row."""
    weights = [exp(score - beams.scores[0]) for score in beams.scores]
    columns = beams.detail.columns
    kept = zip(columns["p"], columns["ngrams"], weights, strict=False)
    return [(p, known, weight / sum(weights)) for p, known, weight in kept]


def test_what_is_said_of_three_texts_in_one_row() -> None:
    tour, kept = TOURS["superposed"], steps_of("superposed")
    beams, texts = [followed(x) for x in kept], [""] * 3
    with opened("superposed") as trace:
        words = [[trace.text([token]) for token in x.tokens] for x in beams]
    assert {len(x.tokens) for x in beams} == {3} and not any(x.ended for x in beams)
    mixed = [mixture(x) for x in beams]
    says(tour[0], *(-x for x in beams[0].scores), digits=2)
    assert words[0][:2] == [" named", " called"] and sum(share for *_, share in mixed[0][:2]) > 0.999
    assert min(share for *_, share in mixed[0][:2]) > 0.2 and beams[1].parents[0] == 1
    says(tour[1], -beams[1].scores[0], digits=2)
    (model, known, share), other = mixed[2][:2]
    assert (
        beams[2].parents[:2] == [0, 1]
        and words[2][0] == words[2][1]
        and other[0] == model
        and other[1] < known / 20
    )
    says(tour[2], model, known, share, digits=3)
    assert beams[5].parents[:2] == [1, 0] and words[5][0] == words[5][1] and mixed[5][0][0] == mixed[5][1][0]
    says(tour[3], mixed[5][0][1], digits=3)
    assert 0 < mixed[5][1][1] < mixed[5][0][1] / 2
    says(tour[4], mixed[6][0][0], digits=3)
    assert words[6][0] == words[6][1] != words[6][2] and mixed[6][2][2] < 1e-20
    says(tour[5], mixed[7][2][1], digits=3)
    says(tour[5], -beams[7].scores[2], digits=2)
    assert mixed[7][2][0] < 1e-30 and beams[7].scores[2] == max(
        score
        for score, token in zip(
            beams[7].detail.columns["score"], beams[7].detail.columns["token"], strict=True
        )
        if words[7][0] != trace.text([token])
    )
    says(tour[6], -beams[15].scores[0], digits=2)
    assert len(kept) == len(kept[15].emitted) == 16
    for one, pieces in zip(beams, words, strict=True):
        texts = [texts[parent] + piece for parent, piece in zip(one.parents, pieces, strict=True)]
    assert texts[0].startswith(" named Marco. Next") and texts[1] == texts[0].replace("named", "called", 1)
    assert texts[2][:-1] == texts[0][:-1] and texts[2] != texts[0]
