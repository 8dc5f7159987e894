"""What details claim, derived again: each check is found by the name that a declaration gives."""
