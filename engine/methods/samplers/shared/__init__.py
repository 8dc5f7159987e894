"""What several samplers use."""
