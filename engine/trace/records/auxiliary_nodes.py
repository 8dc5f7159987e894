"""Auxiliary nodes: nodes of a draft that take part in the pass but are never accepted, and how to separate them."""

from __future__ import annotations

from decodescope.engine.core.tree import depths

from .events import DraftTree


def drafted_nodes(draft: DraftTree | None) -> list[int]:
    """The nodes that were proposed, ascending."""
    if draft is None:
        return []
    aside = set(draft.passengers or ())
    return [node for node in range(len(draft.tokens)) if node not in aside]


def drafted_depths(draft: DraftTree | None) -> list[int]:
    """The depth of each node that was proposed; children of the root have 1."""
    if draft is None:
        return []
    deep = depths(draft.parents)
    return [deep[node] for node in drafted_nodes(draft)]


def acceptable_mask(draft: DraftTree) -> list[bool] | None:
    """Per node whether it might be accepted; None: each."""
    return (
        [node not in set(draft.passengers) for node in range(len(draft.tokens))] if draft.passengers else None
    )
