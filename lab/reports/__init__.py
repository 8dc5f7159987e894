"""Acceptance reportd, over several runs."""
