"""One decision told: what was tested, with which numbers, and what was left."""
