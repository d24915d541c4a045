"""A small HTTP server that records its requests, for tests of the client's sockets."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

Seen = list[tuple[int, str]]
"""The port of the client, which tells connections apart, and the path of each request."""


@contextmanager
def http_server(body: bytes) -> Iterator[tuple[str, Seen]]:
    """Run a server that answers every request with a body, and ends the connection after a path `.../once`."""
    seen: Seen = []

    class Requests(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            seen.append((self.client_address[1], self.path))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = self.path.endswith("/once")

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
