"""Weights: models made of a model; one file each."""
