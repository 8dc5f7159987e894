"""Heads in the files of their authors."""
