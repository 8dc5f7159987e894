"""bench speculation: what it counts, what it times, which methods take part, and the goals."""

from __future__ import annotations

import itertools
import json
import random
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toys
from bytewise import LAST, RULES, WHOLE, letters, question, scripted

from decodescope.engine import Method
from decodescope.engine.bench.clock.contest import engine_contestant
from decodescope.engine.bench.clock.head_clock import HeadClock, attach_clock
from decodescope.engine.bench.figures.labbench import BASELINE
from decodescope.engine.bench.figures.speculation import SpecResult, SpecRow, compare_rates, goals
from decodescope.engine.bench.labbench import Bench
from decodescope.engine.bench.questions.bootstrap import bootstrap_interval
from decodescope.engine.bench.questions.questions import LabBenchError, spread_over_kinds
from decodescope.engine.bench.speculation import (
    DRAWING,
    VARIANTS,
    SpeculationBench,
    default_methods,
    drawn_name,
    measure_speculation,
    template_lengths,
)
from decodescope.engine.core.component import registry

DRAFTED = {"drafted": toys.method(drafter=("draft_model", {"max_draft_tokens": 4}))}
ASKED = [
    question(1, "go A", kind="code"),
    question(2, "ab A", kind="copy"),
    question(3, "and A", kind="code"),
]


def made(
    methods: dict[str, Method] | None = None,
    wrong: dict[str, str] | None = None,
    template: str = LAST,
    **more: Any,
) -> SpeculationBench:
    """Scripted models that write BCABCA...; the draft model is `wrong` after some letters."""
    usual = dict(new_tokens=12, repeats=2)
    drafts = {"draft": scripted({**RULES, **(wrong or {})}, template)}
    return SpeculationBench(
        scripted(RULES, template), drafts, DRAFTED if methods is None else methods, **{**usual, **more}
    )


# ---- one question


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("wrong", "passes", "offered", "reached"),
    [({}, 3, [3, 2, 2, 2], [3, 2, 2, 2]), ({"C": "x"}, 4, [4, 4, 3, 3], [4, 4, 0, 0])],
    ids=["always right", "right twice"],
)
def test_what_is_counted_is_that_of_the_script(
    wrong: dict[str, str], passes: int, offered: list[int], reached: list[int]
) -> None:
    found = measure_speculation(made(wrong=wrong), ASKED[:1]).record()
    plain, drafted = found["methods"][BASELINE], found["methods"]["drafted"]
    assert plain["tau"] == 1 and plain["ratio"]["median"] == 1 and plain["offered_by_position"] == []
    assert drafted["tau"] == 12 / passes and drafted["target_passes"] == passes
    assert (drafted["offered_by_position"], drafted["accepted_by_position"]) == (offered, reached)
    assert drafted["identity"] == {"equal": 1, "tied": 0, "parted": 0}
    assert json.dumps(found, allow_nan=False), "no figure is infinite"


@pytest.mark.nightly
def test_every_round_is_timed_and_the_parts_of_a_step_fit_into_it() -> None:
    result = measure_speculation(made(repeats=3), ASKED)
    assert len(result.rows) == 6 and result.complete
    for row in result.rows:
        assert len(row.seconds) == len(row.decode_s) == 3
        assert all(0 < steps < whole for steps, whole in zip(row.decode_s, row.seconds, strict=True))
        assert 0 < row.pass_us < row.step_us and 0 < row.own_us < row.step_us and row.head_us == 0
        assert 0 <= row.draft_s < sum(row.decode_s)
    drafted = [row for row in result.rows if row.method == "drafted"]
    assert all(row.draft_s > 0 for row in drafted)


