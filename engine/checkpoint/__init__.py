"""The place of `engine.model.checkpoint` in version 0.1, for scripts that import the tokenizer from here."""
