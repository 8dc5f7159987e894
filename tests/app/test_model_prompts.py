"""The prompts that the page offers: they belong to the model that is chosen."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import toys
from toylab import Words, toy_play

from decodescope.app.page import layout
from decodescope.app.runs.catalogue.examples import examples
from decodescope.app.runs.model_pool import ModelPool, Offer
from decodescope.app.runs.model_prompts import BEGINNINGS, QUESTIONS, TASKS, model_prompts
from decodescope.app.runs.recipe import choice_from_header
from decodescope.app.runs.run_service import RunChoice
from decodescope.engine.bench.questions.parallel_tasks import NAMES
from decodescope.engine.session.load import SHIPPED
from decodescope.engine.trace import read_header


@pytest.fixture(scope="module")
def offers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Offer]:
    """The shipped models, a copy of one, and a copy of it without its chat template."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("talks", "base"):
        shutil.copytree(SHIPPED / "lab-draft", folder / name)
    settings = folder / "base" / "tokenizer_config.json"
    said = json.loads(settings.read_text(encoding="utf-8"))
    settings.write_text(json.dumps({x: y for x, y in said.items() if x != "chat_template"}), encoding="utf-8")
    (folder / "base" / "chat_template.jinja").unlink(missing_ok=True)
    return {x.name: x for x in ModelPool("lab", None, folder).offers()}


def test_a_model_with_a_template_is_asked_and_a_base_model_goes_on(offers: dict[str, Offer]) -> None:
    asked, begun = model_prompts(offers["talks"]), model_prompts(offers["base"])
    assert [x.prompt for x in asked] == [*QUESTIONS] and all(x.chat for x in asked)
    assert [x.prompt for x in begun] == [*BEGINNINGS] and not any(x.chat for x in begun)


def test_a_canvas_gets_list_tasks_in_its_own_words_and_a_model_of_pictures_digits(
    offers: dict[str, Offer],
) -> None:
    for name in ("lab-mdm", "lab-mdm+cloze"):
        prompts = model_prompts(offers[name])
        assert {*TASKS} <= {x.prompt for x in prompts} and not any(x.chat for x in prompts)
    known = {x for text in TASKS[:-1] for x in text.replace(":", "").split() if x.istitle()}
    assert len(known) > 5 and known <= {*NAMES}, "the names that it was trained on"
    assert {x.prompt for x in model_prompts(offers["lab-digits"])} == {*"0123456789"}


def test_a_shipped_model_gets_what_was_recorded_with_it_and_no_prompt_of_a_model_of_another_sort(
    offers: dict[str, Offer],
) -> None:
    recorded = [choice_from_header(read_header(x.path)) for x in examples()]
    own = {x.prompt for x in recorded if x.models["target"] == "lab"}
    others = {x.prompt for x in recorded if x.models["target"] in ("lab-mdm", "lab-digits", "lab-recall")}
    prompts = model_prompts(offers["lab"])
    texts = [x.prompt for x in prompts]
    assert len(texts) == len({*texts}) > 6 and {*texts} <= own and not {*texts} & others
    assert sorted(prompts, key=lambda x: not x.chat) == prompts, "questions first, since it has a template"
    assert not any(x != y and x.startswith(y) for x in texts for y in texts)
    recall = model_prompts(offers["lab-recall"])
    assert recall[0].prompt in others and {*texts} <= {x.prompt for x in recall}


def test_the_page_is_given_the_prompts_of_the_model_that_its_settings_name(tmp_path: Path) -> None:
    play = toy_play(tmp_path)
    for name, due in (("toy", BEGINNINGS[0]), ("lab-mdm", "shuffle: Ada Ben Clara Finn Hugo ->")):
        composed = play.compose(RunChoice("hello", models={"target": name}))
        prompts = layout._settings_summary(play, composed)["prompts"]
        assert prompts[0] == {"prompt": due, "chat": False}
    lost = play.compose(RunChoice("hello", models={"target": "nobody/nothing"}))
    assert layout._settings_summary(play, lost)["prompts"] == []
    play.close()


def test_a_model_without_a_tokenizer_is_no_chat_model() -> None:
    model = toys.target()
    model.tokenizer = None
    assert [x.prompt for x in model_prompts(model)] == [*BEGINNINGS]
    model.tokenizer = Words()
    model.tokenizer.has_chat = True
    assert model_prompts(model)[0].prompt == QUESTIONS[0]
