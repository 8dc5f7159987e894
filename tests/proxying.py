"""A reverse proxy for tests: it serves a lab below a path prefix, as JupyterHub and nginx do."""

from __future__ import annotations

import http.client
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

HOP = ("connection", "transfer-encoding", "keep-alive")


@contextmanager
def proxied(lab: str, prefix: str, *, keeps_host: bool = True, strips: bool = True) -> Iterator[str]:
    """Serve the lab at the address `lab` below a prefix, and yield the address there.

    keeps_host: the proxy passes the browser's Host on;  strips: it takes the prefix off
    """

    class Proxy(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            if not self.path.startswith(prefix + "/"):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("content-length") or 0)) or None
            behind = urlsplit(lab).netloc
            headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
            headers |= {} if keeps_host else {"Host": behind}
            connection = http.client.HTTPConnection(behind, timeout=60)
            connection.request(self.command, self.path[len(prefix) if strips else 0 :], body, headers)
            answer = connection.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP:
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            try:
                while part := answer.read1(65536):
                    self.wfile.write(part)
                    self.wfile.flush()
            except OSError:
                pass  # the browser has left
            finally:
                connection.close()

        do_GET = do_POST = do_HEAD = forward

        def log_message(self, *said: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{prefix}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(20)
