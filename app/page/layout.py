"""The page: layout and events. lab/web/scope.js draws what moves on it; values go there as data, never as markup."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import gradio as gr

from decodescope.app.basis.arguments import DTYPES
from decodescope.app.basis.refusal import RequestRefusal, explain_error
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.compare.settings_diff import KINDS, has_chat_template, notes, target_reader
from decodescope.app.runs.composition import Composition
from decodescope.app.runs.drafting_remark import drafting_remarks
from decodescope.app.runs.model_downloads import missing_model
from decodescope.app.runs.model_pool import Offer, role_title
from decodescope.app.runs.model_prompts import model_prompts
from decodescope.app.runs.placed_key import known_devices
from decodescope.app.runs.preset_choice import apply_preset, find_preset
from decodescope.app.runs.preset_prompts import apply_preset_prompt
from decodescope.app.runs.prompt_encoding import no_template
from decodescope.app.runs.recipe import as_json, first_settings, from_json, initial_choice, replace_part
from decodescope.app.runs.run_service import MOST_NEW, RunChoice, RunInProgress, RunService
from decodescope.engine.core.arguments import Along
from decodescope.engine.core.component import registry, roles
from decodescope.engine.core.conversation import find_conversation
from decodescope.engine.core.reference import without_weights
from decodescope.engine.core.roles import BOTH, TARGET
from decodescope.engine.model.fetched.catalogue import fetchable_models, find_fetchable, is_fetched
from decodescope.engine.trace.records.events import LEVELS

from . import controls

# Again after the library's own styles, so that ours win; the first time they come with head.py.
STYLES = """
<link rel="stylesheet" href="ds/web/styles/scope.css">
<link rel="stylesheet" href="ds/web/styles/page.css">
<link rel="stylesheet" href="ds/web/styles/walk.css">
"""
# The scripts of the parts below: each passes its element to the page module, which lab/web/boot.js provides. `value` is JSON,
# inserted by textContent.
TOP = "window.decodescope((page) => page.showHeader(element));"
VIEW = "window.decodescope((page) => page.showPicture(element));"
TRANSPORT = "window.decodescope((page) => page.showTransport(element));"
OTHERS = "window.decodescope((page) => page.showPages(element));"
UNDER = "window.decodescope((page) => page.showUnderPrompt(element));"
MORE = "window.decodescope((page) => page.showMenu(element));"
SET = """
window.decodescope((page) => page.connectSettings((text) => {
  props.value = text;
  trigger('input');
}));
"""
LISTS = """
window.decodescope((page) => page.connectModelLists(() => {
  props.value = String(Date.now());
  trigger('input');
}));
"""
MODELS = "window.decodescope((page) => page.showModels(element));"
ANSWER = """
const tell = () => window.decodescope((page) => page.showAnswer(element, props.value));
tell();
watch('value', tell);
"""
STARTED = """
const tell = () => window.decodescope((page) => page.followRun(props.value));
watch('value', tell);
"""
COPIES = "window.decodescope((page) => page.showCopyButtons(element));"
KEPT = "() => window.decodescope((page) => page.readSettings())"
EMPTY = "<div></div>"
OWN = ""  # no preset; a list without a choice would report a choice to everybody who passes it with the keyboard
SHOWN = ("draft",)  # of the lists of further models; the others are shown if a method needs them
RECORDED = (  # content and cost of the levels
    "decisions: drafts, tests, likeliest tokens; some 2 kB a step. full: whole distributions and attention too, for "
    "what-if about temperature; 4 bytes per token of the vocabulary and row. summary: neither."
)
REFERENCE = (  # the same for an additional full cache
    "to see what eviction and packing cost: the attention that is missed, and how far the distribution drifts. All text "
    "is read a second time, which the run's times leave out."
)
WHOLE = (  # the same for the model that the target was made from
    "to see what the transforms of its weights cost: how far each distribution is from the one before, and what that would "
    "have said. Its weights are loaded too, and all text is read a second time."
)
# seconds after which the library checks again for events, and its progress interval; its own thousand checks a second take a
# third of the server's time while four runs arrive
LOOKS = (0.02, 0.1)
MOST_KEPT = 4 << 20  # characters of settings that are read
# preprocess: off, because the library would turn numbers, lists and objects into text, and true into a number. What it cannot
# read it would write to the log, with no sentence on the page.
# show_progress: off, because the library reports progress to each output of an event, visible or not. It searches the whole
# page for each, four thousand times before a page answers. Where there are many outputs, one is notified.
PRIVATE: Any = dict(api_visibility="private", show_progress="hidden", preprocess=False)


def build_page(play: RunService) -> gr.Blocks:
    """The page over `play`."""
    begin = initial_choice()
    with gr.Blocks(title="DecodeScope", fill_width=True, analytics_enabled=False) as demo:
        gr.HTML(elem_id="ds-top", html_template=EMPTY, js_on_load=TOP, apply_default_css=False)
        with gr.Row(elem_id="ds-grid"):
            with gr.Column(elem_id="ds-left"):
                gr.HTML(elem_id="ds-view", html_template=EMPTY, js_on_load=VIEW, apply_default_css=False)
            with gr.Column(elem_id="ds-right"):
                with gr.Column(elem_id="ds-start"):
                    presets = [(x.title, name) for name, x in PRESETS.items()]
                    with gr.Row(elem_id="ds-presets"):
                        preset = gr.Dropdown(
                            [*presets, ("Custom", OWN)],
                            value=controls.FIRST if "draft" in play.models.names else OWN,
                            label="Method",
                            filterable=False,
                            interactive=True,
                            min_width=120,
                            elem_id="ds-preset",
                        )
                        other = gr.Dropdown(
                            [("nothing", ""), *presets],
                            value="",
                            label="Compare with",
                            filterable=False,
                            interactive=True,
                            min_width=120,
                            elem_id="ds-other",
                        )
                    gr.HTML(elem_id="ds-more", html_template=EMPTY, js_on_load=MORE, apply_default_css=False)
                    prompt, chat, eos, kind = _prompt_inputs(begin)
                    with gr.Row(elem_id="ds-act"):
                        run = gr.Button("Run", variant="primary", elem_id="ds-run", min_width=72, scale=0)
                        gr.HTML(
                            elem_id="ds-transport",
                            html_template=EMPTY,
                            js_on_load=TRANSPORT,
                            apply_default_css=False,
                        )
                    answer = gr.HTML(
                        None,
                        elem_id="ds-answer",
                        html_template=EMPTY,
                        js_on_load=ANSWER,
                        apply_default_css=False,
                    )
                    seed, new = _number_inputs(begin)
                    level, reference, whole = _record_inputs(begin)
                    with gr.Row(elem_id="ds-choose"):
                        lists, place = _model_inputs(play)
                    weights = _weight_dropdowns(play)
                    gr.HTML(
                        None,
                        elem_id="ds-models",
                        html_template=EMPTY,
                        js_on_load=MODELS,
                        apply_default_css=False,
                    )
                    gr.HTML(
                        None,
                        elem_id="ds-copy",
                        html_template=EMPTY,
                        js_on_load=COPIES,
                        apply_default_css=False,
                    )
                with gr.Column(elem_id="ds-method"):
                    table = controls.build(draft="draft" in play.models.names)
                    table.models, table.weights = lists, weights
                    table.place = place
        gr.HTML(elem_id="ds-others", html_template=EMPTY, js_on_load=OTHERS, apply_default_css=False)
        kept = gr.Textbox("", elem_id="ds-kept", container=False, visible=False)
        started = gr.HTML(
            None, elem_id="ds-started", html_template=EMPTY, js_on_load=STARTED, apply_default_css=False
        )
        given = gr.HTML("", elem_id="ds-given", html_template=EMPTY, js_on_load=SET, apply_default_css=False)
        first = [prompt, seed, new, level, reference, whole, chat, eos, kind]
        _connect_run(play, table, run, started, other, first)
        hidden = {role: box for role, box in lists.items() if role not in (TARGET, *SHOWN)}
        _connect_settings(
            play,
            table,
            _connect_model_lists(play, lists, demo),
            [answer, preset, chat, *hidden.values()],
            [*hidden],
            started,
            kept,
            given,
            first,
        )
    return _enable_queue(demo)


def _enable_queue(demo: gr.Blocks) -> gr.Blocks:
    """The page with the queue of its events."""
    demo.queue(default_concurrency_limit=4, max_size=64, api_open=False)
    demo._queue.sleep_when_free, demo._queue.progress_update_sleep_when_free = LOOKS
    return demo


def _number_inputs(begin: RunChoice) -> tuple[gr.Number, gr.Number]:
    """Seed and new tokens, without the library's own limits: Run reports an invalid value with its name and place."""
    whole: Any = dict(precision=0, min_width=80)
    with gr.Row(elem_id="ds-numbers"):
        seed = gr.Number(begin.seed, label="Seed", elem_id="ds-seed", **whole)
        return seed, gr.Number(begin.max_new, label="New tokens", elem_id="ds-new", **whole)


