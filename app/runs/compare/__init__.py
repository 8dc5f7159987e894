"""Several runs: side by side, in one pass, over a set of prompts."""
