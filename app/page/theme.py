"""Theme: our colours and type on the page library's inputs."""

from __future__ import annotations

from gradio.themes.base import Base
from gradio.themes.utils import colors, sizes

from decodescope.lab.formatting.style import DARK, LIGHT, MONO, SANS

# variable of the library -> our colour of that name, the same in its light and its dark theme
COLOURS = {
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


def theme() -> Base:
    """Our colours and type on the library's inputs."""
    values = {name: LIGHT[token] for name, token in COLOURS.items()}
    values |= {f"{name}_dark": DARK[token] for name, token in COLOURS.items()}
    look = Base(
        primary_hue=colors.gray,
        secondary_hue=colors.gray,
        neutral_hue=colors.gray,
        text_size=sizes.text_sm,
        spacing_size=sizes.spacing_sm,
        radius_size=sizes.radius_sm,
        font=list(SANS),
        font_mono=list(MONO),
    )
    return look.set(
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
