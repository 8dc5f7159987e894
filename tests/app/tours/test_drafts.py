"""Guided tours of drafts: what each tour says about its run is true."""

from __future__ import annotations

from math import exp

import pytest
from toured import NEAR, TOURS, notes, opened, origins, says, steps_of, text_of, told

from decodescope.engine import Method, load
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import Step


def given(step: Step, node: int) -> float:
    """The probability that a tree of scores gives to a node after its parent."""
    assert step.draft is not None
    scores, parent = notes(step)["scores"], step.draft.parents[node - 1]
    return exp(scores[node - 1] - (scores[parent] if parent >= 0 else 0))


def test_what_is_said_of_the_first_rejection() -> None:
    tour, steps = TOURS["first-rejection"], told("first-rejection")
    assert [(x.step, x.node) for x in tour[1:]] == [
        (0, 1),
        (0, 7),
        (0, 16),
        (2, 2),
        (2, 16),
        (13, 2),
        (25, 10),
    ]
    holds, refused, own = (steps[0]["nodes"][x.node] for x in tour[1:4])
    says(tour[1], *(holds[k] for k in (3, 4, 5, 8)))
    says(tour[2], *(refused[k] for k in (3, 4, 5, 8)))
    assert (
        holds[5] < holds[8] < 1
        and holds[4] == holds[7]
        and refused[5] > refused[8]
        and refused[4] == refused[7]
    )
    branch = [steps[0]["nodes"][x] for x in (4, 7, 10)]
    assert (
        "".join(x[1] for x in branch) == " Milo"
        and [x[0] for x in branch] == [1, 4, 7]
        and branch[0][6] == "accept"
    )
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
    assert (sum(len(x["made"]) for x in steps), len(steps)) == (96, 26) and tour[7].text.startswith(
        "96 tokens, 3.69 from"
    )
    says(tour[7], 96 / 26, digits=2)
    with opened("first-rejection") as trace:
        assert trace.header.lossless and not trace.header.chat


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
    assert [notes(kept[3])["ranks"][x - 1] for x in (s, t)] == [0, 1] and origins(steps[3]) == [
        "accept"
    ] * 5 + ["bonus"]
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
        assert (
            trace.header.lossless
            and method["drafter"]["min_probability"] == 0.6
            and "Kurt" in trace.text(prompt)
        )
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
    assert "".join(x[1] for x in steps[9]["nodes"][2:6]) == " Rufus" and steps[9]["made"][-1][1:] == [
        "<|end|>",
        "resample",
    ]
    assert [x.attn for step in kept for x in step.passes if x.phase == "verify"] == [[2, 3, 4, 5, 6, 7]] * 10
    tokens = [token for step in steps for token, *_ in step["made"]]
    lane = Lane("target", load("lab", "float32", "cpu").decoder, KeepAll())
    logits = lane.forward(Feed.causal_chain([*prompt, *tokens], 0))[0, len(prompt) - 1 : -1]
    behind = (logits.amax(-1) - logits[range(53), tokens]).max()
    assert len(tokens) == 53 and behind < NEAR, (
        "the text of plain decoding, but for a near tie, which falls by machine"
    )


def test_what_is_said_of_the_guesses_that_ride_along() -> None:
    steps, kept = told("lookahead"), steps_of("lookahead")
    assert [x.draft.passengers for x in kept[:1]] == [list(range(6))] and kept[0].drafted == 0
    assert (
        "harvested" not in notes(kept[1])
        and len(notes(kept[2])["harvested"]) == 5
        and len(steps[2]["made"]) == 1
    )
    words = [[x[1] for x in step["nodes"]] for step in steps]
    assert (
        notes(kept[3])["tried"] == 1
        and words[3][1:4] == [' "', "B", "er"]
        and origins(steps[3]) == ["resample"]
    )
    assert text_of(steps[4:7]) == "507", "a number was due"
    assert (
        notes(kept[9])["tried"] == 2
        and kept[9].path == [0, 1, 2]
        and origins(steps[9]) == ["accept"] * 3 + ["bonus"]
    )
    parents = list(kept[14].draft.parents)
    assert notes(kept[14])["tried"] == 4 and kept[14].path == [6, 7, 8] and len(steps[14]["made"]) == 4
    assert [k for k in range(11) if parents[k] == -1] == [0, 3, 6] and parents[9] == 6
    assert (words[14][8], words[14][10]) == ("T", "B")
    assert text_of(steps[:17]).endswith('Toronto",')
    assert (notes(kept[19])["pool"], notes(kept[19])["tried"], kept[19].drafted) == (53, 5, 14)
    assert (
        origins(steps[19]) == ["resample"]
        and steps[19]["made"][0][1] == ' ["'
        and ' ["' not in words[19][1:15]
    )
    assert (sum(len(x["made"]) for x in steps), f"{40 / len(steps):.2f}") == (40, "1.67")
    with opened("lookahead") as trace, opened("recycling") as other:
        assert trace.header.prompt.tolist() == other.header.prompt.tolist() and trace.header.lossless
        assert trace.header.method["drafter"]["guesses"] == 5 and trace.emitted_ids == other.emitted_ids, (
            "the text is the plain one"
        )


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
    assert (
        origins(steps[23]) == ["accept"] * 8 + ["bonus"] and len(steps) == 24 and f"{64 / 24:.2f}" == "2.67"
    )
    with opened("sjd") as trace:
        assert trace.header.lossless and len(text_of(steps)) == 64


