"""The pieces of a layer: matrices, norm, rotary positions, gates, and the columns of a cache."""
