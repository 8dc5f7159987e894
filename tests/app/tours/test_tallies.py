"""Guided tours of steps that try several things and keep some: what each tour says about its run is true."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from toured import TOURS, opened, says, steps_of, text_of, told

from decodescope.engine import Method, load, run


def rows(steps: list[dict[str, Any]], step: int) -> list[list[Any]]:
    """The rows of a step's card: text, number, its threshold, whether it is kept, and a comment on that."""
    return list(steps[step]["tally"]["rows"])


def plain(name: str, model: str = "lab") -> Any:
    """What greedy decoding writes after the prompt of an example."""
    with opened(name) as trace:
        prompt = [int(x) for x in trace.header.prompt]
    return run(load(model, "float32", "cpu"), Method(), prompt, max_new_tokens=64)


def details(name: str, detail: str) -> list[Any]:
    """The detail of that name for each step of an example; None for a step without it."""
    return [step.detail(detail) for step in steps_of(name)]


def listed(one: Any) -> list[dict[str, Any]]:
    """The rows of a tally."""
    return [one.row(k) for k in range(len(one))]


def test_what_is_said_of_tokens_taken_unread() -> None:
    tour, steps, units = TOURS["units"], told("units"), details("units", "lexical_unit")
    with opened("units") as trace:
        words = [[trace.text([token]) for token in x.columns["token"]] for x in units]
        knobs = trace.header.method["strategy"]
    p, outcomes = ([x.columns[name] for x in units] for name in ("p", "outcome"))
    taken = [x.values["taken"] for x in units]
    assert (knobs["placeholders"], knobs["min_probability"]) == (4, 0.6) and [x.step for x in tour] == [
        0,
        0,
        0,
        2,
        7,
        10,
        21,
    ]
    says(tour[1], p[0][1], digits=3)
    says(tour[2], p[0][2], digits=3)
    assert words[0][1] == words[0][2] == "id" and (taken[0], outcomes[0][2]) == (2, "bar")
    says(tour[3], p[2][2], digits=3)
    assert words[2][1] == words[2][2] == "8" and outcomes[2][2] == "repeat" and p[2][2] > 0.6
    says(tour[4], p[7][1], digits=3)
    assert (words[7][1], taken[7], words[8][:2]) == ("us", 1, ["f", "us"])
    says(tour[5], *p[10][1:3], digits=3)
    assert words[10][1:3] == ["city", '":'] and taken[10] == 3
    says(tour[6], sum(taken) / len(steps), digits=2)
    assert sum(taken) == 39 and text_of(steps) == plain("units").text


def test_what_is_said_of_tokens_drawn_as_a_pair() -> None:
    tour, steps = TOURS["joint"], told("joint")
    lengths, offered = (details("joint", name) for name in ("joint_lengths", "joint_texts"))
    best = [x.columns["joint"] for x in lengths]
    with opened("joint") as trace:
        texts = [[] if one is None else [trace.text(x) for x in one.columns["text"]] for one in offered]
        assert trace.header.method["strategy"]["threshold"] == 0.25

    def joint(step: int) -> list[float]:
        return offered[step].columns["joint"]

    def drawn(step: int) -> tuple[float, float]:
        """The uniform of a step, and the share of its first text."""
        return offered[step].values["u"], joint(step)[0] / sum(joint(step))

    says(tour[0], best[0][0], digits=3)
    assert best[0][0] < 0.25 and text_of(steps[:1]) == " A"
    says(tour[1], offered[1].columns["alone"][0], joint(1)[0], digits=3)
    assert texts[1] == ["xel"] and texts[2] == [". A", ".\n\n"]
    says(tour[2], *joint(2), digits=3)
    says(tour[3], *drawn(2), 1.0, digits=3)
    assert offered[2].values["chosen"] == 2 and text_of(steps[2:3]) == ".\n\n"
    says(tour[4], best[3][1], digits=3)
    assert best[3][1] < 0.25 and len(steps[3]["made"]) == 1
    says(tour[5], offered[15].columns["alone"][0], joint(15)[0], digits=3)
    assert texts[15] == [" I need"] and texts[19] == [" Amin", " said A"]
    says(tour[6], *joint(19), *drawn(19), digits=3)
    u, share = drawn(19)
    assert offered[19].values["chosen"] == 2 and u < share + 0.01
    count = sum(len(x["made"]) for x in steps)
    says(tour[7], count / len(steps), digits=2)
    assert count == 40 and max(len(x["made"]) for x in steps) == 2


def test_what_is_said_of_labels_side_by_side() -> None:
    tour, steps = TOURS["labels"], told("labels")
    rounds, labels = [x["threads"] for x in steps], details("labels", "labels")[-1].columns
    mentions = listed(details("labels", "mentions")[-1])
    assert (labels["name"], labels["count"]) == (["person", "job", "colour"], [2, 3, 2])
    assert [x["alive"] for x in rounds[:4]] == [[0, 1, 2]] * 3 + [[3, 4, 5, 6, 7, 8, 9]]
    assert [x[0] for x in rounds[0]["begun"]] == [0, 1, 2] and len(rounds[2]["begun"]) == 7
    assert [piece for _, piece in rounds[1]["tokens"]] == ["2", "3", "2"]
    assert (
        rounds[6]["ended"][0] == [3, "stop_token"]
        and text_of(steps[6:7]) == " Cedric"
        and len(steps[6]["made"]) == 4
    )
    found = [(x["name"], x["text"], x["outcome"]) for x in mentions]
    assert found == [
        ("person", "Lena", "only"),
        ("person", "Cedric", "only"),
        ("job", "musician", "only"),
        ("job", "turquoise", "unlikelier"),
        ("job", "teacher", "only"),
        ("colour", "turquoise", "likelier"),
        ("colour", "black", "only"),
    ]
    says(tour[5], mentions[3]["logp"], mentions[5]["logp"], digits=2)
    assert rounds[8]["alive"] == [6, 8] and mentions[3]["thread"] == 6
    assert (len(steps), sum(len(x["tokens"]) for x in rounds)) == (9, 41) and tour[6].text.startswith(
        "9 passes for 41"
    )
    with opened("labels") as trace:
        text = trace.text([int(x) for x in trace.header.prompt])
    assert "Lena from Prague is a musician" in text and "Cedric is a doctor" in text and "turquoise. " in text


