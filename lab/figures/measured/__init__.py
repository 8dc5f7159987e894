"""Figures of measurements over many runs."""
