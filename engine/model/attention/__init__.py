"""Attention of one layer: at once, by head, or in segments."""