def test_what_is_said_of_a_line_in_between() -> None:
    tour, steps, rounds = TOURS["lines"], told("lines"), [x.details[0] for x in steps_of("lines")]
    proposed = [[x for x in listed(one) if x["outcome"] != "written"] for one in rounds]
    said = [[x["outcome"] for x in one] for one in proposed]
    assert said == [[], [], ["score"], ["less", "inserted"], ["score"] * 3]
    assert [[x["at"] for x in one] for one in proposed[2:]] == [[1], [1, 2], [1, 2, 3]]
    says(tour[1], rounds[2].values["first_logits"][1], digits=2)
    assert rows(steps, 2)[0][1] == 0 and "0 lines gain" in tour[1].text
    assert (
        rows(steps, 3)[0][1] == 2
        and "0.34 in all" in rows(steps, 3)[0][4]
        and "0.35 in all" in rows(steps, 3)[1][4]
    )
    (inserted,) = [x for x in proposed[3] if x["outcome"] == "inserted"]
    means = [one.values["means"] for one in rounds]
    gain = inserted["after"][0] - means[3][2]
    says(tour[3], gain, digits=2)
    assert len(means[3]) == 3 and rounds[3].name == "inserted_line" and gain > 0.1
    assert all(x["after"][0] - means[4][x["at"]] < 0.1 for x in proposed[4])
    assert [len(x["made"]) for x in steps] == [
        0,
        0,
        0,
        0,
        93,
    ] and '"It was a friend, a white," said Leo.\n' in text_of(steps)
    with opened("lines") as trace:
        assert (
            trace.header.lanes["infill"]["name"] == "lab-mdm"
            and trace.header.method["strategy"]["tau"] == 0.1
        )


def test_what_is_said_of_edits_all_over_a_draft() -> None:
    tour, (step,) = TOURS["edits"], told("edits")
    (passes,) = [x.details for x in steps_of("edits")]
    with opened("edits") as trace:
        drafts = [trace.text(x.columns["token"][1:]).split() for x in passes]
        asked = trace.text([int(x) for x in trace.header.prompt])
    assert drafts == [
        ["Hugo"] * 5,
        ["Clara", "Iris", "Ella", "Ella", "Ella"],
        ["Clara", "Iris", "Hugo", "Ada", "Ada"],
        ["Clara", "Iris", "Hugo", "Ada", "Ella"],
    ]
    tried = rows([step], 0)
    for stop, numbers in ((0, [0]), (1, [2]), (2, [5]), (3, [6]), (4, [9]), (5, [10])):
        says(tour[stop], *(tried[k][1] for k in numbers), digits=3)
    for stop, row in ((2, 5), (3, 6), (4, 9), (5, 10)):
        says(tour[stop], tried[row][2], digits=3)
    assert [tried[x.node - 1][4][:15] for x in tour[:6]] == [
        *(
            "pass 1, place 1",
            "pass 1, place 3",
            "pass 2, place 2",
            "pass 2, place 3",
            "pass 3, place 4",
            "pass 3, place 5",
        ),
    ]
    changed = sum(a != b for old, new in pairwise(drafts) for a, b in zip(old, new, strict=True))
    assert (
        changed == passes[0].values["changed"] == 9
        and passes[-1].values["why"] == "fixed"
        and asked.split()[1:6] != drafts[-1]
    )
    assert sorted(asked.split()[1:6]) == sorted(drafts[-1]) and sorted({*drafts[-1]}) == sorted(drafts[-1])


def test_what_is_said_of_the_likeliest_span() -> None:
    tour, (step,) = TOURS["extract"], told("extract")
    (record,) = steps_of("extract")
    listed, losses, tried = (
        record.detail("listed_spans"),
        record.detail("span_losses").numbers,
        rows([step], 0),
    )
    assert (listed.values["length"], listed.values["gap"]) == (53, None)
    assert plain("extract").text.removesuffix("<|end|>") == "Freya" and text_of([step]) == "Sam<|end|>"
    assert np.isfinite(losses).sum() == 396 and "396 spans" in tour[1].text
    for stop, row in ((1, 0), (2, 1), (3, 2), (4, 4), (5, 5)):
        says(tour[stop], tried[row][1], digits=2)
    assert [tried[k][0] for k in (0, 1, 2, 4, 5)] == ["Sam", " Freya", " Freya", "Sam likes soup", "am"]
    assert len(record.passes) == 8 and len(step["made"]) == 3
    with opened("extract") as trace:
        assert trace.text([int(x) for x in trace.header.prompt]).startswith(
            "<|user|>\nSam likes soup. Freya "
        )
