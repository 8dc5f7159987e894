"""Figures for a notebook, by plotly."""

from decodescope.engine.core.extras import require

require("notebooks", "decodescope.lab.figures", ("plotly",))
