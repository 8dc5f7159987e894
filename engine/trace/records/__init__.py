"""The records of a run: header, prompt, steps, end, and what is read off one of them."""
