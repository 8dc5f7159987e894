"""What several codecs use."""
