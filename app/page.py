"""The page: layout and events. What moves on it is drawn by lab/web/scope.js; values go there as data, never as markup."""

from __future__ import annotations

from typing import Any

import gradio as gr

from ..lab.style import DARK, LIGHT, MONO, SANS
from . import controls
from .play import Play, Refused, told

HEAD = """
<link rel="stylesheet" href="/ds/web/scope.css">
<link rel="stylesheet" href="/ds/web/page.css">
<link rel="modulepreload" href="/ds/web/scope.js">
<link rel="modulepreload" href="/ds/web/page.js">
"""
# The scripts of the parts below: each hands its element to the page module. `value` is JSON, put in by textContent.
TOP = "import('/ds/web/page.js').then((page) => page.top(element));"
VIEW = "import('/ds/web/page.js').then((page) => page.view(element));"
TRANSPORT = "import('/ds/web/page.js').then((page) => page.transport(element));"
MODELS = "import('/ds/web/page.js').then((page) => page.models(element));"
ANSWER = """
const tell = () => import('/ds/web/page.js').then((page) => page.answer(element, props.value));
tell();
watch('value', tell);
"""
EMPTY = "<div></div>"
PROMPT = "Once upon a time, there was a little"


def theme() -> gr.themes.Base:
    """Our colours and type on the library's inputs."""
    pairs = {
        "body_background_fill": "bg",
        "background_fill_primary": "bg",
        "background_fill_secondary": "bg",
        "block_background_fill": "bg",
        "block_label_background_fill": "bg",
        "panel_background_fill": "bg",
        "body_text_color": "ink",
        "body_text_color_subdued": "muted",
        "block_label_text_color": "muted",
        "block_title_text_color": "ink",
        "block_info_text_color": "muted",
        "border_color_primary": "line",
        "border_color_accent": "ink",
        "color_accent_soft": "panel",
        "input_background_fill": "bg",
        "input_background_fill_focus": "bg",
        "input_border_color": "edge",
        "input_border_color_focus": "ink",
        "input_placeholder_color": "faint",
        "slider_color": "ink",
        "checkbox_background_color": "bg",
        "checkbox_background_color_selected": "ink",
        "checkbox_border_color": "edge",
        "checkbox_border_color_selected": "ink",
        "checkbox_label_background_fill": "bg",
        "button_primary_background_fill": "ink",
        "button_primary_background_fill_hover": "ink",
        "button_primary_border_color": "ink",
        "button_primary_text_color": "bg",
        "button_secondary_background_fill": "bg",
        "button_secondary_border_color": "edge",
        "button_secondary_text_color": "ink",
        "link_text_color": "ink",
    }
    values = {name: LIGHT[token] for name, token in pairs.items()}
    values |= {f"{name}_dark": DARK[token] for name, token in pairs.items()}
    made = gr.themes.Base(
        primary_hue=gr.themes.colors.gray,
        secondary_hue=gr.themes.colors.gray,
        neutral_hue=gr.themes.colors.gray,
        text_size=gr.themes.sizes.text_sm,
        spacing_size=gr.themes.sizes.spacing_sm,
        radius_size=gr.themes.sizes.radius_sm,
        font=list(SANS),
        font_mono=list(MONO),
    )
    return made.set(
        **values,
        block_border_width="0px",
        block_padding="0px",
        block_shadow="none",
        block_label_border_width="0px",
        block_title_text_weight="600",
        block_title_text_size="12px",
        block_info_text_size="11px",
        input_shadow="none",
        input_shadow_focus="none",
        input_border_width="1px",
        button_primary_shadow="none",
        button_secondary_shadow="none",
        shadow_drop="none",
        layout_gap="8px",
    )


def page(play: Play) -> gr.Blocks:
    """The page over `play`."""
    with gr.Blocks(title="DecodeScope", fill_width=True, analytics_enabled=False) as demo:
        gr.HTML(elem_id="ds-top", html_template=EMPTY, js_on_load=TOP, apply_default_css=False)
        with gr.Row(elem_id="ds-grid"):
            with gr.Column(elem_id="ds-left"):
                gr.HTML(elem_id="ds-view", html_template=EMPTY, js_on_load=VIEW, apply_default_css=False)
            with gr.Column(elem_id="ds-right"):
                with gr.Column(elem_id="ds-start"):
                    prompt = gr.Textbox(PROMPT, label="Prompt", lines=3, max_lines=12, elem_id="ds-prompt")
                    with gr.Row(elem_id="ds-act"):
                        run = gr.Button("Run", variant="primary", elem_id="ds-run", min_width=72, scale=0)
                        gr.HTML(elem_id="ds-transport", html_template=EMPTY, js_on_load=TRANSPORT, apply_default_css=False)
                    answer = gr.HTML(None, elem_id="ds-answer", html_template=EMPTY, js_on_load=ANSWER, apply_default_css=False)
                    with gr.Row(elem_id="ds-numbers"):
                        seed = gr.Number(7, label="Seed", precision=0, minimum=0, min_width=80, elem_id="ds-seed")
                        new = gr.Number(
                            64, label="New tokens", precision=0, minimum=1, maximum=4096, min_width=80, elem_id="ds-new"
                        )
                    gr.HTML(elem_id="ds-models", html_template=EMPTY, js_on_load=MODELS, apply_default_css=False)
                with gr.Column(elem_id="ds-method"):
                    table = controls.build(draft="draft" in play.names)
        _events(play, table, run, answer, [prompt, seed, new])
    demo.queue(default_concurrency_limit=4, max_size=64, api_open=False)
    return demo


def _events(play: Play, table: controls.Controls, run: gr.Button, answer: gr.HTML, first: list[Any]) -> None:
    """What happens when."""

    def start(request: gr.Request, *values: Any) -> dict[str, Any]:
        try:
            return {"run": play.start(table.choice(*values), str(request.session_hash or "")).run}
        except Refused as no:
            return {"refused": str(no)}
        except Exception as error:  # never a stack trace on the page
            return {"refused": told(error)}

    def checked(*values: Any) -> dict[str, Any]:
        why = play.check(table.choice("-", 0, 1, *values))
        return {"refused": why} if why else {}

    def chosen(*values: Any) -> list[Any]:
        return [*table.visibility(*values[: len(table.parts)]), checked(*values)]

    private: Any = dict(api_visibility="private", show_progress="hidden")
    run.click(start, [*first, *table.inputs], answer, trigger_mode="once", concurrency_limit=4, **private)
    for part in table.parts.values():
        part.input(chosen, table.inputs, [*table.shown, answer], trigger_mode="always_last", **private)
    for knob in table.knobs.values():
        knob.change(checked, table.inputs, answer, trigger_mode="always_last", **private)  # type: ignore[attr-defined] # every input has it
