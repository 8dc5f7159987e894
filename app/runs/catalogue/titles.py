"""Titles: the display name of each kind of part, on the page and in the catalogue."""

from __future__ import annotations

# kind -> its label
TITLES = {
    "strategy": "Strategy",
    "drafter": "Drafter",
    "schedule": "Schedule",
    "acceptance": "Acceptance",
    "prompt_compression": "Prompt compression",
    "policy": "Cache policy",
    "kv_compression": "KV compression",
    "adaptive_depth": "Adaptive depth",
    "unmasking": "Unmasking",
    "router": "Router",
    "guidance": "Guidance",
    "sampler": "Sampler chain",
    "weights": "Weights",
}
