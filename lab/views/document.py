"""Document: one self-contained HTML file that may fetch nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping


def document(body: str, parts: Mapping[str, str], style: str = "<style>@@STYLE@@</style>") -> str:
    """The whole file; `body` spans from the beginning of <main> to the end.
    Each @@NAME@@ is replaced by parts["NAME"] as it is. In addition to the names in the body, POLICY, TITLE and the names in
    `style`, the end of the head, are needed."""
    html = re.sub(r"@@([A-Z]+)@@", lambda match: parts[match[1]], _HEAD + style + _BODY + body)
    return html.encode("utf-8", "replace").decode("utf-8")


_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="@@POLICY@@">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>@@TITLE@@</title>
"""
_BODY = """
</head>
<body>
<main>
"""
