"""Strategies that fill a canvas of masked places, by a model that reads both sides of a text."""
