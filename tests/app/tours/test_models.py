"""Guided tours of two models, and of a model made from another: what each tour says about its run is true."""

from __future__ import annotations

from toured import TOURS, likely, opened, says, steps_of, text_of, told

from decodescope.engine import Method, load, run


def test_what_is_said_of_two_models_in_turns() -> None:
    tour, steps, kept = TOURS["two-lanes"], told("two-lanes"), steps_of("two-lanes")
    blocks = [x.detail("judged_block") for x in kept]
    written = [{name: x.columns[name][: x.values["written"]] for name in x.columns} for x in blocks]
    assert blocks[1].values["caught"] == 51
    says(tour[0], blocks[1].values["gave_up"] or written[1]["sure"][-1], digits=3)
    says(tour[1], blocks[2].values["gave_up"] or written[2]["sure"][-1], digits=3)
    assert steps[2]["made"][0][1:] == ["7", "target"] and text_of(steps[:3]).endswith(" 507")
    assert [len(written[i]["token"]) for i in (1, 3, 6, 7, 9)] == [4, 5, 8, 4, 5]
    assert written[3]["choice"] == written[3]["token"]
    assert steps[3]["made"][5][1:] == ["B", "target"]
    assert (blocks[6].values["kept"], len(kept[6].emitted)) == (8, 9)
    assert sum(x.lane == "target" for x in kept[6].passes) == 1
    says(tour[4], written[7]["sure"][2], digits=3)
    says(tour[4], -written[7]["loss"][2], digits=2)
    assert blocks[7].values["kept"] == 2 and steps[7]["tally"]["rows"][2][2] == -2
    assert (steps[7]["tally"]["rows"][2][0], steps[7]["made"][2][1]) == ('",', '"],')
    says(tour[5], -written[9]["loss"][2], digits=2)
    assert [x[0] for x in steps[9]["tally"]["rows"]] == ["active", '":', " false", "}", "<|end|>"]
    assert blocks[9].values["kept"] == 2 and blocks[9].values["gave_up"] is None
    assert min(written[9]["sure"]) > 0.5 and min(written[9]["sure"][3:]) > 0.8
    count, large = sum(len(x.emitted) for x in kept), sum(y.lane == "target" for x in kept for y in x.passes)
    assert f"{count} tokens, {count / large:.2f} from each pass" in tour[6].text
    assert text_of(steps) == text_of(told("recycling"))
    with opened("two-lanes") as trace:
        assert not trace.header.lossless


def test_what_is_said_of_turns_by_entropy() -> None:
    tour, steps, kept = TOURS["entropy-turns"], told("entropy-turns"), steps_of("entropy-turns")
    details = [x.detail("model_turn") for x in kept]
    turns = [x.row(0) | x.values for x in details]
    assert len(turns) == 48 and {x["bar"] for x in turns} == {2.0}
    for stop, score in ((tour[0], True), (tour[1], False), (tour[3], True), (tour[4], True), (tour[5], True)):
        one = turns[stop.step]
        says(stop, *[one["bits"]] * score, one["mean"], digits=2)
    following = [turns[i]["outcome"].split()[0] for i in (1, 6, 12, 13, 30)]
    assert following == ["large", "small", "small", "small", "large"]
    assert (turns[6]["turn"], turns[7]["caught"], turns[31]["caught"]) == (7, 19, 24)
    assert steps[7]["made"][0][1] == "a" and max(turns[i]["bits"] for i in (9, 10, 11)) < 0.3
    assert text_of(steps[5:8]) == text_of(steps[12:15]) == " Maria"
    assert text_of(steps).startswith(" named Maria. Maria had a friend, Maria,")
    assert text_of(steps[29:31]) == "Max" and text_of(steps[29:]).startswith("Max had a pink brush")
    assert all(kept[i].origins == ["draft"] for i in (12, 13, 30))
    assert round(100 * sum(x["lane"] == "large" for x in turns) / 48) == 31
    changes = [i for i in range(1, 48) if turns[i]["lane"] != turns[i - 1]["lane"]]
    assert changes == [7, 31, 39] and all(turns[i]["caught"] for i in changes)


