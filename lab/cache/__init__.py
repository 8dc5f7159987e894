"""The entries of the target's cache: their lifetimes, their attention, and the text that they held."""