def _prompt_inputs(begin: RunChoice) -> tuple[gr.Textbox, gr.Checkbox, gr.Checkbox, gr.Dropdown]:
    """The prompt, whether it is a user's turn, whether the text goes on after the end token, and what kind it is."""
    prompt = gr.Textbox(begin.prompt, label="Prompt", lines=3, max_lines=12, elem_id="ds-prompt")
    with gr.Row(elem_id="ds-switches"):
        more: Any = dict(interactive=True, container=False, min_width=120)
        chat = gr.Checkbox(begin.chat, label="Chat template", elem_id="ds-chat", **more)
        eos = gr.Checkbox(begin.ignore_eos, label="Ignore the end token", elem_id="ds-eos", **more)
        kinds = [(word, name) for name, word in KINDS.items()]
        kind = gr.Dropdown(
            kinds, value=begin.prompt_kind, label="The prompt is", elem_id="ds-kind", filterable=False, interactive=True,
            min_width=160,
        )  # fmt: skip
    gr.HTML(elem_id="ds-under", html_template=EMPTY, js_on_load=UNDER, apply_default_css=False)
    return prompt, chat, eos, kind


def _level_input(begin: str) -> gr.Dropdown:
    """What is recorded of a run, with what it costs."""
    more: Any = dict(filterable=False, interactive=True, elem_id="ds-level")
    return gr.Dropdown(list(LEVELS), value=begin, label="Trace level", info=RECORDED, **more)


