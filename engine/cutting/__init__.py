"""Cutting: models made of a model by taking parts of it away: heads, and whole blocks."""
