"""Toy models, contracts for each kind of part, and exact output distributions by enumeration of all random outcomes.

The project's tests use this package, and authors of third-party parts can use it too.
It may import the engine, but not lab or app.
"""