def _record_inputs(begin: RunChoice) -> tuple[gr.Dropdown, gr.Checkbox, gr.Checkbox]:
    """The trace level, and the references that run too."""
    level = _level_input(begin.level)
    cache, whole = _reference_inputs(begin.reference)
    return level, cache, whole


def _reference_inputs(begin: Along) -> tuple[gr.Checkbox, gr.Checkbox]:
    """Check boxes: also run a full cache with the target, and compare with the original weights."""
    more: Any = dict(interactive=True, container=False, min_width=120)
    with gr.Column(elem_id="ds-along"):
        full, whole = _reference_states(begin)
        cache = gr.Checkbox(
            full, label="Also run a full cache", info=REFERENCE, elem_id="ds-reference", **more
        )
        made_of = "Compare with the original weights"
        return cache, gr.Checkbox(whole, label=made_of, info=WHOLE, elem_id="ds-whole", **more)


def _reference_states(reference: Along) -> tuple[bool, bool]:
    """The states of the two check boxes for references."""
    return reference is True, reference == "model"


def _model_rows(
    play: RunService, offers: Sequence[Offer], causal: bool | None = None
) -> list[tuple[str, str]]:
    """The rows of a list of models: the offered models, and those named on the command line even if they are not offered.
    causal: only models with a causal mask, or only models without one, as an additional role requires"""
    rows = [(x.label, x.key) for x in offers if causal in (None, x.spec.causal)]
    others = {_base_model(play, role) for role in play.models.names} - {x.key for x in offers}
    return rows + [(name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1], name) for name in sorted(others)]


def _base_model(play: RunService, role: str) -> str:
    """The initial model of a role, without its transforms; empty if there is none.
    A list without a box for transforms has it with them."""
    name = play.models.names.get(role, "")
    return str(without_weights(name)[0]) if role in (TARGET, *SHOWN) else name


def _role_rows(play: RunService, offers: Sequence[Offer], role: str) -> list[tuple[str, str]]:
    """The rows of the model list for an additional role, next to the target."""
    return [("none", ""), *_model_rows(play, offers, role not in BOTH)]


def _model_dropdown(
    name: str, rows: list[tuple[str, str]], label: str, place: str, shown: bool = True
) -> gr.Dropdown:
    """A list of models."""
    many = len(rows) > 8
    more: Any = dict(min_width=320, elem_id=place, visible=shown or bool(name))
    return gr.Dropdown(rows, value=name, label=label, filterable=many, interactive=True, **more)


