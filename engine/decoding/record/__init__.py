"""The end of a step: what a verdict makes of the text, and the record of it."""