def test_what_is_said_of_three_answers() -> None:
    tour, steps, kept = TOURS["no-agreement"], told("no-agreement"), steps_of("no-agreement")
    record = kept[0].detail("answer_votes")
    assert not record.values["kept"] and record.values["asked"] == len(record) == 3
    answers = [row[0] for row in steps[0]["tally"]["rows"]]
    assert all(x.startswith("77 ") and "*" not in x for x in answers) and len({*answers}) == 3
    says(tour[1], *record.columns["votes"], steps[0]["scale"]["bar"], digits=3)
    assert (
        f"{record.values['read']} rows" in tour[2].text
        and f"{kept[0].passes[-1].tokens} tokens of the prompt" in tour[2].text
    )
    assert text_of(steps) == "7 * 6 = 42<|end|>" and steps[3]["made"][0][1] == "6"
    assert all(steps[k]["nodes"][1][4] > 0.9999 for k in (0, 3)) and steps[1]["made"][0][1] == " *"
    assert all({x.lane for x in y.passes} == {"target"} for y in kept[1:])
    says(tour[4], steps[7]["nodes"][1][4], steps[7]["nodes"][1][5], digits=3)
    assert steps[7]["made"][0][1] == "2"


def read_along(name: str) -> list[tuple[float, str | None]]:
    """For each token the KL divergence from the original model, and the original model's token if it differs."""
    with opened(name) as trace:
        beside = [next(x.reference for x in step.cache if x.lane == "target") for step in trace.steps]
        assert trace.header.reference_kind == "model" and all(
            x is not None and x.said is not None for x in beside
        )
        rows = [(float(x.drift[0]), int(x.said[0])) for x in beside if x is not None and x.said is not None]
        return [
            (kl, None if [x] == step.emitted else trace.text([x]))
            for (kl, x), step in zip(rows, trace.steps, strict=True)
        ]


def test_what_is_said_of_four_bits() -> None:
    tour, steps, kept, beside = (
        TOURS["four-bits"],
        told("four-bits"),
        steps_of("four-bits"),
        read_along("four-bits"),
    )
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
    whole = run(model, Method.from_names({}, {}), prompt, max_new_tokens=36).text
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
        assert (
            model["weights"] == "cut_layers skip=a6,f4"
            and model["widths"][4] == 0
            and model["groups"][6] == []
        )
        assert "Oliver" in trace.text(trace.header.prompt.tolist())
    for stop, ranks in enumerate([(0, 1), (0,), (0, 1), (0, 4), (0,), (0, 1)]):
        says(tour[stop], *(likely(kept[tour[stop].step])[i] for i in ranks))
    assert [(i, other) for i, (_, other) in enumerate(beside) if other] == [(0, " b"), (5, "H"), (9, " co")]
    assert len(steps) == 39 and beside[9][0] == max(kl for kl, _ in beside) > 0.3
    assert [steps[x.step]["made"][0][1] for x in tour] == [" cast", ".", "D", " time", "li", " But", "ome"]
    asked = (
        ' castle.\n\n"Do you have time today, Oliver?" asked Bertha.\n\n"Yes, of course. But I must be home'
    )
    assert text_of(steps) == asked


def test_what_is_said_of_fewer_heads() -> None:
    tour, steps, kept, beside = (
        TOURS["fewer-heads"],
        told("fewer-heads"),
        steps_of("fewer-heads"),
        read_along("fewer-heads"),
    )
    with opened("fewer-heads") as trace:
        groups, (made,) = trace.header.model["groups"], (trace.header.reports or {})["target"]
        assert sum(map(sum, groups)) == 36 and [len(x) for x in groups].count(1) == 1
        order = [x for row in made.findings["order"].values for x in row if x]
        assert (
            sorted(order) == [*range(1, 13)]
            and trace.header.model["weights"] == made.weights == "head_sensitivity"
        )
        assert "There Kurt met Julia, who" in trace.text(trace.header.prompt.tolist())
    for stop, ranks in ((0, (0,)), (1, (0,)), (2, (0,)), (3, (0, 1)), (4, (0, 3)), (5, (0, 1)), (6, (0, 1))):
        says(tour[stop], *(likely(kept[tour[stop].step])[i] for i in ranks))
    assert [(i, x) for i, (_, x) in enumerate(beside) if x] == [(22, " R"), (28, " R"), (36, "."), (37, " R")]
    assert len(steps) == 40
    assert beside[22][0] == max(kl for kl, _ in beside) > 5 and beside[17][0] > 10 * max(
        kl for kl, _ in beside[:17]
    )
    assert (
        text_of(steps)
        == 'Rufus went to the beach with a pink wheel. "Yes," said Kurt. There Kurt met Julia, "Yes'
    )
