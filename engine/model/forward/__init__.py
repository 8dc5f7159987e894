"""Forward passes: what is fed, what rows see, the decoder and its executor."""
