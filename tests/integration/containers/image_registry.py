"""A registry of images on this host: the few requests of the distribution protocol that a pull makes."""

import base64
import json
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
PATIENT_S = 120.0
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


class ImageRegistry:
    """One image, by one tag and by its digest; with a login, for whoever has it.

    While `gives_layers` is not set, a pull does not get on.
    """

    def __init__(self, name: str, tag: str, layer: bytes, login: tuple[str, str] | None = None) -> None:
        self._name, self.tag = name, tag
        self.gives_layers = Event()
        self.gives_layers.set()
        self._login = base64.b64encode(":".join(login).encode()).decode() if login else ""
        config = {
            "architecture": MACHINES[platform.machine()],
            "os": "linux",
            "config": {"Cmd": ["sleep", "100000"], "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(layer)]},
        }
        blobs = [json.dumps(config).encode(), layer]
        self._blobs = {digest_of(blob): blob for blob in blobs}
        kinds = ("application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar")
        described = [
            {"mediaType": kind, "size": len(blob), "digest": digest_of(blob)}
            for kind, blob in zip(kinds, blobs, strict=True)
        ]
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described[0], "layers": described[1:]}
        self._manifest = json.dumps(manifest).encode()
        self.digest = digest_of(self._manifest)

    def answer(self, path: str, authorization: str) -> tuple[int, str, bytes]:
        """Return the status, the type and the content for a request."""
        if self._login and authorization != f"Basic {self._login}":
            return 401, "application/json", b'{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}'
        if path == "/v2/":
            return 200, "application/json", b"{}"
        kind, _, reference = path.removeprefix(f"/v2/{self._name}/").partition("/")
        if kind == "manifests" and reference in (self.tag, self.digest):
            return 200, MANIFEST, self._manifest
        if kind == "blobs" and reference in self._blobs:
            self.gives_layers.wait(PATIENT_S)
            return 200, "application/octet-stream", self._blobs[reference]
        return 404, "application/json", b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}'

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Serve it on a free port of 127.0.0.1; gives the image's name there."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, kind, content = registry.answer(self.path, self.headers.get("Authorization", ""))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                if status == 200:
                    self.send_header("Docker-Content-Digest", digest_of(content))
                if status == 401:
                    self.send_header("WWW-Authenticate", 'Basic realm="images"')
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(content)

            def do_HEAD(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}/{self._name}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def digest_of(content: bytes) -> str:
    """Return the digest of some content."""
    return f"sha256:{sha256(content).hexdigest()}"
