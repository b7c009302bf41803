"""A stand-in for the sandbox service: real HTTP over TCP or a unix socket, scripted answers."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Answer = tuple[int, dict[str, str], bytes]


def ok(results: list[Any]) -> Answer:
    return 200, {}, json.dumps({"results": results}).encode()


class FakeService:
    """Answers with the scripted answers in turn, then with what `default` makes of the request."""

    def __init__(self, server: socketserver.BaseServer, url: str) -> None:
        self.url = url
        self.script: list[Answer] = []
        self.seen: list[dict[str, Any]] = []
        self.default: Callable[[dict[str, Any]], Answer] = lambda body: ok(
            [{"reward": 1.0 if "good" in r["code"] else 0.0} for r in body["requests"]]
        )
        self.health: Answer = (200, {}, b'{"status":"ok"}')
        server.fake = self  # type: ignore[attr-defined]


class Handler(http.server.BaseHTTPRequestHandler):
    def address_string(self) -> str:
        return "client"

    def log_message(self, *_args: object) -> None:
        pass

    def answer(self, answer: Answer) -> None:
        status, headers, body = answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if body:
            # The client may be gone already once it knows that nothing follows.
            self.wfile.write(body)

    def do_GET(self) -> None:
        self.answer(self.server.fake.health)  # type: ignore[attr-defined]

    def do_POST(self) -> None:
        fake = self.server.fake  # type: ignore[attr-defined]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fake.seen.append(body)
        self.answer(fake.script.pop(0) if fake.script else fake.default(body))


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@contextmanager
def serve(unix_socket: Path | None = None) -> Iterator[FakeService]:
    """A running service, on the socket or else on a free port of the loopback interface."""
    if unix_socket is None:
        server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        url = f"http://127.0.0.1:{server.server_address[1]}"
    else:
        server = UnixServer(str(unix_socket), Handler)
        url = f"unix:{unix_socket}"
    service = FakeService(server, url)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