def test_what_is_said_of_the_draft_that_is_as_long_as_it_dares() -> None:
    tour, steps, kept = TOURS["adaptive"], told("adaptive"), steps_of("adaptive")
    said = [notes(x)["schedule"] for x in kept]
    says(tour[0], said[0]["sure"][0], said[0]["threshold"], digits=2)
    says(tour[1], said[1]["sure"][1], digits=2)
    assert [(steps[k]["drafted"], said[k]["stop"]) for k in (0, 1)] == [(1, "threshold"), (2, "threshold")]
    assert (
        origins(steps[1]) == ["accept"] * 2 + ["bonus"]
        and said[1]["sure"][1] < said[1]["threshold"] < said[1]["sure"][0]
    )
    says(tour[2], said[2]["sure"][0], digits=2)
    assert steps[2]["drafted"] == 3 and steps[2]["nodes"][-1][1] == "." and origins(steps[2]) == ["resample"]
    low = [
        x
        for k in range(5)
        for x in said[k]["sure"][: origins(steps[k]).count("accept")]
        if x < said[k]["threshold"]
    ]
    says(tour[3], said[5]["threshold"], digits=2)
    assert len(low) == 3 and said[5]["threshold"] == min(low) < said[4]["threshold"]
    assert (
        steps[5]["drafted"]
        == 20
        == Method.from_names({"schedule": "confidence"}, {}).schedule.max_draft_tokens
    )
    assert origins(steps[5]) == ["accept"] * 13 + ["resample"] and said[5]["stop"] == "length"
    assert [x[1] for x in steps[5]["nodes"][14:17]] == ["el", "la", ","] and text_of(steps[5:7]).endswith(
        " Bramble, the"
    )
    says(tour[5], said[5]["sure"][13], said[6]["threshold"], said[6]["sure"][1], digits=2)
    assert said[0]["threshold"] < said[6]["sure"][1] < said[6]["threshold"], (
        "at the first bar it would have gone on"
    )
    assert steps[6]["drafted"] == 2 and origins(steps[6]) == ["accept"] * 2 + ["bonus"]
    says(tour[6], said[10]["threshold"], said[10]["sure"][-1], digits=2)
    assert steps[10]["drafted"] == 9 and origins(steps[10]) == ["accept"] * 7 + ["resample"]
    says(tour[7], 40 / len(steps), digits=2)
    lengths = [x["drafted"] for x in steps]
    assert (sum(len(x["made"]) for x in steps), len(steps), min(lengths), max(lengths)) == (40, 12, 1, 20)


def test_what_is_said_of_two_drafts() -> None:
    tour, steps, kept = TOURS["two-drafts"], told("two-drafts"), steps_of("two-drafts")
    assert notes(kept[0])["drawn_by"] == [1] * 6 + [2] * 6
    agreed = steps[5]["nodes"][tour[1].node]
    assert [x[2] for x in steps[5]["nodes"][1:]].count(agreed[2]) == 4 and notes(kept[5])["models"][0] == [
        1,
        2,
    ]
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
    failed, saved, far, fifth = (
        steps[4]["nodes"][1],
        steps[4]["nodes"][5],
        steps[11]["nodes"][2],
        steps[11]["nodes"][5],
    )
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
    assert [notes[k]["ticks"] for k in (2, 5, 13)] == [2, 2, 8] and [notes[k]["work"] for k in (13, 19)] == [
        20,
        8,
    ]
    assert [[bar[4] for bar in notes[k]["flight"][1:]] for k in (5, 22)] == [["dropped"] * 3] * 2
    assert [len(steps[k].path) for k in (12, 13, 14, 21)] == [0, 0, 0, 1], (
        "guess after guess, and the T was right"
    )
    text, whole = text_of(told("pipeline")), text_of(told("recycling"))
    assert flown == "Tokyo" and text_of(told("pipeline")[21:25]) == "Toronto" and whole.startswith(text)
    assert (notes[-1]["clock"], notes[-1]["plain"]) == (112, 256)


