"""Drafters: what guesses the tokens after the root; one file each."""
