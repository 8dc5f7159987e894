"""Sessions: signed cookies that say who has signed in. Nothing is stored for a session but that it was ended."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable

LIFE = 12 * 3600  # seconds


class Sessions:
    """Makes and reads the values of cookies. They hold until LIFE is over, the server ends, or the secret behind them changes.

    secret_of(name): the token or the stored hash that the name signed in with now; None if it may not come in any more
    """

    def __init__(self, secret_of: Callable[[str], str | None], now: Callable[[], float] = time.monotonic):
        self._secret_of, self._now = secret_of, now
        self._key = secrets.token_bytes(32)
        self._ended: dict[str, float] = {}  # value of a cookie -> when it would have expired

    def issue(self, name: str) -> str:
        """A new cookie value for this name; "" is everybody who has the token."""
        encoded = base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")
        said = f"{int(self._now()) + LIFE}.{encoded}.{secrets.token_urlsafe(12)}"
        return f"{said}.{self._sign(said, self._secret_of(name) or '')}"

    def name_in(self, value: str) -> str | None:
        """The name in a cookie value; None if it does not hold."""
        said, _, signature = value.rpartition(".")
        parts = said.split(".")
        if len(value) > 1024 or len(parts) != 3 or not (value.isascii() and parts[0].isdigit()):
            return None
        try:
            name = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)).decode()
        except ValueError:
            return None
        secret = self._secret_of(name)
        right = hmac.compare_digest(signature, self._sign(said, secret or ""))
        holds = right and secret is not None and int(parts[0]) > self._now() and value not in self._ended
        return name if holds else None

    def end(self, value: str) -> None:
        """End the session of this cookie value."""
        if self.name_in(value) is None:
            return
        now = self._now()
        self._ended = {old: until for old, until in self._ended.items() if until > now}
        self._ended[value] = now + LIFE

    def _sign(self, said: str, secret: str) -> str:
        return hmac.new(self._key, f"{said}\n{secret}".encode(), hashlib.sha256).hexdigest()
