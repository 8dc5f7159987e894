"""Drafters that copy: from the prompt, the text so far, or a body of other texts."""
