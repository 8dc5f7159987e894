"""Runs, models and recorded files, as page and command line use them."""
