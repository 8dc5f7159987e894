"""Contexts: what of a prompt the target reads; one file each."""
