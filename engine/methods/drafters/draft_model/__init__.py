"""Drafters that ask a second, smaller model."""
