"""Body: the content of a request, bytes or a JSON object, read no further than its limit."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request

from decodescope.app.basis.refusal import RequestRefusal


async def read_body(request: Request, most: int, what: str = "The request") -> bytes:
    """The body of at most `most` bytes; `what`: its name in messages. Raises RequestRefusal."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            limit = f"{most >> 20} MiB" if most >= 1 << 20 else f"{most >> 10} KiB"
            raise RequestRefusal(f"{what} is larger than {limit}, which is the limit.")
    return bytes(body)


async def read_json_body(request: Request, most: int) -> dict[str, Any]:
    """The object of at most `most` bytes; an empty body is an empty object. Raises RequestRefusal."""
    body = await read_body(request, most)
    try:
        said = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        raise RequestRefusal("The request is no JSON.") from None
    if not isinstance(said, dict):
        raise RequestRefusal("The request must be a JSON object.")
    return said
