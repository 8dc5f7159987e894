"""Strategies that write the cells of a picture, several in a pass."""
