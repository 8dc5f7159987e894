"""The vocabulary of the whole project: knobs, parts and their registry, a model's shape, requests to passes. No torch."""
