"""Controls: one table that makes the page's inputs from the parts and the knobs that components declare."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gradio as gr
from gradio.components import Component

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.runs.catalogue import knobs as declarations
from decodescope.app.runs.catalogue.parts import part_title
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.catalogue.titles import TITLES
from decodescope.app.runs.recipe import used_kinds
from decodescope.app.runs.run_service import RunChoice
from decodescope.engine.core.component import KINDS, registry
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.reference import with_weights, without_weights
from decodescope.engine.core.roles import TARGET
from decodescope.engine.session.method import default_part
from decodescope.engine.trace.records.events import PROMPT_KINDS

# The preset that the controls begin with, and the preset that supplies the drafter if there is no draft model.
FIRST, ALONE = declarations.FIRST, "lookup"
# The knobs of the parts of a kind, drawn by lab/web/run_form/knobs.js. It requests their declarations and holds the values
# that were set: {part: {knob: value}}. There is one input for all of them: for each input, the page library looks through all
# inputs of a page before the page answers. The displayed value is a text: the library takes each quoted word of a script for
# an event.
KNOBS = """
const parts = JSON.parse(%s);
const tell = () => window.decodescope((page) => page.showKnobPanel(element, parts, props.value, set));
const set = (value) => {
  props.value = value;
  trigger('change');
};
tell();
watch('value', tell);
"""
Values = dict[str, Any]  # knob -> value, as a record has it


def escape_markup(text: str) -> str:
    """Escape text, so that a field with markup shows it as it is."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|$~&])", r"\\\1", text)