def _model_inputs(play: RunService) -> tuple[dict[str, gr.Dropdown], dict[str, gr.Dropdown]]:
    """Role -> the list of its models; and the lists of their type and device."""
    offers = play.models.offers()  # once: it reads a config for each
    begin, rows = _base_model(play, TARGET), _model_rows(play, offers)
    lists = {TARGET: _model_dropdown(begin, rows, role_title(TARGET), f"ds-{TARGET}")}
    place = _place_dropdowns()
    for role in [x for x in dict.fromkeys((*SHOWN, *roles(), *play.models.names)) if x != TARGET]:
        name, shown = _base_model(play, role), role in SHOWN
        lists[role] = _model_dropdown(
            name, _role_rows(play, offers, role), role_title(role), f"ds-{role}", shown
        )
    return lists, place


def _place_dropdowns() -> dict[str, gr.Dropdown]:
    """The type of the numbers of all models, and their device."""
    rows = {"dtype": ("Type", DTYPES), "device": ("Device", known_devices())}
    return {
        name: gr.Dropdown(
            [("automatic", ""), *((x, x) for x in values)],
            value="",
            label=label,
            filterable=False,
            interactive=True,
            min_width=120,
            elem_id=f"ds-{name}",
        )
        for name, (label, values) in rows.items()
    }


def _weight_dropdowns(play: RunService) -> dict[str, gr.Dropdown]:
    """The weight transforms of a model before a run, by role; a transform that is not in the list may be typed."""
    rows = [("none", ""), *((cls.title, name) for name, cls in registry("weights").items())]
    more: Any = dict(min_width=120, filterable=True, allow_custom_value=True, interactive=True)
    with gr.Row(elem_id="ds-make"):
        return {
            role: gr.Dropdown(
                rows,
                value=without_weights(play.models.names.get(role, ""))[1],
                label=f"Weight compression of the {role_title(role).lower()}",
                elem_id=f"ds-{role}-weights",
                **more,
            )
            for role in (TARGET, *SHOWN)
        }


def _connect_run(
    play: RunService,
    table: controls.MethodControls,
    run: gr.Button,
    started: gr.HTML,
    other: gr.Dropdown,
    first: list[Any],
) -> None:
    """Run, one method or two, and the sentence why it cannot.
    Messages on the settings go elsewhere, because one would replace the other before it was read."""

    def start(request: gr.Request, second: str | None, *values: Any) -> dict[str, Any]:
        try:
            choice, visitor = table.choice(*values), str(request.session_hash or "")
            if second not in PRESETS:
                return {"run": play.start(choice, visitor).run, "at": time.monotonic()}
            channels = play.start_two(choice, apply_preset(choice, second, play.models.names), visitor)
            return {"run": channels[0].run, "with": channels[1].run}
        except RunInProgress as no:
            return {"refused": str(no), "going": no.run, "at": time.monotonic()}
        except RequestRefusal as no:
            return {"refused": str(no), "at": time.monotonic()}
        except Exception as error:  # never a stack trace on the page
            return {"refused": explain_error(error), "at": time.monotonic()}

    once: Any = dict(trigger_mode="once", concurrency_limit=4, **PRIVATE)
    run.click(start, [other, *first, *table.inputs], started, **once)


