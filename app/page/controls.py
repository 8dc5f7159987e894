"""Controls: one table that makes the page's inputs from the knobs that components declare."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from decodescope.app.refusal import Refused
from decodescope.app.routes.catalogue import TITLES
from decodescope.app.runs.play import Choice
from decodescope.app.runs.presets import PRESETS
from decodescope.app.runs.recipe import kinds_of
from decodescope.engine.core.component import KINDS, Component, registry
from decodescope.engine.core.params import Param, ParamError
from decodescope.engine.core.reference import with_weights, without_weights
from decodescope.engine.core.roles import TARGET
from decodescope.engine.method import usual

SLIDER = 130  # positions of a slider, so that each is a pixel or two; a longer range gets a number box
# the preset that the controls begin with, and the one whose drafter they begin with where no draft model is there
FIRST, ALONE = "tree", "lookup"
# a knob that takes a file; what of it is put in as JSON comes from the part's own file
FILE = """
const tell = () => window.decodescope((page) => page.file(element, %s, props.value, set));
const set = (value) => {
  props.value = value;
  trigger('change');
  tell();
};
tell();
watch('value', tell);
"""


def control(knob: Param, value: Any = None, place: str = "") -> gr.components.Component:
    """The input of one knob: bounded number -> slider, choices -> dropdown, bool -> checkbox; list and text -> text box, of
    several lines if the text may have them; file -> a button that brings it to `place`, the knob's address on the page."""
    value = knob.record(knob.default if value is None else value)
    named: dict[str, Any] = dict(label=_words(knob.name, knob.unit), info=plain(knob.help) or None, interactive=True)
    if knob.choices:
        return gr.Dropdown(choices=[str(x) for x in knob.choices], value=str(value), filterable=False, **named)
    if knob.type is bool:
        return gr.Checkbox(value=value, **named)
    if knob.file:
        of = {"path": f"/ds/files/{place}", "label": _words(knob.name, ""), "help": knob.help, "most": knob.most}
        js = FILE % json.dumps({**of, "usual": "No file chosen"})
        return gr.HTML(value, html_template="<div></div>", js_on_load=js, apply_default_css=False)
    if knob.type not in (int, float):
        # without the library's own limit, which would cut off what is pasted: the check says what is too long
        return gr.Textbox(value=value, lines=3 if knob.lines else 1, max_lines=8 if knob.lines else 1, **named)
    step = knob.step or (1 if knob.type is int else 0.01)
    if knob.low is not None and knob.high is not None and (knob.high - knob.low) / step <= SLIDER:
        return gr.Slider(minimum=knob.low, maximum=knob.high, step=step, value=value, buttons=[], **named)
    precision = 0 if knob.type is int else None
    return gr.Number(value=value, minimum=knob.low, maximum=knob.high, step=step, precision=precision, **named)