@dataclass
class MethodControls:
    """The inputs of a method and of its models, and their values.

    models: role -> the list that chooses its model;  weights: role -> weight transforms of that model, for some roles
    place: "dtype" and "device" -> the list that chooses it for all models
    parts: kind -> the dropdown that chooses its component;  knobs: kind -> the panel of the knobs of its components; its value
    holds the knobs that were set;  begins: kind -> component -> the initial values of its knobs
    """

    models: dict[str, gr.Dropdown] = field(default_factory=dict)
    weights: dict[str, gr.Dropdown] = field(default_factory=dict)
    place: dict[str, gr.Dropdown] = field(default_factory=dict)
    parts: dict[str, gr.Dropdown] = field(default_factory=dict)
    knobs: dict[str, gr.HTML] = field(default_factory=dict)
    begins: dict[str, dict[str, Values]] = field(default_factory=dict)

    @property
    def inputs(self) -> list[Component]:
        """All inputs: models, then parts and panels in the order in which `read` takes their values."""
        return [*self.model_inputs, *self.parts.values(), *self.knobs.values()]

    @property
    def model_inputs(self) -> list[gr.Dropdown]:
        """The inputs for the models, in the order in which `model_names` takes their values; type and device at the end."""
        return [*self.models.values(), *self.weights.values(), *self.place.values()]

    def model_names(self, values: Sequence[Any]) -> dict[str, str]:
        """Role -> the model that these values of `model_inputs` choose, with its weight transforms."""
        names = {role: str(name) for role, name in zip(self.models, values, strict=False) if name}
        for role, text in zip(self.weights, values[len(self.models) :], strict=False):
            if role in names and isinstance(text, str) and text.strip():
                names[role] = str(with_weights(names[role], text))
        return names

    def part_values(self, values: Sequence[Any]) -> Sequence[Any]:
        """The values of `parts`, from the values of inputs that end with all of `inputs`."""
        return values[-len(self.parts) - len(self.knobs) : -len(self.knobs)]

    def visibility(self, *chosen: Any) -> list[Any]:
        """Which parts are shown, for the values of `parts`: those that the method uses."""
        names = dict(zip(self.parts, chosen, strict=True))
        uses = used_kinds(names)
        return [gr.update(visible=kind in uses, info=_cautions(kind, names[kind])) for kind in self.parts]

    def visible_knobs(self, *chosen: Any) -> dict[str, list[str]]:
        """Kind -> the components that have their knobs shown in its panel, for the values of `parts`."""
        names = dict(zip(self.parts, chosen, strict=True))
        uses = used_kinds(names)
        return {
            kind: [x for x in _as_list(names[kind]) if kind in uses and x in self.begins[kind]]
            for kind in self.knobs
        }

    def read(self, values: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Values]]:
        """Names and settings for Method.from_names, of the shown parts; the rest is left out.
        Raises RequestRefusal for an invalid name."""
        names = dict(zip(self.parts, values, strict=False))
        uses = used_kinds(names)
        names = {kind: chosen for kind, chosen in names.items() if kind in uses and chosen}
        for kind, chosen in names.items():
            stages = chosen if kind == "sampler" and isinstance(chosen, list) else [chosen]
            if not all(isinstance(x, str) for x in stages):
                raise RequestRefusal(f"{TITLES[kind]} = {str(chosen)[:40]}: choose from its list.")
        settings: dict[str, Values] = {}
        for kind, held in zip(self.knobs, values[len(self.parts) :], strict=True):
            for name in _as_list(names.get(kind, [])):
                if begin := self.begins[kind].get(name):
                    mine = _as_mapping(_as_mapping(held).get(name))
                    # samplers of a chain have settings under their own names, the other parts under their kind
                    settings[name if kind == "sampler" else kind] = {
                        knob: mine.get(knob, x) for knob, x in begin.items()
                    }
        return names, settings

    def part_updates(self, choice: RunChoice) -> list[Any]:
        """The new values of `parts` and then `knobs` for these settings.
        A knob that they do not set gets its default if they name its part. Parts that they do not name get their initial
        values.

        Names and values that do not exist, as an old link may hold, are ignored.
        """
        chosen = {
            kind: _component_or_default(kind, choice.names.get(kind), part.value)
            for kind, part in self.parts.items()
        }
        updates = self.visibility(*chosen.values())
        for i, name in enumerate(chosen.values()):
            updates[i]["value"] = name
        for kind in self.knobs:
            named = kind in choice.names
            fits = [
                x for x in _as_list(choice.names[kind] if named else chosen[kind]) if x in self.begins[kind]
            ]
            keys = {name: name if kind == "sampler" else kind for name in fits}  # of its settings
            of = {
                name: self._knob_values(kind, name, choice.settings.get(key, {}), named)
                for name, key in keys.items()
            }
            updates.append(gr.update(value=of))
        return updates

    def _knob_values(self, kind: str, name: str, settings: Mapping[str, Any], named: bool) -> Values:
        """The new values of a component's knobs: as set, else the default if the component was named, else the initial
        value."""
        held = dict(self.begins[kind][name])
        for knob in registry(kind)[name].params():
            value = settings.get(knob.name)
            try:
                if value is not None:
                    held[knob.name] = knob.record(knob.read(value, name))
                elif named:
                    held[knob.name] = knob.record(knob.default)
            except ParamError:
                pass  # it keeps its initial value
        return held

    def choice(
        self,
        prompt: Any,
        seed: Any,
        max_new: Any,
        level: Any,
        reference: Any,
        whole: Any,
        chat: Any,
        ignore_eos: Any,
        *values: Any,
    ) -> RunChoice:
        """The choice that all inputs make together; `values` begin with the kind of the prompt. Raises RequestRefusal if a part
        has no name.

        A prompt or level that is not text counts as none. A switch is on only if it is true, that for the chat template only
        for plain text."""
        many, text = len(self.model_inputs), prompt if isinstance(prompt, str) else ""
        kind, *others = values
        prompt_kind = kind if kind in PROMPT_KINDS else RunChoice.prompt_kind
        models = self.model_names(others[:many])
        names, settings = self.read(others[many:])
        said: dict[str, Any] = {
            "models": models,
            "level": str(level),
            "chat": chat is True and prompt_kind == RunChoice.prompt_kind,
            "prompt_kind": prompt_kind,
            "ignore_eos": ignore_eos is True,
        }
        if reference is True and whole is True:
            raise RequestRefusal(
                "Either a full cache reads along or the model it was made of: clear one of the two boxes."
            )
        said["reference"] = "model" if whole is True else reference is True
        chosen = zip(self.place, others[many - len(self.place) : many], strict=True)
        said |= {name: value if isinstance(value, str) else "" for name, value in chosen}
        return RunChoice(text, names, settings, _whole_number(seed), _whole_number(max_new), **said)

    def place_updates(self, choice: RunChoice) -> list[Any]:
        """The new values of `place` for these settings; what is not in the list becomes automatic."""
        rows = {name: [str(value) for _, value in one.choices] for name, one in self.place.items()}
        wanted = choice.place._asdict()
        return [gr.update(value=wanted[name] if wanted[name] in rows[name] else "") for name in self.place]

    def model_updates(self, models: Mapping[str, str], key: Callable[[str], str | None]) -> list[Any]:
        """The new values of `models` and `weights` for these models (role -> name); key(name): the key of an existing model.
        Unknown models are ignored; without a target the values stay."""
        if TARGET not in models:
            return [gr.skip()] * (len(self.models) + len(self.weights))
        parted = {role: without_weights(models.get(role, "")) for role in self.weights}
        bases = {
            role: str(parted[role][0] if role in parted else models.get(role, "")) for role in self.models
        }
        keys = {role: key(base) if base else "" for role, base in bases.items()}
        lists = [gr.skip() if keys[role] is None else gr.update(value=keys[role]) for role in self.models]
        return lists + [
            gr.skip() if keys[role] is None else gr.update(value=text) for role, (_, text) in parted.items()
        ]


