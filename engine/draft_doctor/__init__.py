"""The draft doctor: why a draft is refused, from both models' distributions on the same texts, and what to repair.

It reads teacher-forced, repeats the reading with one thing changed at a time, and names causes. It knows nothing of how a
draft was broken: `benchmarks/broken_drafts.py` makes broken pairs and keeps them to itself.
"""
