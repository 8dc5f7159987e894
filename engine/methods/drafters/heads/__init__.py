"""Drafters that read trained heads on the target's states."""
