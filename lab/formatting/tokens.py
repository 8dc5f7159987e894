"""Tokens as text in Python's views: the same symbols as in web/scope/shared/tokens.js, and none of it markup."""

from __future__ import annotations

import html

from decodescope.engine.trace.records.pieces import visible_piece, visible_token

__all__ = ["escape_html", "visible_piece", "visible_token"]


def escape_html(text: object) -> str:
    """`text` as content or quoted attribute of HTML."""
    return html.escape(str(text), quote=True)
