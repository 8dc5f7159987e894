"""Real models that one command fetches: which there are, where they come from, where they lie. No torch."""
