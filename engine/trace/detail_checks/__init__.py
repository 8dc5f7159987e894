"""Derive the claims of details again: each check is found by the name in a declaration."""
