"""Settings as command, Python and link match what the page would run; presets are methods; links restore everything."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from dataclasses import replace
from typing import Any

import pytest
import toys
from sizes import by_turns, thinned

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.cli import main
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.compare.comparison import parse_choices
from decodescope.app.runs.preset_choice import apply_preset, find_matching_preset
from decodescope.app.runs.recipe import (
    WAYS,
    as_json,
    choice_from_header,
    from_json,
    initial_choice,
    part_knobs,
    recipe,
    smaller_presets,
)
from decodescope.app.runs.run_service import RunChoice
from decodescope.engine import Method, load, run
from decodescope.engine.bench.labbench import COMPOSITIONS
from decodescope.engine.bench.questions.prompts import PROMPTS
from decodescope.engine.bench.speculation import DRAWING, VARIANTS
from decodescope.engine.core.params import ParamError

NAMES = {"target": "lab", "draft": "lab-draft"}
PROMPT = 'It\'s "one" $HOME\n--`two`\\ été '
TREE = PRESETS["tree"]
MIXED = RunChoice(
    PROMPT,
    {
        "drafter": "layer_skip",
        "sampler": ["top_k", "temperature"],
        "strategy": "draft_verify",
        "policy": "keep_all",
    },
    {
        "drafter": {"max_draft_tokens": 3, "siblings": False, "skip_sublayers": "a2 f3"},
        "top_k": {"k": 20},
        "temperature": {"temperature": 0.8},
    },
    seed=5,
    max_new=12,
)
CHOICES = [
    RunChoice(PROMPT, TREE.names, TREE.settings, seed=3, max_new=12),
    RunChoice("--prompt", PRESETS["plain"].names, seed=0, max_new=5),
    RunChoice("Once", PRESETS["h2o"].names, PRESETS["h2o"].settings, max_new=9),
    MIXED,
    RunChoice("Once", {"drafter": "rsd_c"}, {"drafter": {"branching": "2, 1"}}, max_new=9),
    RunChoice("Once", PRESETS["plain"].names, max_new=5, level="full", reference=True),
    RunChoice("Once", PRESETS["plain"].names, max_new=5, reference="model"),
    RunChoice("Say hello.", PRESETS["plain"].names, max_new=48, chat=True, ignore_eos=True),
    RunChoice(
        "Once",
        {"drafter": "llma"},
        {"drafter": {"reference": "@notes, there\n was a 'little' girl\n"}},
        max_new=9,
    ),
]


@pytest.mark.parametrize("choice", thinned(2, CHOICES))
def test_command_and_python_do_what_the_page_does(
    choice: RunChoice, capsys: pytest.CaptureFixture[str]
) -> None:
    method = Method.from_names(choice.names, choice.settings)
    draft = load("lab-draft") if "draft" in method.lanes else None
    more = {
        "chat": choice.chat,
        "ignore_eos": choice.ignore_eos,
        "max_new_tokens": choice.max_new,
        "seed": choice.seed,
    }
    wanted = run(load("lab"), method, choice.prompt, draft=draft, **more)
    words = shlex.split(recipe(choice, NAMES, "command"))
    assert words[:2] == ["decodescope", "run"]
    assert main([*words[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == wanted.tokens
    said: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(recipe(choice, NAMES, "python"), "copied", "exec"), said)
    assert said["made"].tokens == wanted.tokens  # type: ignore[attr-defined]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_link_comes_back_as_the_same_settings(choice: RunChoice) -> None:
    link = recipe(choice, NAMES, "link")
    back = from_json(link.removeprefix("#set="))
    assert link.startswith("#set=") and link.isascii() and " " not in link
    assert as_json(back) == as_json(choice) and back == from_json(as_json(choice))
    assert Method.from_names(back.names, back.settings) == Method.from_names(choice.names, choice.settings)


def test_only_what_differs_is_said() -> None:
    choice = RunChoice(
        "x", {"drafter": "draft_model"}, {"drafter": {"max_draft_tokens": 4, "width": 3}}, seed=1, max_new=8
    )
    command = recipe(choice, NAMES, "command")
    assert (
        "max_draft_tokens" not in command and "drafter.width=3" in command and "--draft lab-draft" in command
    )
    assert "--draft " not in recipe(CHOICES[2], NAMES, "command") and "draft=" not in recipe(
        CHOICES[2], NAMES, "python"
    )


def test_knobs_of_each_kind_are_written_as_they_are_typed() -> None:
    """Also when the values came as text: a value that equals the part's default is left out."""
    choice = RunChoice("x", {"drafter": "rsd_c"}, {"drafter": {"branching": "2 1"}})
    assert "drafter.branching=2,1 " in recipe(choice, NAMES, "command")
    assert "{'drafter': {'branching': (2, 1)}}" in recipe(choice, NAMES, "python")
    usual = RunChoice("x", {"drafter": "rsd_c"}, {"drafter": {"branching": "3, 2, 1, 1"}})
    assert "branching" not in recipe(usual, NAMES, "command") + recipe(usual, NAMES, "python")
    text = RunChoice("x", {"drafter": "llma"}, {"drafter": {"reference": "@a\nb", "ngram": 5.0}})
    assert "drafter.reference=@@a\nb" in shlex.split(recipe(text, NAMES, "command"))
    assert "ngram" not in recipe(text, NAMES, "python")
    header = toys.decode(Method.from_names(choice.names, choice.settings), count=4).header
    assert header.method["drafter"]["branching"] == "2,1" and choice_from_header(header).settings[
        "drafter"
    ] == {"branching": "2,1", "draft_temperature": "auto"}
    header.method["drafter"]["branching"] = "2, 1"  # with a space, as people type it
    assert (
        Method.from_record(header.method).drafter == Method.from_names(choice.names, choice.settings).drafter
    )


