"""Depth: which layers run; one file each."""
