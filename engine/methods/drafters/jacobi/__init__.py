"""Drafters whose guesses are what the target itself chose in earlier passes over guesses: Jacobi iteration behind the text."""