def test_all_draft_models_of_a_method_are_named() -> None:
    several = RunChoice("Once", {"drafter": "specinfer"}, {"drafter": {"models": 2}}, seed=1, max_new=6)
    names = {**NAMES, "draft2": "lab", "draft3": "lab-draft"}
    words = shlex.split(recipe(several, names, "command"))
    assert words[words.index("--draft") + 1] == "lab-draft" and words[words.index("--draft2") + 1] == "lab"
    assert "--draft3" not in words, "the method reads two"
    said: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(recipe(several, names, "python"), "copied", "exec"), said)
    drafts = {"draft": load("lab-draft"), "draft2": load("lab")}
    method = Method.from_names(several.names, several.settings)
    wanted = run(load("lab"), method, "Once", models=drafts, max_new_tokens=6, seed=1)
    assert said["made"].tokens == wanted.tokens  # type: ignore[attr-defined]
    assert "--draft2" not in recipe(RunChoice("Once", {"drafter": "draft_model"}), names, "command")


@pytest.mark.parametrize(
    "text",
    [
        "?",
        "{",
        "[]",
        "{}",
        "eyJ",
        "é",
        '{"names": 3}',
        "[" * 9999,
        '{"prompt":1,"names":{},"settings":{"a":1}}',
    ],
)
def test_text_that_holds_no_settings_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(RequestRefusal, match=r"cannot be read: .*\.$"):
        from_json(text)


def test_settings_that_make_no_method_have_no_recipe() -> None:
    for way in WAYS[:2]:
        with pytest.raises(ParamError, match="drafter is called"):
            recipe(RunChoice("x", {"drafter": "nothing"}), NAMES, way)
    with pytest.raises(RequestRefusal, match="too long for a link"):
        recipe(RunChoice("x" * 9000), NAMES, "link")


