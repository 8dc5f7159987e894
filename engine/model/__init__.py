"""A transformer that reads a feed against a cache, one pass at a time."""
