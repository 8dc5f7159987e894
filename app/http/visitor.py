"""Visitor: where a request comes from, also through the proxies that the owner named."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from .asgi import Scope, header_values

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
NARROW = 64  # bits of an IPv6 address that one visitor has for itself


@dataclass(frozen=True)
class Visitor:
    """Where a request comes from.

    key: whose attempts are counted together;  named_proxy: it came through a proxy that the owner named
    https: that proxy says that the visitor's connection is encrypted
    """

    key: str
    named_proxy: bool
    https: bool


def find_visitor(scope: Scope, proxies: Sequence[Network]) -> Visitor:
    """The visitor of a request. What the request itself says of this is believed from a named proxy only."""
    peer = _parse_address((scope.get("client") or ("", 0))[0])
    if peer is None or not _is_among(peer, proxies):
        return Visitor(_attempt_key(peer), False, False)
    address: Address | None = peer
    chain = ",".join(header_values(scope, b"x-forwarded-for"))
    for one in reversed(chain.split(",")[-20:] if chain else []):  # each proxy appends whom it answers
        hop = _parse_address(one.strip())
        if hop is None:
            break
        address = hop
        if not _is_among(hop, proxies):
            break
    ways = header_values(scope, b"x-forwarded-proto")
    https = len(ways) == 1 and ways[0].split(",")[-1].strip().lower() in ("https", "wss")
    return Visitor(_attempt_key(address), True, https)


def _parse_address(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _is_among(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in one for one in networks if one.version == address.version)


def _attempt_key(address: Address | None) -> str:
    if address is None:
        return "?"
    if address.version == 6:
        return str(ipaddress.ip_network((int(address) >> (128 - NARROW) << (128 - NARROW), NARROW)))
    return str(address)
