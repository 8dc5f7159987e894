"""Guided tours of steps that try several things and keep some: what each says of its run is so."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from toured import TOURS, opened, says, steps_of, text_of, told

from decodescope.engine import Method, load, run


def rows(steps: list[dict[str, Any]], step: int) -> list[list[Any]]:
    """What the card of a step lists: text, number, what it is held against, whether it stands, and a word on that."""
    return list(steps[step]["tally"]["rows"])


def plain(name: str, model: str = "lab") -> Any:
    """What greedy decoding writes behind the prompt of an example."""
    with opened(name) as trace:
        prompt = [int(x) for x in trace.header.prompt]
    return run(load(model, "float32", "cpu"), Method(), prompt, max_new_tokens=64)


def test_what_is_said_of_tokens_taken_unread() -> None:
    tour, steps = TOURS["units"], told("units")
    units = [x.unit for x in steps_of("units")]
    with opened("units") as trace:
        words = [[trace.text([token]) for token in x.tokens] for x in units]
        knobs = trace.header.method["strategy"]
    assert (knobs["rows"], knobs["beta"]) == (4, 0.6) and [x.step for x in tour] == [0, 0, 0, 2, 7, 10, 21]
    says(tour[1], units[0].p[1], digits=3)
    says(tour[2], units[0].p[2], digits=3)
    assert words[0][1] == words[0][2] == "id" and (units[0].taken, units[0].cut) == (2, "bar")
    says(tour[3], units[2].p[2], digits=3)
    assert words[2][1] == words[2][2] == "8" and units[2].cut == "repeat" and units[2].p[2] > 0.6
    says(tour[4], units[7].p[1], digits=3)
    assert (words[7][1], units[7].taken, words[8][:2]) == ("us", 1, ["f", "us"])
    says(tour[5], *units[10].p[1:3], digits=3)
    assert words[10][1:3] == ["city", '":'] and units[10].taken == 3
    count = sum(x.taken for x in units)
    says(tour[6], count / len(steps), digits=2)
    assert count == 39 and text_of(steps) == plain("units").text


def test_what_is_said_of_tokens_drawn_as_a_pair() -> None:
    tour, steps, joint = TOURS["joint"], told("joint"), [x.joint for x in steps_of("joint")]
    with opened("joint") as trace:
        texts = [[trace.text(x) for x in one.texts] for one in joint]
        assert trace.header.method["strategy"]["threshold"] == 0.25
    says(tour[0], joint[0].best[0], digits=3)
    assert joint[0].best[0] < 0.25 and text_of(steps[:1]) == " A"
    says(tour[1], joint[1].alone[0], joint[1].joint[0], digits=3)
    assert texts[1] == ["xel"] and texts[2] == [". A", ".\n\n"]
    says(tour[2], *joint[2].joint, digits=3)
    says(tour[3], joint[2].u, joint[2].joint[0] / sum(joint[2].joint), 1.0, digits=3)
    assert joint[2].chosen == 1 and text_of(steps[2:3]) == ".\n\n"
    says(tour[4], joint[3].best[1], digits=3)
    assert joint[3].best[1] < 0.25 and len(steps[3]["made"]) == 1
    says(tour[5], joint[15].alone[0], joint[15].joint[0], digits=3)
    assert texts[15] == [" I need"] and texts[19] == [" Amin", " said A"]
    says(tour[6], *joint[19].joint, joint[19].u, joint[19].joint[0] / sum(joint[19].joint), digits=3)
    assert joint[19].chosen == 1 and joint[19].u < joint[19].joint[0] / sum(joint[19].joint) + 0.01
    count = sum(len(x["made"]) for x in steps)
    says(tour[7], count / len(steps), digits=2)
    assert count == 40 and max(len(x["made"]) for x in steps) == 2


def test_what_is_said_of_labels_side_by_side() -> None:
    tour, steps = TOURS["labels"], told("labels")
    rounds, labels = [x["threads"] for x in steps], steps_of("labels")[-1].labels
    assert labels is not None and (labels.names, labels.counts) == (["person", "job", "colour"], [2, 3, 2])
    assert [x["alive"] for x in rounds[:4]] == [[0, 1, 2]] * 3 + [[3, 4, 5, 6, 7, 8, 9]]
    assert [x[0] for x in rounds[0]["begun"]] == [0, 1, 2] and len(rounds[2]["begun"]) == 7
    assert [piece for _, piece in rounds[1]["tokens"]] == ["2", "3", "2"]
    assert (
        rounds[6]["ended"][0] == [3, "stop_token"]
        and text_of(steps[6:7]) == " Cedric"
        and len(steps[6]["made"]) == 4
    )
    found = [(labels.names[x.label], x.text, x.dropped) for x in labels.mentions]
    assert found == [
        ("person", "Lena", ""),
        ("person", "Cedric", ""),
        ("job", "musician", ""),
        ("job", "turquoise", "duplicate"),
        ("job", "teacher", ""),
        ("colour", "turquoise", ""),
        ("colour", "black", ""),
    ]
    says(tour[5], labels.mentions[3].logp, labels.mentions[5].logp, digits=2)
    assert rounds[8]["alive"] == [6, 8] and labels.mentions[3].thread == 6
    assert (len(steps), sum(len(x["tokens"]) for x in rounds)) == (9, 41) and tour[6].text.startswith(
        "9 passes for 41"
    )
    with opened("labels") as trace:
        text = trace.text([int(x) for x in trace.header.prompt])
    assert "Lena from Prague is a musician" in text and "Cedric is a doctor" in text and "turquoise. " in text


def test_what_is_said_of_a_line_in_between() -> None:
    tour, steps, rounds = TOURS["lines"], told("lines"), [x.lines for x in steps_of("lines")]
    said = [[x.outcome for x in one.infills] for one in rounds]
    assert said == [[], [], ["score"], ["less", "inserted"], ["score"] * 3]
    assert [[x.at for x in one.infills] for one in rounds[2:]] == [[1], [1, 2], [1, 2, 3]]
    says(tour[1], rounds[2].first[1], digits=2)
    assert rows(steps, 2)[0][1] == 0 and "0 lines gain" in tour[1].text
    assert (
        rows(steps, 3)[0][1] == 2
        and "0.34 in all" in rows(steps, 3)[0][4]
        and "0.35 in all" in rows(steps, 3)[1][4]
    )
    (inserted,) = [x for x in rounds[3].infills if x.outcome == "inserted"]
    gain = inserted.after[0] - rounds[3].mean[2]
    says(tour[3], gain, digits=2)
    assert len(rounds[3].mean) == 3 and not rounds[3].written and gain > 0.1
    assert all(x.after[0] - rounds[4].mean[x.at] < 0.1 for x in rounds[4].infills)
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
    (one,) = [x.edits for x in steps_of("edits")]
    with opened("edits") as trace:
        drafts = [trace.text(x.tokens).split() for x in one.passes]
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
    assert changed == 9 and one.why == "fixed" and asked.split()[1:6] != drafts[-1]
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
