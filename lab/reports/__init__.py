"""Acceptance report over several runs."""