@pytest.mark.parametrize("name", by_turns(2, [name for name, x in PRESETS.items() if x.models]))
def test_a_preset_for_a_model_runs_on_it_and_is_known_again(name: str) -> None:
    preset, begin = PRESETS[name], {"target": "lab", "draft": "lab-draft"}
    choice = apply_preset(RunChoice("shuffle: Ada Ben Clara ->", models=begin), name, begin)
    assert choice.models == begin | dict(preset.models) and find_matching_preset(choice) == name
    others = {role: load(model) for role, model in preset.models.items() if role != "target"}
    target, method = load(choice.models["target"]), Method.from_names(choice.names, choice.settings)
    made = run(target, method, choice.prompt, models=others, max_new_tokens=16)
    again = choice_from_header(made.trace.header)
    assert find_matching_preset(again) == name and again.models.items() >= preset.models.items()
    plain = find_matching_preset(replace(again, models={"target": "lab"}))
    assert plain is None or not PRESETS[plain].models
    assert len(made.tokens) > 1 and (
        preset.settings.get("unmasking") != {"steps": 1} or len(made.trace.steps) == 1
    )


def test_a_preset_that_goes_with_any_model_goes_back_to_the_page_s_own() -> None:
    begin = {"target": "lab", "draft": "lab-draft"}
    on_canvas = apply_preset(RunChoice("x", models=begin), "canvas", begin)
    assert apply_preset(on_canvas, "jacobi", begin).models == begin
    own = RunChoice("x", models={"target": "mine", "draft": "lab-draft"})
    assert apply_preset(own, "jacobi", begin).models == own.models, "one that nobody brought stays"
    narrow = apply_preset(RunChoice("x", models=begin), "int4_draft", begin)
    assert narrow.models["draft"] == "lab@int4" and apply_preset(narrow, "chain", begin).models == begin
    assert apply_preset(narrow, "int8", begin).models == {**begin, "target": "lab@int8"}
    assert apply_preset(narrow, "chain", {"target": "lab"}).models == {"target": "lab"}, (
        "a page without a draft model"
    )
    said = {"prompt": "x", "seed": 1, "new": 4, "models": begin, "methods": ["cllm", "jacobi"]}
    assert [x.models["target"] for x in parse_choices(said)] == ["lab+cllm", "lab"]


@pytest.mark.parametrize("name", by_turns(8, [name for name, x in PRESETS.items() if not x.models]))
def test_a_preset_runs_and_is_known_again(name: str) -> None:
    """On a long prompt its drafts are accepted and its policy evicts: the entries held equal the budget in the header."""
    preset, prompt = PRESETS[name], "\n\n".join(PROMPTS.values())
    model, draft = load("lab"), load("lab-draft")
    made = run(
        model,
        Method.from_names(preset.names, preset.settings),
        prompt,
        draft=draft,
        max_new_tokens=24,
        seed=7,
    )
    header, steps = made.trace.header, made.trace.steps
    parts = header.method
    for kind, chosen in preset.names.items():
        assert kind == "sampler" or parts[kind]["name"] == chosen
    assert len(header.prompt) > 200 and 0 < len(made.tokens) <= 24
    guesses = preset.names.get("drafter", "none") != "none" or "ticks" in header.parts["strategy"]
    assert (sum(x.accepted for x in steps) > 0) == guesses
    evicted, says = [x.cache[0].evicted_count for x in steps], header.parts["policy"]
    assert any(evicted) is ("evict" in says["does"] or name == "planned"), (
        "a search lets go of what it did not write"
    )
    assert bool(says["does"]) is ("policy" in preset.names)
    # otherwise many entries leave at first, then none
    steady = any(x[1] == "newest" for x in says["zones"]) and not parts["policy"].get("drop_share")
    assert not any(evicted[1:]) if says.get("once") else all(evicted) or not steady
    if parts["policy"].get("budget_share") and not says.get("once"):
        budget = sum(parts["policy"].get(knob, 0) for knob in ("sink_tokens", "heavy", "recent"))
        assert {x.cache[0].held for x in steps} == {budget} and budget == len(header.prompt) // 4
    assert find_matching_preset(RunChoice("x", preset.names, preset.settings)) == name
    settled = name == "recycling"  # its number of nodes depends on the measurements of this machine
    assert find_matching_preset(choice_from_header(header)) == (None if settled else name), (
        "also by the record, which holds a share's entries"
    )
    assert (
        find_matching_preset(RunChoice("x", {"policy": "window"})) is None
        and find_matching_preset(RunChoice("x", {"drafter": "?"})) is None
    )


