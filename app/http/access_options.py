"""Access options: what the owner typed about who may come in, checked and made settings of the guard."""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from decodescope.engine.core.paths import expand_path
from decodescope.engine.core.refusal import Refusal

from .access import AccessSettings
from .users import UserFile
from .visitor import Network

TOKEN_VARIABLE = "DECODESCOPE_TOKEN"  # of the environment: the token to use, in the place of a new one
SHORTEST_TOKEN = 16
_TOKEN = re.compile(r"[\w.~-]{16,256}", re.ASCII)  # what an address holds without escapes
_PREFIX = re.compile(r"(?:/[\w.~@-]+)+", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")


class ServeError(Refusal):
    """The server cannot be started like this. One sentence."""


@dataclass(frozen=True)
class AccessOptions:
    """The options of `decodescope app` about who may come in, as typed.

    require_token: ask visitors of this machine for the token too;  proxies: addresses or networks of proxies
    """

    allow_host: str | None = None
    root_path: str | None = None
    require_token: bool = False
    users: str | Path | None = None
    user_header: str | None = None
    proxies: tuple[str, ...] = ()
    secure: bool = False


def allowed_hosts(host: str, allow_host: str | None) -> list[str]:
    """The further hosts that are accepted; raises ServeError if `host` is open to others and none is named."""
    names = [x.strip() for x in (allow_host or "").split(",") if x.strip()]
    if not is_loopback(host) and not names:
        raise ServeError(
            f"--host {host} lets other machines in: say under which name with --allow-host NAME, or leave --host out."
        )
    return names


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def access_settings(host: str, options: AccessOptions) -> AccessSettings:
    """The settings of a server that listens on `host`; raises ServeError. Where others can reach it everybody has to sign in:
    with a name of the file, by a name from the proxy, or with the token."""
    names = tuple(allowed_hosts(host, options.allow_host))
    if options.users is not None and options.user_header is not None:
        raise ServeError("--users and --user-header both say who asks: leave one of them out.")
    if options.user_header is not None and not _HEADER.fullmatch(options.user_header):
        raise ServeError(
            f"--user-header {options.user_header[:80]!r} is no name of a header: give one such as X-Remote-User."
        )
    if options.user_header is not None and not options.proxies:
        raise ServeError("--user-header needs --proxy ADDRESS: anybody else could send such a header too.")
    users = None if options.users is None else UserFile(expand_path(options.users))
    named = users is not None or options.user_header is not None
    asked = not named and (bool(names) or not is_loopback(host) or options.require_token)
    return AccessSettings(
        names=names,
        root_path=_read_prefix(options.root_path),
        token=_choose_token() if asked else None,
        users=users,
        user_header=options.user_header,
        proxies=tuple(_read_network(x) for x in options.proxies),
        secure=options.secure,
    )


def page_addresses(host: str, port: int, access: AccessSettings) -> list[str]:
    """The addresses of the page that are worth printing: as others reach it, then as this machine does."""
    query = "" if access.token is None else f"?token={access.token}"
    local = f"[{host.strip('[]')}]" if ":" in host else host
    here = f"http://{local}:{port}/{query}"
    if not access.names:
        return [here]
    name = access.names[0]
    # on a loopback address others come through a proxy, which has a port of its own
    there = "" if is_loopback(host) or ":" in name.split("]")[-1] else f":{port}"
    scheme = "https" if access.secure else "http"
    public = f"{scheme}://{name}{there}{access.root_path}/{query}"
    return [public, here] if is_loopback(host) else [public]


def _choose_token() -> str:
    given = os.environ.get(TOKEN_VARIABLE)
    if given is None:
        return secrets.token_urlsafe(24)
    if not _TOKEN.fullmatch(given):
        raise ServeError(
            f"{TOKEN_VARIABLE} is no token: use {SHORTEST_TOKEN} to 256 letters, digits or . _ ~ -, or leave it out."
        )
    return given


def _read_prefix(text: str | None) -> str:
    prefix = (text or "").rstrip("/")
    if prefix and not (_PREFIX.fullmatch(prefix) and len(prefix) <= 1024 and "/.." not in prefix):
        raise ServeError(
            f"--root-path {prefix[:80]!r} is no path: begin it with /, and use letters, digits or . _ ~ @ - in its parts."
        )
    return prefix


def _read_network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise ServeError(
            f"--proxy {text[:80]!r} is no address: give one such as 127.0.0.1, or a network such as 10.0.0.0/8."
        ) from None