def test_all_turns_are_counted_and_timed_each_behind_ones_own_answers() -> None:
    """The second prompt holds the first answer, so each method reads it with its own first answer."""
    one, two = question(1, ("go A",), kind="writing"), question(2, ("go A", "on A"), kind="writing")
    result = measure_speculation(made(template=WHOLE, new_tokens=6, repeats=3), [one, two])
    assert not result.skipped and result.complete
    single = {row.method: row for row in result.rows if row.question == 1}
    for row in [row for row in result.rows if row.question == 2]:
        assert row.tokens == 12 and single[row.method].tokens == 6 and row.identity == "equal"
        assert row.prompt_tokens == len("go A") + len("go A" + "BCABCA" + "on A")
        assert row.steps > single[row.method].steps and row.passes > single[row.method].passes
        assert len(row.seconds) == len(row.decode_s) == 3 and row.spent["tokens"] == 12
        assert all(a < b for a, b in zip(row.decode_s, row.seconds, strict=True))
    found = result.record()
    assert found["settings"]["questions"]["spec_bench"] is False and found["settings"]["turns"] == "all"
    assert list(found["spec_bench"][BASELINE]["times"]) == ["writing"]


def test_a_question_whose_later_turn_does_not_fit_is_skipped_with_its_reason() -> None:
    result = measure_speculation(made(template=WHOLE), [question(9, ("go A", "A" * 90)), ASKED[0]])
    assert [x["question"] for x in result.skipped] == [9] and "tokens" in result.skipped[0]["why"]
    assert {row.question for row in result.rows} == {1}


