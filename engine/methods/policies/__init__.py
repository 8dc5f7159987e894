"""Cache policies: which KV entries a lane keeps; one file each."""
