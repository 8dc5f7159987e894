"""Shared by all packages of the app: limits, places on disk, refusals and the command line's grammar."""
