"""Drafters that run some of the target's own layers."""