def _connect_settings(  # noqa: PLR0913
    play: RunService,
    table: controls.MethodControls,
    opening: Any,
    said: list[Any],
    further: list[str],
    started: gr.HTML,
    kept: gr.Textbox,
    given: gr.HTML,
    first: list[Any],
) -> None:
    """Connect the settings: they are changed, checked and stored by the browser.
    A preset, an example, a link or the next visit restores them. The reason why given settings cannot be read is shown at Run,
    because the check of the present settings would overwrite it elsewhere.

    said: outputs that describe the settings: the sentence why they cannot run, their preset, whether the target has a chat
    template, and the model lists for the roles `further`, shown where a role is needed.
    """

    def checked(*values: Any) -> list[Any]:
        try:
            choice = table.choice(*values)
            composed = play.compose(choice)
            shown = [
                gr.update(visible=role in {*composed.further_roles, *play.models.names, *choice.models})
                for role in further
            ]
            answer = {
                **_settings_summary(play, composed),
                "shown": table.visible_knobs(*table.part_values(values)),
            }
            return [
                answer,
                find_preset(composed.method, choice.models) or OWN,
                _chat_update(play, choice),
                *shown,
            ]
        except Exception as error:  # without this the library would ignore all later changes
            return [{"refused": explain_error(error)}, *[gr.skip()] * (len(said) - 1)]

    def chosen(*values: Any) -> list[Any]:
        return [*table.visibility(*table.part_values(values)), *checked(*values)]

    def composed(name: str, *values: Any) -> list[Any]:
        return _preset_updates(str(name), table, play, values, len(put_preset))

    def restored(text: Any, *values: Any) -> list[Any]:
        text = text or _first_text(play)
        try:
            choice = (
                _parse_settings(text[:MOST_KEPT], table, play, values)
                if text and isinstance(text, str)
                else None
            )
        except RequestRefusal as no:
            return [gr.skip()] * (len(put) - 1) + [{"refused": str(no), "at": time.monotonic()}]
        if choice is None:
            return [gr.skip()] * len(put)
        numbers = [max(0, choice.seed), min(MOST_NEW, max(1, choice.max_new))]
        kept_level = choice.level if choice.level in LEVELS else RunChoice.level
        said_so = [
            choice.prompt,
            *numbers,
            kept_level,
            *_reference_states(choice.reference),
            choice.chat,
            choice.ignore_eos,
            choice.prompt_kind,
        ]
        return [
            *said_so,
            *table.model_updates(choice.models, play.models.nearest_key),
            *table.place_updates(choice),
            *table.part_updates(choice),
            _missing_model_offer(choice) or gr.skip(),
        ]

    knobs = [*table.parts.values(), *table.knobs.values()]
    everything = [
        *first,
        *table.inputs,
    ]  # `checked` alone composes the result and names its preset
    quiet: Any = dict(show_progress_on=started, **PRIVATE)  # one box is updated, not hundreds: see PRIVATE
    last: Any = dict(inputs=everything, trigger_mode="always_last", **quiet)
    # not `input`, which fires for every list that loses focus, nor `select`, which no key triggers
    gr.on(
        [part.change for part in table.parts.values()], chosen, outputs=[*table.parts.values(), *said], **last
    )
    put = [*first, *table.model_inputs, *knobs, started]
    # one listener for all: one for each box would repeat the list of all boxes as often as there are boxes
    gr.on(
        [box.change for box in (*first, *table.model_inputs, *table.knobs.values())],
        checked,
        outputs=said,
        **last,
    )
    put_preset = [
        first[0],
        said[2],
        first[-1],
        *table.model_inputs,
        *knobs,
        started,
    ]  # the prompt, whether it is a user's turn, and what it is
    preset, now = said[1], [said[1], first[0], said[2], first[-1], *table.model_inputs]
    preset.input(composed, now, put_preset, trigger_mode="always_last", **quiet).then(
        checked, everything, said, **quiet
    )
    opening.then(restored, kept, put, js=KEPT, **quiet).then(checked, everything, said, **quiet)
    given.input(restored, [given, *everything], put, **quiet).then(checked, everything, said, **quiet)


def _first_text(play: RunService) -> str:
    """The settings of a first visit if the page begins with a model that was fetched; empty otherwise."""
    name = play.models.names[TARGET]
    return "" if find_fetchable(name) is None or play.models.offer(name) is None else first_settings(name)


def _missing_model_offer(choice: RunChoice) -> dict[str, Any]:
    """What the page says about settings whose model is missing and can be fetched; nothing for others."""
    for name in choice.models.values():
        if (missing := missing_model(str(without_weights(name)[0]))) is not None:
            why = f"These settings are for {missing.title}, which is not on this machine yet: get it, or choose another model."
            return {"refused": why, "offer": missing.name, "at": time.monotonic()}
    return {}


def _connect_model_lists(play: RunService, lists: Mapping[str, gr.Dropdown], demo: gr.Blocks) -> Any:
    """Fill the lists of models again when a model was fetched: on every page that is opened later, and when one says so.
    Returns the event of opening, for what has to follow it."""

    def fetched_now() -> tuple[Any, ...]:
        return (play.downloads.completed, *map(is_fetched, fetchable_models()))

    built = fetched_now()

    def rows_again() -> list[Any]:
        if fetched_now() == built:
            return [gr.skip()] * len(lists)
        offers = play.models.offers()
        return [
            gr.update(choices=_model_rows(play, offers) if role == TARGET else _role_rows(play, offers, role))
            for role in lists
        ]

    relist = gr.HTML("", elem_id="ds-lists", html_template=EMPTY, js_on_load=LISTS, apply_default_css=False)
    quiet: Any = dict(show_progress_on=relist, **PRIVATE)
    relist.input(rows_again, None, [*lists.values()], **quiet)
    return demo.load(rows_again, None, [*lists.values()], **quiet)


