"""Samplers: from logits to the law that the next token is drawn from; one file each."""
