"""The KV cache and its stores, one layer each."""