def _preset_updates(
    name: str, table: controls.MethodControls, play: RunService, values: Sequence[Any], count: int
) -> list[Any]:
    """The new values for a preset: prompt, chat template, kind of prompt, model lists (now `values`), controls and the refusal,
    `count` in all.
    If a model of the preset is not here, they stay. What the preset does not change is left alone: another model may have
    been chosen meanwhile."""
    preset = PRESETS.get(name)
    if preset is None:
        return [gr.skip()] * count
    if gone := [x for x in preset.models.values() if play.models.nearest_key(x) is None]:
        why = f"{preset.title} is made for the model {gone[0]}, which is not here: choose another method."
        return [gr.skip()] * (count - 1) + [{"refused": why, "at": time.monotonic()}]
    text, chat, kind, *names = values
    now = RunChoice(text if isinstance(text, str) else "", models=table.model_names(names), chat=chat is True)
    now.prompt_kind = kind
    choice = apply_preset_prompt(apply_preset(now, name, play.models.names), name, initial_choice())
    written = [
        gr.skip() if new == old else new
        for new, old in (
            (choice.prompt, now.prompt),
            (choice.chat, now.chat),
            (choice.prompt_kind, now.prompt_kind),
        )
    ]
    lists = zip(
        [*table.models, *table.weights],
        table.model_updates(choice.models, play.models.nearest_key),
        strict=True,
    )
    models = [
        gr.skip() if choice.models.get(role) == now.models.get(role) else become for role, become in lists
    ]
    return [*written, *models, *[gr.skip() for _ in table.place], *table.part_updates(choice), gr.skip()]


def _settings_summary(play: RunService, composed: Composition) -> dict[str, Any]:
    """A summary of settings for the page: memory of a run, prompt in its chat template, notes on it, and why they cannot run.
    It also contains the settings, for storage."""
    choice = composed.choice
    read = play.encode_prompt(choice) if choice.source.is_templated or choice.prompt_kind == "ids" else None
    chats = has_chat_template(play, play.model_keys(choice)) and choice.prompt_kind in ("text", "messages")
    talk = find_conversation(choice.prompt) if chats else None
    takes = play.estimate_memory(choice, method=composed.method)
    said: dict[str, Any] = {
        "keep": as_json(choice),
        "memory": takes.sentence,
        "given": "" if read is None else read.text,
    }
    said |= {"kind": choice.prompt_kind, "talk": "" if talk is None else talk.summary}
    said |= {"notes": [*notes(play, choice), *drafting_remarks(play, composed)]}
    reader = target_reader(play, play.model_keys(choice))
    said["prompts"] = [] if reader is None else [asdict(x) for x in model_prompts(reader)]
    if composed.why:
        said |= {"refused": composed.why, "offer": composed.offer, "instead": composed.instead}
    return said


def _chat_update(play: RunService, choice: RunChoice) -> dict[str, Any]:
    """The state of the switch for the chat template: off and disabled, with the reason, if the target has none."""
    reader = play.models.reader(play.model_keys(choice).get(TARGET, ""))
    there = has_chat_template(play, play.model_keys(choice))
    if choice.prompt_kind != "text":
        return gr.update(interactive=False, info=f"for plain text; this is {KINDS[choice.prompt_kind]}.")
    if there or reader is None:
        return gr.update(interactive=True, info=None)
    return gr.update(value=False, interactive=False, info=controls.escape_markup(f"{no_template(reader)}."))


def _parse_settings(
    text: str, table: controls.MethodControls, play: RunService, values: Sequence[Any]
) -> RunChoice:
    """Parse the settings in a text. "use KIND NAME" means the present settings (`values`) with one part replaced."""
    word, _, part = text.partition(" ")
    if word != "use" or not values:
        return from_json(text)
    kind, _, name = part.partition(" ")
    return replace_part(table.choice(*values), kind, name, play.check)
