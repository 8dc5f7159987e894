"""Measurements: questions and their scores, methods in turns, and the figures of it."""
