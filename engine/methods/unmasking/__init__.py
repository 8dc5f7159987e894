"""Selectors: which open places of a canvas are committed in a pass; one file each."""
