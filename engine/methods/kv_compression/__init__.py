"""Codecs: how the entries of a cache are stored; one file each."""