def test_a_ratio_is_of_tokens_a_second_and_its_interval_of_the_medians_over_questions() -> None:
    def rows(method: str, *seconds: list[float], tokens: int = 10) -> list[SpecRow]:
        return [SpecRow(i, "qa", method, tokens=tokens, seconds=x, decode_s=x) for i, x in enumerate(seconds)]

    plain = rows(BASELINE, [1.0, 9.0, 1.0], [2.0, 2.0, 2.0], [4.0, 4.0, 4.0])
    mine = rows("x", [0.5, 0.5, 9.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    told = compare_rates(mine, plain, lambda row: row.rate)
    assert told is not None and told["median"] == 2 and (told["lowest"], told["highest"]) == (2, 4)
    assert told["interval"] == [2, 4] and told["questions"] == 3
    shorter = compare_rates(rows("x", [0.5, 0.5, 0.5], tokens=5), plain, lambda row: row.rate)
    assert shorter is not None and shorter["median"] == 1, "half the text in half the time is no gain"
    faulty = [replace(x, fault="broken") for x in plain]
    assert (
        compare_rates(mine, faulty, lambda row: row.rate) is None
        and compare_rates([], plain, lambda row: row.rate) is None
    )


def test_the_interval_narrows_with_more_values_and_holds_the_median() -> None:
    few, many = bootstrap_interval([1.0, 2.0, 3.0]), bootstrap_interval([1.0, 2.0, 3.0] * 20)
    assert few == [1.0, 3.0] and few[0] <= many[0] <= 2 <= many[1] <= few[1]
    assert bootstrap_interval([1.5]) == [1.5, 1.5]
    chance, values = random.Random(0), [3, 0, 4, 4, 1]
    means = sorted(statistics.fmean(chance.choices(values, k=5)) for _ in range(400))
    assert bootstrap_interval(values, of=statistics.fmean) == [means[20], means[379]], (
        "the draws are those of `choices`"
    )
    assert [*map(type, bootstrap_interval(values))] == [int, int]


# ---- draft heads


def counted(clock: HeadClock) -> HeadClock:
    """A clock that advances one microsecond at each reading."""
    ticks = itertools.count()
    clock._executor.mark = lambda: float(next(ticks))  # type: ignore[method-assign] # the clock of a test
    clock._executor.elapsed_us = lambda begin, end: end - begin  # type: ignore[method-assign,operator] # as above
    return clock


@pytest.mark.parametrize(
    ("drafter", "spans"),
    [("medusa", 2), ("hydra", 6), ("mlp_speculator", 10), ("none", 0), ("prompt_lookup", 0)],
    ids=lambda x: str(x),
)
def test_heads_are_timed_where_they_work_and_passes_are_not(drafter: str, spans: int) -> None:
    """A span is a net and an unembedding: once for all heads of Medusa, once per level for Hydra.

    The MLP speculator has one at the beginning, and a step, a feature and an unembedding per level. The pass's own unembedding
    belongs to the pass.
    """
    target = toys.target()
    with attach_clock(HeadClock(target)) as clock:
        one = engine_contestant(drafter, clock.model, toys.method(drafter=drafter), 12, heads=counted(clock))
        written = one.write(toys.PROMPT)
    assert written.tokens == toys.greedy_text(target.decoder, toys.PROMPT, 12)
    whole = written.heads_us[:-3]  # the end of the text cuts the last drafts
    assert len(whole) > 1 and set(whole) == {float(spans)}


def test_heads_are_left_as_they_were() -> None:
    target = toys.target()
    with attach_clock(HeadClock(target)):
        assert all(head._forward_hooks for head in target.decoder.heads.values())
        assert all(
            vars(head).keys() & {*head.works} == {*head.works} for head in target.decoder.heads.values()
        )
    assert not any(head._forward_hooks or head._forward_pre_hooks for head in target.decoder.heads.values())
    assert not any(vars(head).keys() & {*head.works} for head in target.decoder.heads.values())


# ---- who takes part


def test_every_drafter_schedule_and_lossless_strategy_takes_part() -> None:
    field = default_methods(Bench(scripted(RULES), {}))
    assert set(registry("drafter")) - {"none"} <= set(field) and set(VARIANTS) <= set(field)
    assert {"jacobi"} <= set(field) and "beam" not in field
    assert {f"draft_model ({x})" for x in registry("schedule") if x != "fixed"} <= set(field)
    assert all(Method.from_names(*parts).drafter.name in name for name, parts in DRAWING.items())


def test_what_cannot_run_is_left_out_with_its_reason() -> None:
    said: list[str] = []
    methods = {
        "heads": toys.method(drafter="medusa"),
        "two": toys.method(drafter=("specinfer", {"models": 2})),
        **DRAFTED,
    }
    found = made(methods)
    result = measure_speculation(found, ASKED[:1], say=said.append)
    assert set(found.entries) == {BASELINE, "drafted"} == {row.method for row in result.rows}
    assert "has no heads/medusa" in found.left_out["heads"] and "the role 'draft2'" in found.left_out["two"]
    assert result.record()["settings"]["left_out"] == found.left_out
    assert any(x.startswith("left out: two: ") for x in said)


def test_drawing_methods_are_compared_with_plain_decoding_that_draws() -> None:
    found = SpeculationBench(
        scripted(RULES), {"draft": scripted(RULES)}, new_tokens=4, repeats=1, temperature=0.7
    )
    told = found.settings()["contestants"]
    assert (
        told["chains (spectr, drawn)"]["against"] == BASELINE + " (drawn)"
        and told["chains"]["against"] == BASELINE
    )
    assert told["chains (spectr, drawn)"]["parts"]["sampler"]["temperature"] == 0.7
    assert told[BASELINE]["plain"] and told[BASELINE + " (drawn)"]["plain"] and not told["chains"]["plain"]
    greedy = SpeculationBench(scripted(RULES), {"draft": scripted(RULES)}, new_tokens=4, temperature=0)
    assert not any(x["drawn"] for x in greedy.settings()["contestants"].values())
    assert (drawn_name("x"), drawn_name("x (y)")) == ("x (drawn)", "x (y, drawn)")


def test_the_input_of_aggressive_decoding_is_what_the_user_said() -> None:
    framing = "<<{% for m in messages %}{{ m['content'] }}{% endfor %}>>>"
    bench = Bench(replace(scripted(RULES), tokenizer=letters(framing)), {})
    assert template_lengths(bench) == {"tokens_before_input": 2, "tokens_after_input": 3}


def test_questions_are_taken_evenly_from_each_kind() -> None:
    many = [question(i, "x", kind="ab"[i % 2]) for i in range(20)] + [question(99, "x", kind="c")]
    assert [x.id for x in spread_over_kinds(many, 2)] == [4, 5, 14, 15, 99]
    assert [x.id for x in spread_over_kinds(many, 1)] == [10, 11, 99]
    assert spread_over_kinds(many, 20) == many


# ---- the file


def interrupted_at(number: int) -> Any:
    def say(text: str) -> None:
        if text.startswith(f"question {number} "):
            raise KeyboardInterrupt

    return say


@pytest.mark.nightly
def test_an_interrupted_measurement_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    half = measure_speculation(made(), ASKED, out=out, say=interrupted_at(2))
    assert not half.complete and half.done_ids == {1} and not out.exists()
    with pytest.raises(LabBenchError, match="was measured with repeats = 2, now it is 1"):
        measure_speculation(made(repeats=1), ASKED, out=out, resume=True)
    whole = measure_speculation(made(), ASKED, out=out, resume=True)
    assert whole.complete and [row.question for row in whole.rows] == [1, 1, 2, 2, 3, 3]
    assert json.loads(out.read_text()) == json.loads(json.dumps(whole.record()))


@pytest.mark.nightly
def test_a_question_that_does_not_fit_is_skipped() -> None:
    result = measure_speculation(made(), [question(9, "A" * 200), ASKED[0]])
    assert [x["question"] for x in result.skipped] == [9] and {row.question for row in result.rows} == {1}


# ---- goals


def reached(**gains: float) -> dict[str, Any]:
    """A record that measured methods with these gains; the part of a name before __ is the method's name."""
    settings = {
        "contestants": {
            name: dict(
                side="decodescope", method=name.partition("__")[0], against=BASELINE, plain=name == BASELINE,
                drawn="drawn" in name, exactness="lossy" if "lossy" in name else "lossless",
            )
            for name in [BASELINE, *gains]
        }
    }  # fmt: skip
    rows = [
        SpecRow(
            kind,
            kind,
            name,
            tokens=10,
            passes=5,
            seconds=[1 / gain],
            decode_s=[1 / gain],
            step_us=100,
            own_us=5 * gain,
        )
        for name, gain in {BASELINE: 1.0, **gains}.items()
        for kind in ("code", "copy")
    ]
    return SpecResult(settings, rows).record()


def test_goals_count_greedy_lossless_methods_once_each() -> None:
    found = reached(a=1.5, a__tree=1.9, b=1.2, lossy=9.0, c__drawn=9.0)
    code, copying, _, _, many, overhead = found["goals"]
    assert code == {
        "what": "best method on code",
        "goal": 2.5,
        "value": 1.9,
        "met": False,
        "methods": ["a__tree"],
    }
    assert copying["methods"] == ["a__tree"] and copying["met"] is False
    assert (many["value"], many["methods"], many["met"]) == (1, ["a"], False)
    assert (overhead["value"], overhead["methods"], overhead["met"]) == (
        pytest.approx(0.45),
        ["c__drawn"],
        False,
    )


def test_goals_are_met() -> None:
    found = reached(**dict.fromkeys("abcde", 1.4), f=1.99, g=4.5, draft_model=0.9, draft_model__eight=1.01)
    assert [x["met"] for x in found["goals"]] == [True, True, True, None, True, False], (
        "nobody was asked for a story"
    )
    assert found["goals"][2]["methods"] == ["draft_model__eight"] and found["goals"][2][
        "value"
    ] == pytest.approx(1.01)
    assert found["goals"][4]["value"] == 7 and found["goals"][5]["methods"] == ["g"]
    slow = reached(a=1.0, draft_model=0.99)["goals"]
    assert [x["met"] for x in slow] == [False, False, False, None, False, True]


def test_goals_without_questions_are_not_asked() -> None:
    found = SpecResult({"contestants": reached(a=2.0)["settings"]["contestants"]}).record()
    assert [(x["value"], x["met"]) for x in found["goals"]] == [(None, None)] * 6 and goals(found) == found[
        "goals"
    ]
