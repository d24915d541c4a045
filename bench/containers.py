"""The status of 1,000 containers by one listing over a Unix socket, against the bare request for the same bytes.

The engine is a process of its own that sends a listing as Podman writes it. What is measured is the client: a request
by httpx, and the records that come out of it. `python -m bench.containers SOCKET` is the engine.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

import httpx

from bench.figures import Line, ratio
from bench.loops import run
from bench.measure import Timing
from stateward.containers import KEY_LABEL, EngineClient
from stateward.drivers import ProviderRegion
from stateward.drivers.container import ContainerDriver
from stateward.drivers.container.driver import REGION_LABEL

CONTAINERS, ROUNDS, WARM = 1_000, 60, 5
SLOWER = 1.0
"""How many times the request with the standard library's JSON a listing may take, though it makes records."""

PATH = "/v1.41/containers/json"


def listing() -> bytes:
    """Return a listing of containers, with all that Podman 4.3 writes of each."""
    return json.dumps([_listed(number) for number in range(CONTAINERS)]).encode()


def _listed(number: int) -> dict[str, object]:
    address = f"10.89.{number // 250}.{number % 250 + 2}"
    endpoint = {
        "NetworkID": "shop",
        "Gateway": "10.89.0.1",
        "IPAddress": address,
        "IPPrefixLen": 24,
        "Aliases": ["web"],
    }
    is_up = number % 10 != 0
    return {
        "Id": f"{number:064x}",
        "Names": [f"/sw-{number:032x}"],
        "Image": "docker.io/library/shop:1",
        "ImageID": f"sha256:{7:064x}",
        "Command": "sh -c 'exec shop --port 8080'",
        "Created": 1_794_941_754 + number,
        "Ports": [{"IP": "127.0.0.1", "PrivatePort": 8080, "PublicPort": 20_000 + number, "Type": "tcp"}],
        "Labels": {KEY_LABEL: f"key-{number}", REGION_LABEL: "lab/here", "stateward.name": f"web-{number}"},
        "State": "running" if is_up else "exited",
        "Status": "Up 3 hours" if is_up else "Exited (137) 3 minutes ago",
        "NetworkSettings": {"Networks": {"shop": endpoint}},
        "Mounts": [],
        "Config": None,
        "Platform": None,
    }


def report() -> list[Line]:
    """Measure and return lines to print."""
    return run(measure())


async def measure() -> list[Line]:
    """Take turns with the bare request, the same with the standard library's JSON, the client, and the driver."""
    async with engine_process() as path:
        client = EngineClient(f"unix://{path}")
        driver = ContainerDriver(ProviderRegion("lab", "here", options={"engine": f"unix://{path}"}))
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as bare:

            async def fetch() -> None:
                assert (await bare.get(PATH)).content

            async def fetch_and_parse() -> None:
                assert len((await bare.get(PATH)).json()) == CONTAINERS

            async def list_all() -> None:
                assert len(await client.list_containers()) == CONTAINERS

            async def observe() -> None:
                assert len((await driver.observe()).machines) == CONTAINERS

            timings = await in_turns(fetch, fetch_and_parse, list_all, observe)
        await client.close()
        await driver.close()
    request, parsed, listed, observed = timings
    what = f"a listing of {CONTAINERS:,} containers"
    return [
        f"{what}, over a Unix socket",
        ratio(what, listed.times(request), "the bare request by httpx"),
        ratio(f"{what} as records", listed.times(parsed), "the same with the standard library's JSON", SLOWER),
        ratio(f"the status of {CONTAINERS:,} machines by the driver", observed.times(request), "the bare request"),
        f"  {listed.seconds * 1e3:7.2f} ms  {what}",
    ]


async def in_turns(*cases: Callable[[], Awaitable[None]]) -> list[Timing]:
    """Time the cases in turns."""
    taken: list[list[float]] = [[] for _ in cases]
    for number in range(WARM + ROUNDS):
        for case, figures in zip(cases, taken, strict=True):
            began = perf_counter()
            await case()
            if number >= WARM:
                figures.append(perf_counter() - began)
    return [Timing("", tuple(figures)) for figures in taken]


@asynccontextmanager
async def engine_process() -> AsyncIterator[Path]:
    """Start the engine; gives its socket."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "engine.sock"
        process = subprocess.Popen([sys.executable, "-m", "bench.containers", str(path)])
        try:
            while not path.exists():
                assert process.poll() is None
                await asyncio.sleep(0.01)
            yield path
        finally:
            process.kill()
            process.wait()


async def serve(path: str) -> None:
    """Answer every request for containers with the listing, and all others with nothing."""
    headers = "HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
    answers = {
        place: headers.format(len(content)).encode() + content
        for place, content in (("/containers", listing()), ("/volumes", b"{}"), ("/_ping", b"OK"))
    }

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await _next_request(reader):
            writer.write(next(content for place, content in answers.items() if place.encode() in request))
            await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(answer, path) as server:
        await server.serve_forever()


async def _next_request(reader: asyncio.StreamReader) -> bytes:
    try:
        return (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0]
    except asyncio.IncompleteReadError:
        return b""


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
