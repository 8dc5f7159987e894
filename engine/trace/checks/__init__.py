"""What a record claims, derived again from the rest of it."""