def test_compositions_with_a_name_repeat_no_default() -> None:
    """A knob's default is written once, where the knob is declared."""
    presets = {name: (x.names, x.settings) for name, x in PRESETS.items()}
    for name, (names, settings) in {**presets, **COMPOSITIONS, **VARIANTS, **DRAWING}.items():
        for part, knobs in settings.items():
            defaults = {knob.name: knob.default for knob in part_knobs(names, part).values()}
            assert not (said := [knob for knob in knobs if knobs[knob] == defaults[knob]]), (
                f"{name}: {part} {said}"
            )


@pytest.mark.parametrize(
    ("asked", "back"),
    [
        ({"budget_share": 0.25}, {"heavy": 64, "recent": 64, "oracle": False, "budget_share": 0.25}),
        (
            {"heavy": 10, "recent": 30, "budget_share": 0.25},
            None,
        ),  # divided differently: the entries that the share resulted in
        ({"heavy": 7, "recent": 9, "budget_share": 0.25}, None),  # 7 to 9 is also divided differently
        ({"heavy": 12, "recent": 12}, None),
    ],
)
def test_a_share_comes_back_as_it_was_asked_for_and_makes_the_same_again(
    asked: dict[str, float], back: Any
) -> None:
    method = Method.from_names({"policy": "h2o"}, {"policy": asked})
    header = toys.decode(method, toys.prompts(1, 200)[0], count=2).header
    found = choice_from_header(header)
    knobs = {k: v for k, v in header.method["policy"].items() if k != "name"}
    assert found.settings["policy"] == (back or knobs)
    again = Method.from_names(found.names, found.settings)
    assert toys.decode(again, toys.prompts(1, 200)[0], count=2).header.method == header.method


def test_a_header_of_no_model_leaves_a_share_as_it_is_recorded() -> None:
    method = Method.from_names({"policy": "window"}, {"policy": {"budget_share": 0.5}})
    header = toys.decode(method, toys.prompts(1, 40)[0], count=2).header
    header.model = {"name": "none of ours"}
    assert choice_from_header(header).settings["policy"] == {"window": 20, "budget_share": 0.5}
    header.method["policy"] = {"name": "no such policy"}
    assert smaller_presets(header) == []


def test_titles_of_presets_fit_the_list_of_a_small_screen() -> None:
    """A window of 390 px shows 232 px of a title: 28 letters fit in any of its fonts."""
    assert not [x.title for x in PRESETS.values() if len(x.title) > 28]


@pytest.mark.nightly
def test_presets_that_evict_hold_less_than_a_cache_that_keeps_all_on_the_page_s_own_run() -> None:
    """Counted in whole pages, including the spare room of growth by half."""
    begin, model, bounded = initial_choice(), load("lab"), 0
    whole = run(model, None, begin.prompt, max_new_tokens=begin.max_new).trace.steps[-1].cache[0]
    for preset in PRESETS.values():
        method = Method.from_names(preset.names, preset.settings)
        if method.policy.budget is None or method.policy.budget_share or method.lanes:
            continue
        last = run(model, method, begin.prompt, max_new_tokens=begin.max_new).trace.steps[-1].cache[0]
        assert last.held_bytes < 0.7 * whole.held_bytes and last.held < whole.held / 2, preset.title
        bounded += 1
    assert bounded >= 2
