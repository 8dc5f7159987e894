"""Figures for a notebook, by plotly."""
