"""Decoding a text: load a model, compose a method, run it, alone, in a batch or once more."""
