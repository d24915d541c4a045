"""The programs of the example shop: `python3 shop.py web|stock|orders|clock|inventory`, on the standard library alone.

Each serves on the port that $PORT names, and ends the way a good service does: it stops listening, answers what it has
begun to answer, and is gone. `POST /break` lets a service fall ill, so that you can watch the system notice.
The inventory is a job: it counts the goods, and ends.
"""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

VERSION = os.environ.get("VERSION", "1")
GOODS = {"apples": 3, "pears": 5}
ill = threading.Event()
stop = threading.Event()


def web() -> dict[str, object]:
    """Put a page together from what the other services say."""
    return {"version": VERSION, "stock": ask("STOCK"), "orders": ask("ORDERS")}


def stock() -> dict[str, object]:
    """Say what there is."""
    return {"goods": GOODS}


def orders() -> dict[str, object]:
    """Say what was bought."""
    return {"orders": []}


def ask(name: str) -> object:
    """Ask another service, whose address is in the environment; one that does not answer is said to be away."""
    try:
        with urlopen(os.environ[name], timeout=2) as answer:  # noqa: S310 - an address of our own
            return json.load(answer)
    except (OSError, KeyError):
        return "away"


def clock() -> None:
    """Tell the time, once a second."""
    ticked = Path(os.environ["STATEWARD_WORK"]) / "ticked"
    while not stop.wait(1):
        print(time.strftime("%H:%M:%S"), flush=True)
        ticked.touch()


def inventory() -> None:
    """Count the goods; without the stock, the job fails, and is tried again."""
    found = ask("STOCK")
    if not isinstance(found, dict):
        sys.exit("the stock does not answer")
    print(f"{sum(found['goods'].values())} pieces of {len(found['goods'])} goods", flush=True)


ANSWERS = {"web": web, "stock": stock, "orders": orders}


class Handler(BaseHTTPRequestHandler):
    """Answers for one of the services."""

    def do_GET(self) -> None:
        """Say how it is, or what there is to say."""
        if self.path == "/health":
            self.say(503 if ill.is_set() else 200, {"ill": ill.is_set()})
        else:
            self.say(200, ANSWERS[sys.argv[1]]())

    def do_POST(self) -> None:
        """Fall ill, if asked to."""
        if self.path == "/break":
            ill.set()
        self.say(200, {"ill": ill.is_set()})

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log what people ask, and not each look at our health."""
        if self.path != "/health":
            super().log_request(code, size)

    def say(self, status: int, value: object) -> None:
        """Answer with JSON."""
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve() -> None:
    """Serve until asked to stop, then answer what was begun."""
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler)
    server.daemon_threads = False
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
    print(f"{sys.argv[1]} version {VERSION} serves on {server.server_port}", flush=True)
    stop.wait()
    server.shutdown()
    server.server_close()


PROGRAMS = {"clock": clock, "inventory": inventory}

if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    PROGRAMS.get(sys.argv[1], serve)()
