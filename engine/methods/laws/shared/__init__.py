"""What several laws use."""
