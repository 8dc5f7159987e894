"""Derive the claims of a record again from the rest of it."""
