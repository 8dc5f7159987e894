"""Tokens as text in Python's views: the same symbols as in web/scope/tokens.js, and none of it markup."""

from __future__ import annotations

import html

from decodescope.engine.trace.records.pieces import shown, shown_id

__all__ = ["escaped", "shown", "shown_id"]


def escaped(text: object) -> str:
    """`text` as content or quoted attribute of HTML."""
    return html.escape(str(text), quote=True)
