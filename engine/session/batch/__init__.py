"""Many prompts at once: which of them begin alike, and their texts, in groups that share a prefix."""
