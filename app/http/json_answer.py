"""JSON answer: plain data as an answer to the browser, whatever characters it holds."""

from __future__ import annotations

import json
from typing import Any

from fastapi.responses import JSONResponse


class JsonAnswer(JSONResponse):
    """Plain data as JSON. Half of a pair of characters, which a request may hold and a sentence may quote, becomes "?"."""

    def render(self, content: Any) -> bytes:
        """The bytes of the answer."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")
