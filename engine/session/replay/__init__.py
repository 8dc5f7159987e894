"""Recorded runs gone through again: forks, forced verdicts, what-ifs, and every outcome of chance."""