def plain(text: str) -> str:
    """Text that a field which understands markup shows as it is."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|$~&])", r"\\\1", text)


def _words(name: str, unit: str) -> str:
    name = name.replace("_", " ")
    return f"{name}, {unit}" if unit and unit != name else name


@dataclass
class Controls:
    """The inputs of a method and of its models, and what they say.

    models: role -> the list that chooses its model;  weights: role -> what is made of that model first, of some roles
    parts: kind -> the dropdown that chooses its component;  groups: (kind, component) -> the column of its knobs
    knobs: (kind, component, knob) -> its input
    """

    models: dict[str, gr.Dropdown] = field(default_factory=dict)
    weights: dict[str, gr.Dropdown] = field(default_factory=dict)
    parts: dict[str, gr.Dropdown] = field(default_factory=dict)
    groups: dict[tuple[str, str], gr.Column] = field(default_factory=dict)
    knobs: dict[tuple[str, str, str], gr.components.Component] = field(default_factory=dict)

    @property
    def inputs(self) -> list[gr.components.Component]:
        """All inputs: models, then parts and knobs in the order in which `read` takes their values."""
        return [*self.of_models, *self.parts.values(), *self.knobs.values()]

    @property
    def of_models(self) -> list[gr.Dropdown]:
        """The inputs that say which models there are, in the order in which `named` takes their values."""
        return [*self.models.values(), *self.weights.values()]

    def named(self, values: Sequence[Any]) -> dict[str, str]:
        """Role -> the model that these values of `of_models` choose, with what is made of it first."""
        names = {role: str(name) for role, name in zip(self.models, values, strict=False) if name}
        for role, text in zip(self.weights, values[len(self.models) :], strict=False):
            if role in names and isinstance(text, str) and text.strip():
                names[role] = str(with_weights(names[role], text))
        return names

    @property
    def shown(self) -> list[Any]:
        """What `visibility` answers for."""
        return [*self.parts.values(), *self.groups.values()]

    def visibility(self, *chosen: Any) -> list[Any]:
        """Which parts and knobs are shown, for the values of `parts`: those that the method uses."""
        names = dict(zip(self.parts, chosen, strict=True))
        uses = kinds_of(names)
        updates: list[Any] = [gr.update(visible=kind in uses, info=_about(kind, names[kind])) for kind in self.parts]
        for kind, name in self.groups:
            on = kind in uses and name in _listed(names[kind])
            updates.append(gr.update(visible=on))
        return updates

    def read(self, values: Sequence[Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Names and settings for Method.named, of what is shown; the rest is left out. Raises Refused for what is no name."""
        names = dict(zip(self.parts, values, strict=False))
        uses = kinds_of(names)
        names = {kind: chosen for kind, chosen in names.items() if kind in uses and chosen}
        for kind, chosen in names.items():
            stages = chosen if kind == "sampler" and isinstance(chosen, list) else [chosen]
            if not all(isinstance(x, str) for x in stages):
                raise Refused(f"{TITLES[kind]} = {str(chosen)[:40]}: choose from its list.")
        settings: dict[str, dict[str, Any]] = {}
        for (kind, name, knob), value in zip(self.knobs, values[len(self.parts) :], strict=True):
            if kind in names and name in _listed(names[kind]):
                # a chain's samplers are set by their own names, the other parts by their kind
                settings.setdefault(name if kind == "sampler" else kind, {})[knob] = value
        return names, settings

    def put(self, choice: Choice) -> list[Any]:
        """What `shown` and then the knobs become for these settings. A knob that they do not set has its default where they
        name its part; what they do not name goes back to how it began.

        Names and values that do not exist, as an old link may hold, are passed over.
        """
        chosen = {kind: _known(kind, choice.names.get(kind), part.value) for kind, part in self.parts.items()}
        updates = self.visibility(*chosen.values())
        for i, name in enumerate(chosen.values()):
            updates[i]["value"] = name
        for (kind, name, knob), box in self.knobs.items():
            declared = next(x for x in registry(kind)[name].params() if x.name == knob)
            fits = name in _listed(choice.names.get(kind)) or (kind not in choice.names and name in _listed(chosen[kind]))
            value = choice.settings.get(name if kind == "sampler" else kind, {}).get(knob) if fits else None
            try:
                if value is not None:
                    value = declared.record(declared.read(value, name))
                else:
                    value = declared.record(declared.default) if fits and kind in choice.names else box.value
            except ParamError:
                value = box.value
            updates.append(gr.update(value=value))
        return updates

    def choice(
        self,
        prompt: Any,
        seed: Any,
        max_new: Any,
        level: Any,
        shadow: Any,
        whole: Any,
        chat: Any,
        ignore_eos: Any,
        *values: Any,
    ) -> Choice:
        """What all inputs together say; a prompt that is no text is none, and so is a level. Only true is on. Raises Refused
        where a part has no name."""
        many, text = len(self.of_models), prompt if isinstance(prompt, str) else ""
        models = self.named(values[:many])
        names, settings = self.read(values[many:])
        said: dict[str, Any] = {"models": models, "level": str(level), "chat": chat is True, "ignore_eos": ignore_eos is True}
        if shadow is True and whole is True:
            raise Refused("Either a full cache reads along or the model it was made of: clear one of the two boxes.")
        said["shadow"] = "model" if whole is True else shadow is True
        return Choice(text, names, settings, _whole(seed), _whole(max_new), **said)

    def choose(self, models: Mapping[str, str], key: Callable[[str], str | None]) -> list[Any]:
        """What `of_models` become for these models (role -> name); key(name): of one that there is, its key. One that there is
        not is passed over; without a target they stay as they are."""
        if TARGET not in models:
            return [gr.skip()] * len(self.of_models)
        parted = {role: without_weights(models.get(role, "")) for role in self.weights}
        bases = {role: str(parted[role][0] if role in parted else models.get(role, "")) for role in self.models}
        keys = {role: key(base) if base else "" for role, base in bases.items()}
        lists = [gr.skip() if keys[role] is None else gr.update(value=keys[role]) for role in self.models]
        return lists + [gr.skip() if keys[role] is None else gr.update(value=text) for role, (_, text) in parted.items()]


