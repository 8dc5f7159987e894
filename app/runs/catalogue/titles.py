"""Titles: what page and catalogue call each kind of part."""

from __future__ import annotations

# kind -> its label
TITLES = {
    "strategy": "Strategy",
    "drafter": "Drafter",
    "schedule": "Schedule",
    "acceptance": "Acceptance",
    "context": "Prompt compression",
    "policy": "Cache policy",
    "codec": "Cache codec",
    "depth": "Depth",
    "selector": "Selector",
    "router": "Router",
    "law": "Law",
    "sampler": "Sampler chain",
    "weights": "Weights",
}
