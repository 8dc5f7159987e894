"""Attention of one layer: kernels that read at once, by head or in segments, and the dispatch that chooses one."""
