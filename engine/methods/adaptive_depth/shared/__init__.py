"""What several depth rules use."""
