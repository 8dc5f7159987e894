"""What several weight transforms use."""
