"""Runs, models and recorded files, as page and command line handle them."""
