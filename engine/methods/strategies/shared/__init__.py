"""What strategies are made of. No method stands here."""
