"""A prompt's cache in a file: keys and values as integers, and these in as few bits as their frequencies allow."""