def build(*, draft: bool) -> Controls:
    """Lay out the controls of a method, here and now. draft: whether there is a draft model to begin with."""
    table = Controls()
    preset = PRESETS[FIRST].names if draft else {**PRESETS[FIRST].names, "drafter": PRESETS[ALONE].names["drafter"]}
    begin: dict[str, Any] = {kind: preset.get(kind, usual(kind).name) for kind in KINDS}
    uses = kinds_of(begin)  # the others are hidden from the start, not when somebody first chooses
    for kind, first in begin.items():
        shelf = {name: cls for name, cls in registry(kind).items() if cls.listed}
        choices = [(cls.title or name, name) for name, cls in shelf.items()]
        with gr.Column(elem_classes=["ds-part"]):
            table.parts[kind] = gr.Dropdown(
                choices=choices,
                value=first,
                label=TITLES[kind],
                info=_about(kind, first),
                multiselect=kind == "sampler",
                filterable=len(choices) > 8,
                interactive=True,
                visible=kind in uses,
                elem_id=f"ds-{kind}",
            )
            for name, cls in shelf.items():
                _knobs(table, kind, name, cls, visible=kind in uses and name in _listed(first))
    return table


def _knobs(table: Controls, kind: str, name: str, cls: type[Component], *, visible: bool) -> None:
    """The column of one component's knobs; nothing for a component that has none."""
    knobs, first = cls.params(), PRESETS[FIRST]
    begin = first.settings.get(name if kind == "sampler" else kind, {}) if name in _listed(first.names.get(kind)) else {}
    if not knobs:
        return
    with gr.Column(visible=visible, elem_classes=["ds-knobs"]) as column:
        if kind == "sampler":
            gr.Markdown(plain(cls.title), elem_classes=["ds-stage"])
        for knob in knobs:
            table.knobs[kind, name, knob.name] = control(knob, begin.get(knob.name), f"{kind}/{name}/{knob.name}")
    table.groups[kind, name] = column


def _about(kind: str, chosen: Any) -> str | None:
    """The cautions of what is chosen."""
    said = [registry(kind)[name].caution for name in _listed(chosen) if name in registry(kind)]
    return plain(" ".join(x for x in said if x)) or None


def _listed(chosen: Any) -> list[str]:
    return [str(x) for x in chosen] if isinstance(chosen, list | tuple) else [str(chosen)]


def _known(kind: str, wanted: Any, otherwise: Any) -> Any:
    """The wanted component, or list of samplers, if there is such; else `otherwise`."""
    names = [x for x in _listed(wanted) if x in registry(kind) and registry(kind)[x].listed] if wanted else []
    if not names:
        return otherwise
    return names if kind == "sampler" else names[0]


def _whole(value: Any) -> int:
    """A number box's value; -1, which no box allows, for what is no whole number."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if number and value == int(value) else -1
