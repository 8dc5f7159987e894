"""The entries of the target's cache: their lives, their attention, the text that they held."""