def test_what_is_said_of_the_greedy_draft() -> None:
    tour, steps = TOURS["cold-draft"], told("cold-draft")
    at = [steps[x.step]["nodes"][x.node] for x in tour]
    drafted = [x for step in steps for x in step["nodes"][1:-1]]
    assert all(x[3] == 1 for x in drafted), "each guess is the draft's only choice"
    for k, spread in ((0, (4, 5)), (1, (4, 5)), (2, (4,)), (3, (4, 5)), (4, (4, 5)), (5, (4,))):
        says(tour[k], *(at[k][x] for x in spread))
    assert 9 < 1 / at[1][4] < 9.5 and max(steps[0]["tops"][1][3], key=lambda x: x[2])[0] == at[1][2]
    low, high = steps[0]["verdict"]["extra"][1:]
    assert high - low == pytest.approx(at[2][4], abs=1e-4), "its share of the rest"
    assert origins(steps[3]) == ["accept"] * 4 + ["bonus"] and at[4][1] == "\n\n" and at[4][4] < at[4][5]
    assert text_of(steps).startswith(" named Aaron") and text_of(steps[7:10]) == " Aaron had"
    assert steps[8]["nodes"][0][1] + at[5][1] + steps[8]["nodes"][2][1] == " Anton"
    sure = steps[14]["nodes"][1:5]
    assert "".join(x[1] for x in sure) == " most precious" and min(x[4] for x in sure) > 0.999
    assert (sum(len(x["made"]) for x in steps), len(steps)) == (40, 18)
    says(tour[7], 40 / 18, digits=2)
    with opened("cold-draft") as trace:
        assert trace.header.lossless


def test_what_is_said_of_the_match_that_sets_the_length() -> None:
    tour, steps, kept = TOURS["suffix"], told("suffix"), steps_of("suffix")
    with opened("suffix") as trace:
        prompt, depth = trace.header.prompt.tolist(), trace.header.method["drafter"]["max_depth"]
    assert prompt[-1] == steps[0]["nodes"][0][2] and steps[0]["nodes"][0][1] == "\n"
    assert prompt.count(prompt[-1]) == 4 and notes(kept[0])["probabilities"] == [1 / 4]
    assert [notes(x)["match"] for x in kept] == [x["drafted"] for x in steps] == [1, 3, 7, 12, 12]
    assert notes(kept[1])["probabilities"] == [0.5] * 3 and notes(kept[2])["score"] == 7 * 0.5 == 3.5
    assert depth == 12 + 12 and len(steps[2]["made"]) == 8 and len(steps[3]["made"]) == 13
    assert sum(x["drafted"] for x in steps) == sum(len(x.path) for x in kept) == 35
    assert sum(len(x["made"]) for x in steps) == 40 and text_of(steps) == text_of(told("recycling"))
    assert all(pass_.lane == "target" for x in kept for pass_ in x.passes)
    says(tour[5], 40 / len(steps), digits=2)


def test_what_is_said_of_the_copy_and_the_head() -> None:
    tour, steps, kept = TOURS["sam"], told("sam"), steps_of("sam")
    said = [notes(x) for x in kept]
    with opened("sam") as trace:
        prompt, method = trace.header.prompt.tolist(), trace.header.method["drafter"]
    assert [x["by"] for x in said] == ["eagle2", *["text"] * 4] and method["min_match"] == 5
    assert [x["match"] for x in said] == [1, 7, 18, 29, 40] and method["max_draft_tokens"] == 10
    assert [x["drafted"] for x in steps] == [12, 10, 10, 10, 10]
    asked, other = steps[0]["nodes"][2], steps[0]["nodes"][tour[1].node]
    assert (asked[0], asked[1], asked[6], other[0], other[1]) == (1, "id", "accept", 1, "name")
    assert [origins(x) for x in steps[:3]] == [["accept"] * n + ["bonus"] for n in (5, 10, 10)]
    assert [prompt[k] for k in said[1]["copied"]] == [x[2] for x in steps[1]["nodes"][1:-1]]
    text = [*prompt, *(token for step in steps[:4] for token, *_ in step["made"])]
    assert text[-40:] == text[said[4]["copied"][0] - 40 : said[4]["copied"][0]], "all that was written"
    assert steps[4]["nodes"][tour[5].node][1] == "\n" and text_of(steps[4:]) == "<|end|>"
    assert sum(len(x["made"]) for x in steps) == 40 and text_of(steps) == text_of(told("recycling"))
    says(tour[6], 40 / len(steps), digits=2)


