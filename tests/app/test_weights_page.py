"""A box next to each model names its weight transforms: in a choice and back, and what the model pool then offers."""

from __future__ import annotations

import gradio as gr
import pytest

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.page import controls
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.model_pool import ModelPool
from decodescope.app.runs.preset_choice import apply_preset, find_matching_preset
from decodescope.app.runs.run_service import RunChoice


def test_boxes_and_choice_say_the_same() -> None:
    with gr.Blocks():
        table = controls.MethodControls()
        table.models = {role: gr.Dropdown(["lab", "lab-draft", ""]) for role in ("target", "draft", "large")}
        table.weights = {
            role: gr.Dropdown(["", "int8"], allow_custom_value=True) for role in ("target", "draft")
        }
    names = table.model_names(["lab", "lab", "", "", "int4 group=32"])
    assert names == {"target": "lab", "draft": "lab@int4 group=32"}
    assert table.model_names(["lab", "", "lab", " ", "int8"]) == {"target": "lab", "large": "lab"}, (
        "no model, nothing to change"
    )
    values = [x.get("value") for x in table.model_updates(names, lambda name: name)]
    assert values == ["lab", "lab", "", "", "int4 group=32"]
    gone = table.model_updates(
        {**names, "draft": "elsewhere@int8"}, lambda name: name if name == "lab" else None
    )
    assert [x.get("value", "as it is") for x in gone] == ["lab", "as it is", "", "", "as it is"]


@pytest.mark.parametrize(
    ("name", "boxes"),
    [("int8", ("int8", "")), ("int4_draft", ("", "int4")), ("pruned", ("cut_layers skip=a6,f4", ""))],
)
def test_a_preset_sets_the_boxes_and_the_next_one_empties_them(name: str, boxes: tuple[str, str]) -> None:
    begin = {"target": "lab", "draft": "lab-draft"}
    with gr.Blocks():
        table = controls.MethodControls()
        table.models = {role: gr.Dropdown(["lab", "lab-draft"]) for role in begin}
        table.weights = {role: gr.Dropdown(["", "int8"], allow_custom_value=True) for role in begin}
    taking = apply_preset(RunChoice("x", models=begin), name, begin)
    target, draft, *said = [x.get("value") for x in table.model_updates(taking.models, lambda x: x)]
    assert (target, draft) == ("lab", "lab" if boxes[1] else "lab-draft") and said == [*boxes]
    assert table.model_names([target, draft, *said]) == taking.models and find_matching_preset(taking) == name
    shelf = ModelPool("lab", None)
    assert all(shelf.key(x) == x for x in PRESETS[name].models.values()), "the shelf has them"
    back = [
        x.get("value") for x in table.model_updates(apply_preset(taking, "chain", begin).models, lambda x: x)
    ]
    assert back == ["lab", "lab-draft", "", ""]


def test_the_shelf_offers_what_can_be_made_of_a_model() -> None:
    shelf = ModelPool("lab", None)
    plain, offer = shelf.offer("lab"), shelf.offer("lab@int4  group=32")
    assert plain is not None and offer is not None and offer is shelf.offer("lab@int4  group=32")
    assert (offer.name, offer.spec.weights, offer.size) == ("lab@int4 group=32", "int4 group=32", plain.size)
    assert (
        shelf.key("lab@int8") == "lab@int8"
        and shelf.key("lab@int9") is None
        and shelf.offer("nothing@int8") is None
    )
    with pytest.raises(RequestRefusal, match="The weights cannot be made so: no weights is called 'int9'"):
        shelf.readers({"target": "lab@int9"})
    with pytest.raises(RequestRefusal, match="is not offered here"):
        shelf.readers({"target": "nothing@int8"})
