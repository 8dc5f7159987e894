"""What several contexts share."""
