"""Forward passes: what is fed, what rows see, the decoder with its three ways through the layers, and the executor."""
