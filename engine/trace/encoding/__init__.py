"""From records to bytes and back, and what a run has in common with the one that it was forked from."""
