"""From a model's folder to its shape, weights, tokenizer and chat template."""
