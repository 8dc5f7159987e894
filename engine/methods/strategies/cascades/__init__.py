"""Strategies of two models, one of which is asked only where the other is not enough."""
