"""The catalogue of methods: complete, from one source, searched by keyboard; the controls show what was chosen."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from browser import Lab
from sizes import first_of, thinned
from starlette.testclient import TestClient

from decodescope.app.basis.parser import build_parser
from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.runs.catalogue.commands import COMMANDS
from decodescope.app.runs.catalogue.parts import method_results, missing_heads, part_title
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.preset_choice import find_matching_preset
from decodescope.app.runs.recipe import from_json, replace_part
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.engine.core.component import KINDS, OF_MODEL, registry
from decodescope.engine.core.roles import TARGET

OPEN = ".ds-catalogue[open]"
CHOSEN = f"document.querySelector('{OPEN} [aria-selected=true]')?.dataset.name"
METHOD = "document.querySelector('#ds-preset input')?.value"


@pytest.mark.nightly
def test_every_part_is_told_with_its_idea_source_and_needs(client: TestClient, play: RunService) -> None:
    found = client.get("/ds/catalogue").json()
    told = {(x["kind"], x["name"]): x for x in found["parts"]}
    assert set(told) == {
        (kind, name) for kind in (*KINDS, *OF_MODEL) for name in registry(kind) if name != "chain"
    }
    for x in told.values():
        assert (
            x["idea"].endswith(".")
            and ": " not in x["idea"][:12]
            and x["source"]
            and x["title"]
            and x["family"]
        )
    assert told["drafter", "eagle2"]["needs"] == ["trained heads (eagle)"]
    assert (
        told["drafter", "draft_model"]["needs"] == ["draft model"]
        and told["drafter", "prompt_lookup"]["needs"] == []
    )
    assert told["policy", "h2o"]["needs"] == ["attention"]
    assert told["schedule", "specdec_pp"]["needs"] == ["draft model", "trained heads (specdec)"]
    lossy = {name for (kind, name), x in told.items() if kind == "acceptance" and x["exactness"] == "lossy"}
    assert lossy >= {"typical", "leniency"} and "block" not in lossy
    filling = {x["name"] for x in told.values() if "model without a causal mask" in x["needs"]}
    assert filling == {"masked", "edit_tags", *registry("unmasking")} and all(
        told["unmasking", x]["exactness"] == "lossy" for x in registry("unmasking")
    )
    pictures = {x["name"] for x in told.values() if "model of pictures" in x["needs"]}
    assert pictures == {"zipar", "randar"}
    gaps = {x["name"] for x in told.values() if x["needs"] == ["gap-filling model"]}
    assert gaps == {"jump_coder"}
    settings = {x["name"] for x in told.values() if x["exactness"] == "exact_for_settings"}
    assert settings == {"grammar", "deco_g", "momentum", "contrastive", "nest", "rapid", *registry("weights")}
    unfit = {x["name"] for x in told.values() if x["why"]}
    blocks = {x["name"] for x in told.values() if x["needs"] == ["Block Transformer"]}
    assert blocks == {"block_transformer"}
    weaker = {x["name"] for x in told.values() if x["needs"] == ["amateur"]}
    assert weaker == {"contrastive"}
    short = {x["name"] for x in told.values() if x["needs"] == ["short-context model"]}
    assert short == {"rapid"}
    assert unfit == filling | gaps | pictures | blocks | weaker | short, (
        "the toy has all heads and a draft model"
    )
    del play.models.names["draft"]
    why = {x["name"]: x["why"] for x in client.get("/ds/catalogue").json()["parts"] if x["kind"] == "drafter"}
    assert "draft" in why["draft_model"] and why["prompt_lookup"] == ""


@pytest.mark.nightly
def test_a_part_without_heads_in_any_shipped_model_says_so_in_its_list(client: TestClient) -> None:
    """Whoever chooses from a list knows before what is missing: in the controls, the catalogue and the command line."""
    shipped = {kind: {name: missing_heads(kind, name) for name in registry(kind)} for kind in KINDS}
    missing = {name for part in shipped.values() for name, heads in part.items() if heads}
    assert {"color", "cot_influx"} <= missing and not {"medusa", "exits", "whole_prompt"} & missing
    for kind, part in shipped.items():
        for name, heads in part.items():
            title = registry(kind)[name].title
            listed = part_title(kind, name, title)
            assert listed == title or (all(f"heads/{x}" in listed for x in heads) and heads)
    rows = client.get("/ds/catalogue").json()["parts"]
    said = {row["name"] for row in rows if any("not shipped" in x for x in row["needs"])}
    assert said == missing


def test_headlines_and_figures_are_those_of_the_book_and_of_parts_that_there_are(client: TestClient) -> None:
    told = {(x["kind"], x["name"]): x for x in client.get("/ds/catalogue").json()["parts"]}
    figures = method_results()["measured"]["figures"]
    every = {kind: set(registry(kind)) for kind in (*KINDS, *OF_MODEL)} | {
        "command": {x.name for x in COMMANDS}
    }
    for kind, names in (*method_results()["headlines"].items(), *figures.items()):
        assert not set(names) - every[kind], "the book tells of parts that there are not"
    for (kind, name), x in told.items():
        assert x["headline"] == method_results()["headlines"].get(kind, {}).get(name, "").replace("`", "")
        found = figures.get(kind, {}).get(name)
        assert x["measured"] == (None if found is None else {"tau": found[0], "ratio": found[1]})
    assert (
        sum(x["measured"] is not None for x in told.values()) > 20
        and client.get("/ds/catalogue").json()["command"]
    )


@pytest.mark.nightly
def test_a_method_that_is_a_command_is_one_that_can_be_typed(client: TestClient) -> None:
    found = client.get("/ds/catalogue").json()["commands"]
    assert {x["name"]: bool(x["headline"]) for x in found} == {
        "cachegen": True,
        "batchllm": True,
        "answers": True,
    }
    for x in found:
        assert x["kind"] == "command" and x["idea"].endswith(".") and "arXiv" in x["source"]
        for typed in x["run"].split(" && "):
            program, *words = shlex.split(typed)
            assert program == "decodescope" and build_parser().parse_args(words).model == "lab"


@pytest.mark.nightly
def test_every_preset_has_a_link_that_brings_it_back(client: TestClient) -> None:
    found = {x["name"]: x for x in client.get("/ds/catalogue").json()["presets"]}
    assert set(found) == set(PRESETS)
    for name, x in found.items():
        choice = from_json(x["link"].removeprefix("#set="))
        assert (
            x["link"].startswith("#set=") and find_matching_preset(choice) == name and choice.prompt.strip()
        )
        assert x["idea"].endswith(".") and x["title"] not in x["idea"] and len(x["idea"]) > 40, (
            "what happens, not its name"
        )
    assert "H2O" in found["eagle_h2o"]["made"] and found["eagle_h2o"]["exactness"] == "lossy"
    settings = {name for name, x in found.items() if x["exactness"] == "exact_for_settings"}
    assert {"int8", "pruned", "momentum", "nest", "rapid"} <= settings and "int4_draft" not in settings
    lossy = {name for name, x in found.items() if x["exactness"] == "lossy"}
    assert {name for name, x in found.items() if "text may differ" in x["idea"].lower()} <= lossy


@pytest.mark.nightly
@pytest.mark.parametrize("kind", thinned(3, KINDS))
def test_a_part_is_used_in_the_place_of_the_one_of_its_kind(play: RunService, kind: str) -> None:
    before = RunChoice("words", PRESETS["tree"].names, PRESETS["tree"].settings, seed=3, max_new=9)
    for name in set(registry(kind)) - {"chain"}:
        made = replace_part(before, kind, name, play.check)
        assert (made.prompt, made.seed, made.max_new) == ("words", 3, 9)
        chosen = made.names[kind]
        assert name in ([chosen] if isinstance(chosen, str) else chosen)
        strategy = registry("strategy")[str(made.names.get("strategy", "draft_verify"))]
        why = "choose a model without a causal mask" if strategy.sides == "both" else ""
        why = (
            "choose a model whose config.json has a picture" if strategy.writes in ("rows", "cells") else why
        )
        why = "choose a model whose config.json gives block_length" if strategy.writes == "blocks" else why
        why = "choose one under Gap-filling model" if "infill" in strategy.lanes else why
        why = "choose one under Amateur" if name == "contrastive" else why
        why = "choose one under Short-context model" if name == "rapid" else why
        said = play.check(made)
        assert why in said and bool(said) is bool(why), f"{name}: what can be used is put so that it runs"


def test_a_transform_of_weights_goes_behind_the_target(play: RunService) -> None:
    before = RunChoice(
        "words",
        PRESETS["tree"].names,
        models={**play.models.names, TARGET: f"{play.models.names[TARGET]}@int4 group=64"},
    )
    for name in registry("weights"):
        made = replace_part(before, "weights", name, play.check)
        assert (
            made.models == {**play.models.names, TARGET: f"{play.models.names[TARGET]}@{name}"}
            and made.names == before.names
        )


def test_a_rule_brings_a_drafter_that_it_can_judge_and_samplers_stand_in_a_row(play: RunService) -> None:
    tree = RunChoice("x", PRESETS["tree"].names, PRESETS["tree"].settings)
    assert replace_part(tree, "acceptance", "spectr", play.check).names["drafter"] == "chains"
    chain = replace_part(tree, "schedule", "goodput", play.check)
    assert play.method(chain).drafter.knobs()["width"] == 1
    assert replace_part(tree, "sampler", "top_k", play.check).names["sampler"] == ["temperature", "top_k"]
    assert replace_part(tree, "sampler", "greedy", play.check).names["sampler"] == ["greedy"]
    assert find_matching_preset(replace_part(tree, "preset", "h2o", play.check)) == "h2o"
    jacobi = RunChoice("x", PRESETS["jacobi"].names)
    assert replace_part(jacobi, "drafter", "trie", play.check).names["strategy"] == "draft_verify"
    for kind, name in [("drafter", "nothing"), ("sampler", "chain"), ("<b>", "x"), ("preset", "nothing")]:
        with pytest.raises(RequestRefusal, match=r"choose one of the catalogue\.$"):
            replace_part(tree, kind, name, play.check)


def opened(lab: Lab, **more: Any) -> Any:
    page = lab.open(**more)
    page.click(".browse")
    page.wait_for_selector(f"{OPEN} [role=option]")
    return page


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.xdist_group("tabs")
def test_by_keyboard_a_method_is_found_and_put_into_the_controls(lab: Lab) -> None:
    page = opened(lab)
    assert page.evaluate("document.activeElement.type") == "search", "one can write at once"
    page.keyboard.type("suffix array")
    page.wait_for_function(f"document.querySelectorAll('{OPEN} [role=option]').length == 1")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(CHOSEN) == "drafter rest"
    about = page.inner_text(f"{OPEN} .about")
    facts = (
        "lossless: identical in distribution to plain decoding",
        "1.62 to 2.36x",
        "plain decoding",
        "arXiv",
    )
    assert all(fact in about for fact in facts)
    page.keyboard.press("Enter")
    page.wait_for_selector(OPEN, state="detached")
    page.wait_for_function("document.querySelector('#ds-drafter input').value.startsWith('REST')")
    assert page.evaluate("document.activeElement.className").endswith("browse"), (
        "the focus is back at the button"
    )
    assert "REST" in page.inner_text(".ds-browse .said")
    # filters: by kind, by requirements, by distribution; Escape leaves everything as it was
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{OPEN} [role=option]")
    page.fill(f"{OPEN} input[type=search]", "")
    page.click(f"{OPEN} .families >> text=Acceptance")
    page.select_option(f"{OPEN} [aria-label='How exact the text is']", "lossless")
    names = page.locator(f"{OPEN} [role=option]").evaluate_all("x => x.map((one) => one.dataset.name)")
    assert "acceptance block" in names and "acceptance typical" not in names
    page.click(f"{OPEN} .families >> text=Command")
    page.click(f"{OPEN} [data-name='command batchllm']")
    page.keyboard.press("Enter")  # this entry is no part that the controls could take
    assert (
        "decodescope batch" in page.inner_text(f"{OPEN} .about")
        and not page.locator(f"{OPEN} .about .go").count()
    )
    page.click(f"{OPEN} .families >> text=All")
    page.select_option(f"{OPEN} .filters select", "attention")
    page.wait_for_function(f"document.querySelector('{OPEN} .about').textContent.includes('Nothing fits')")
    page.keyboard.press("Escape")
    page.wait_for_selector(OPEN, state="detached")
    assert page.evaluate("document.querySelector('#ds-drafter input').value").startswith("REST")


@pytest.mark.browser
@pytest.mark.xdist_group("tabs")
@pytest.mark.parametrize("width", first_of(390, 1440))
@pytest.mark.nightly
def test_a_preset_is_used_from_a_list_that_fits_the_page(lab: Lab, width: int) -> None:
    page = opened(lab, width=width)
    box = page.locator(OPEN).bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width
    page.click(f"{OPEN} [data-name='preset h2o']")
    page.wait_for_selector(f"{OPEN} .about >> text=the text may differ from exact decoding")
    page.click(f"{OPEN} .about >> text=Use it")
    page.wait_for_function(f"{METHOD} == {json.dumps(PRESETS['h2o'].title)}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
