"""What passes cost: operators and their sum, a machine's roofs, when drafting pays. No torch."""
