"""Acceptance rules: how much of a draft the target keeps; one file each."""