def test_what_is_said_of_guesses_that_are_worth_a_row() -> None:
    tour, steps = TOURS["worth-a-row"], steps_of("worth-a-row")
    said = {k: x.draft.notes["schedule"] for k, x in enumerate(steps) if x.draft}
    assert 0 not in said and said[1]["batch"] == 32
    says(tour[1], said[1]["survival"][0], said[1]["refused"])
    says(tour[1], said[1]["us"][1] - said[1]["us"][0], digits=2)
    first, second = said[4]["us"][:2]
    says(tour[2], said[4]["survival"][0])
    says(tour[2], second - first, first, (second - first) / first, digits=2)
    says(tour[3], said[6]["survival"][-1])
    says(tour[4], said[8]["survival"][0])
    says(tour[5], said[12]["refused"])
    assert said[12]["refused"] > (said[12]["us"][1] - said[12]["us"][0]) / said[12]["us"][0]
    assert (len(steps[6].emitted), sum(len(x.emitted) for x in steps), len(steps)) == (9, 40, 15)
    assert {x.drafted for x in steps} >= {0, 8} and max(x.drafted for x in steps) == 8


def test_what_is_said_of_masks_behind_every_guess() -> None:
    tour, steps, kept = TOURS["space"], told("space"), steps_of("space")
    assert steps[0]["drafted"] == 0 and origins(steps[0]) == ["target"]
    (check,) = kept[1].passes
    assert check.tokens == 25 and notes(kept[1])["slots"] == [4] * 5
    says(tour[2], *notes(kept[1])["sure"][:2], digits=3)
    assert [x[1] for x in steps[1]["nodes"][1:3]] == ["id", "id"]
    assert steps[4]["nodes"][1][1] == "7" and origins(steps[4]) == ["accept", "resample"]
    says(tour[4], *notes(kept[10])["sure"][:2], digits=3)
    assert [x[1] for x in steps[10]["nodes"][1:3]] == ["city", '":']
    assert origins(steps[10]) == ["accept", "accept", "resample"]
    says(tour[5], notes(kept[11])["sure"][0], digits=3)
    assert (steps[11]["nodes"][1][1], steps[11]["made"][0][1]) == ("s", "T")
    assert [x[1] for x in steps[19]["nodes"][1:]] == [" true", "}", "<|end|>", "<|end|>"]
    assert origins(steps[19]) == ["accept"] * 3 and '"Toronto"' in text_of(steps)
    assert (sum(len(x["made"]) for x in steps), len(steps)) == (40, 20)
    assert all([x.tokens for x in step.passes][1:] == [] for step in kept[1:]), "one pass a step"
    says(tour[7], 40 / 20, digits=2)


def test_what_is_said_of_masks_and_of_layers_left_out() -> None:
    tour, steps, kept = TOURS["s3d"], told("s3d"), steps_of("s3d")
    assert all(notes(x)["attn"] == notes(x)["ffn"] == [3, 4] for x in kept)
    draft = next(x for x in kept[1].passes if x.phase == "draft")
    assert draft.tokens == 4 and draft.attn == draft.ffn == [0, 1, 2, 5, 6, 7]
    sure = [notes(x)["sure"] for x in kept]
    quoted = {0: sure[0][:1], 1: sure[0][1:3], 2: sure[1][2:3], 3: sure[2][:3], 4: sure[4][:2]}
    for stop, numbers in (quoted | {5: sure[8][:2], 6: sure[10][:3]}).items():
        says(tour[stop], *numbers, digits=3)
    guesses = {i: [x[1] for x in steps[i]["nodes"][1:5]] for i in (0, 1, 2, 4, 8, 10)}
    assert guesses[0][1:3] == ["id", "id"] and guesses[1][:3] == [" ", "5", ","]
    assert guesses[2][:3] == ["7", ",", ' "'] and guesses[10][:3] == [' "', "tags", '":']
    assert guesses[4][:2] == ["er", '",'] and guesses[8][:2] == ["T", "ok"]
    assert [steps[i]["made"][-1][1] for i in (1, 2, 4, 8)] == ["0", "name", "th", "or"]
    assert (sum(len(x["made"]) for x in steps), len(steps)) == (40, 15)
    assert all(x["nodes"][1][6] == "accept" for x in steps) and text_of(steps) == text_of(told("space"))
    says(tour[7], 40 / 15, digits=2)
