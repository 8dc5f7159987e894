"""Shared: the words in which several selectors say why a place was settled."""
