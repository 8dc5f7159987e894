"""Strategies: one decoding step, from committed tokens to more committed tokens; one file each."""
