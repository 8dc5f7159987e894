"""Body: the JSON object that a request brings, read no further than its limit."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request

from decodescope.app.refusal import Refused


async def body_of(request: Request, most: int) -> dict[str, Any]:
    """The object of at most `most` bytes; an empty body is an empty one. Raises Refused."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise Refused(f"The request is larger than {most >> 10} KiB, which is the limit.")
    try:
        found = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        raise Refused("The request is no JSON.") from None
    if not isinstance(found, dict):
        raise Refused("The request must be a JSON object.")
    return found