def build(*, draft: bool) -> MethodControls:
    """Create the controls of a method at the present place of the layout. draft: whether there is a draft model at first"""
    table = MethodControls()
    preset = (
        PRESETS[FIRST].names
        if draft
        else {**PRESETS[FIRST].names, "drafter": PRESETS[ALONE].names["drafter"]}
    )
    begin: dict[str, Any] = {kind: preset.get(kind, default_part(kind).name) for kind in KINDS}
    uses = used_kinds(begin)  # the others are hidden from the start, not only after a choice
    for kind, first in begin.items():
        shelf = {name: cls for name, cls in registry(kind).items() if cls.listed}
        choices = [(part_title(kind, name, cls.title), name) for name, cls in shelf.items()]
        with gr.Column(elem_classes=["ds-part"]):
            table.parts[kind] = gr.Dropdown(
                choices=choices,
                value=first,
                label=TITLES[kind],
                info=_cautions(kind, first),
                multiselect=kind == "sampler",
                filterable=len(choices) > 8,
                interactive=True,
                visible=kind in uses,
                elem_id=f"ds-{kind}",
            )
            begins = {
                name: declarations.initial_values(kind, name, cls)
                for name, cls in shelf.items()
                if cls.params()
            }
            table.begins[kind] = begins
            if begins:
                table.knobs[kind] = _panel(kind, [x for x in _as_list(first) if kind in uses and x in begins])
    return table


def _panel(kind: str, shown: Sequence[str]) -> gr.HTML:
    """The panel with the knobs of a kind's components; only the `shown` ones are visible.
    Files are uploaded to a knob's own address."""
    js = KNOBS % json.dumps(json.dumps({"kind": kind, "shown": shown}))
    return gr.HTML(
        {}, html_template="<div></div>", js_on_load=js, apply_default_css=False, elem_id=f"ds-{kind}-knobs"
    )


def _cautions(kind: str, chosen: Any) -> str | None:
    """The cautions of the chosen components."""
    said = [registry(kind)[name].caution for name in _as_list(chosen) if name in registry(kind)]
    return escape_markup(" ".join(x for x in said if x)) or None


def _as_list(chosen: Any) -> list[str]:
    return [str(x) for x in chosen] if isinstance(chosen, list | tuple) else [str(chosen)]


def _as_mapping(value: Any) -> Mapping[str, Any]:
    """The browser's value, if it is a mapping; else an empty one."""
    return value if isinstance(value, dict) else {}


def _component_or_default(kind: str, wanted: Any, otherwise: Any) -> Any:
    """The wanted component, or list of samplers, if it exists; else `otherwise`."""
    names = (
        [x for x in _as_list(wanted) if x in registry(kind) and registry(kind)[x].listed] if wanted else []
    )
    if not names:
        return otherwise
    return names if kind == "sampler" else names[0]


def _whole_number(value: Any) -> int:
    """A number box's value; -1, which no box allows, if it is not a whole number."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if number and value == int(value) else -1
