"""Trace files: written, read, recovered, and opened as one run."""
