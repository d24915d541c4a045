"""A domain in a file of its own: ten lines are enough for the server, the workers, REST and the command line."""

from pathlib import Path

import httpx
import pytest

from tests.integration.server.server_processes import Process, Served, served

LAMP = """
from stateward.lifecycle import BACK, GONE, MINUTE, NEW, STABLE, TRANSITIONAL, USER, State, action, declare
from stateward.plugin import DomainPlugin, Kind

class Lamp(State):
    MAKING = "making", TRANSITIONAL
    OFF = "off", STABLE
    LIGHTING = "lighting", TRANSITIONAL
    ON = "on", STABLE

lamp = Kind(declare("acme.lamp", Lamp, [
    action(NEW, "make", USER, Lamp.MAKING, Lamp.OFF, Lamp.OFF, MINUTE),
    action(Lamp.OFF, "light", USER, Lamp.LIGHTING, Lamp.ON, BACK, MINUTE),
], USER))

@lamp.handles("make")
@lamp.handles("light")
async def work(job): ...

domain = DomainPlugin("acme", [lamp])
"""

ROUTED = """
from litestar import get
from stateward.plugin import DomainRuntime, Right, needs
import acme_lamp

@get("/api/v1/acme/{ns:str}/bright", opt=needs(Right.READ))
async def bright(ns: str) -> dict[str, str]:
    return {"ns": ns}

@get("/api/v1/acme/open")
async def without_right() -> None: ...

@get("/api/v1/kinds/mine", opt=needs(Right.READ))
async def of_the_server() -> None: ...

@get("/tumblebug/lamps", opt=needs(Right.READ))
async def of_mci() -> None: ...

@get("/{a:str}/x", opt=needs(Right.READ))
async def of_everybody(a: str) -> None: ...

def fails(context):
    raise RuntimeError("no bulb")

def plugin(**more):
    return acme_lamp.DomainPlugin("acme", [acme_lamp.lamp], **more)

good = plugin(routes=[bright], about="Lamps of every kind")
no_right = plugin(routes=[without_right])
of_another = plugin(routes=[of_mci])
anything = plugin(routes=[of_everybody])
taken = plugin(routes=[of_the_server])
failing = acme_lamp.DomainPlugin("acme", lifecycles=[acme_lamp.lamp.lifecycle], create=fails)
no_handler = acme_lamp.DomainPlugin("acme", [acme_lamp.lamp.with_handlers({})])
no_runtime = acme_lamp.DomainPlugin("acme", lifecycles=[acme_lamp.lamp.lifecycle], create=lambda context: None)
"""
CREATE = {"kind": "acme.lamp", "id": "hall"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "acme_lamp.py").write_text(LAMP)
    (tmp_path / "acme_routes.py").write_text(ROUTED)
    (tmp_path / "acme_exit.py").write_text('raise SystemExit("bye")')
    return tmp_path


def install(folder: Path, place: str) -> dict[str, str]:
    """Install the module at a place as a package would; returns the environment in which it is found."""
    metadata = folder / "acme-2.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 2.1\n")
    (metadata / "entry_points.txt").write_text(f"[stateward.domains]\nacme = {place}\n")
    return {"PYTHONPATH": str(folder)}


def lit(server: Served) -> None:
    """Make a lamp and light it."""
    with server.client() as client:
        made = client.post("/api/v1/ns/home/objects", json=CREATE)
        assert made.status_code == 202, made.text
        operation = made.json()["operation"]["id"]
        client.get(f"/api/v1/ns/home/operations/{operation}", params={"wait": 30})
        done = client.post("/api/v1/ns/home/objects/hall/actions/light", params={"wait": 30})
        assert done.json()["object"]["state"] == "on", done.text


def test_ten_lines_are_served_everywhere(folder: Path) -> None:
    with served(folder / "data", "--domain", "acme_lamp:domain", "--only", "acme,ovc") as server:
        lit(server)
        with server.client() as client:
            refused = client.post("/api/v1/ns/home/objects/hall/actions/light")
            assert (refused.status_code, refused.json()["state"]) == (409, "on")
            assert client.get("/api/v1/kinds/acme.lamp").json()["actions"] == ["make", "light"]
            assert "<svg" in client.get("/api/v1/kinds/acme.lamp/diagram").text
            assert 'kind="acme.lamp"' in client.get("/metrics").text
            assert [one["name"] for one in client.get("/api/v1/plugins").json()][-1] == "acme"
            assert "acme.lamp" in client.get("/api/v1/plugins/acme/docs").text
            assert client.get("/api/v1/plugins/nope/docs").status_code == 404


def test_the_command_line_knows_it(folder: Path) -> None:
    environ = {"STATEWARD_DATA": "data", "STATEWARD_DOMAIN": "acme_lamp:domain"}
    with served(folder / "data", "--domain", "acme_lamp:domain", "--only", "acme") as server:

        def stateward(*arguments: str) -> str:
            command = Process(folder / "data", *arguments, environ=environ)
            assert command.ended() == 0, command.output
            return command.output

        stateward("create", "acme.lamp", "hall", "-n", "home", "--wait")
        stateward("do", "light", "hall", "-n", "home", "--wait")
        assert "on" in stateward("list", "-n", "home")
        assert "acme.lamp" in stateward("lifecycle", "list")
        assert "acme_lamp:domain" in stateward("plugins")
        assert "mci" not in stateward("plugins")
        server.stop()
        assert "acme.lamp" in stateward("get", "hall", "-n", "home", "--json")  # from the folder, without a server


long = pytest.mark.long


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("acme_routes:no_right", "does not declare the right that it needs"),
        pytest.param("acme_routes:taken", "routes: '/api/v1/kinds' must be below a path of its own", marks=long),
        pytest.param("acme_routes:of_another", "routes: 'tumblebug' must be below a path of its own", marks=long),
        pytest.param("acme_routes:failing", "RuntimeError: no bulb", marks=long),
        pytest.param("acme_routes:anything", "routes: '{a:str}' must be below a path of its own", marks=long),
        ("acme_exit:domain", "SystemExit: bye"),
        pytest.param("acme_routes:no_runtime", "create: 'NoneType' must be a function that returns", marks=long),
        pytest.param("acme_routes:no_handler", "acme.lamp has no handler for make, light", marks=long),
        pytest.param("acme_routes:nothing", "has no attribute 'nothing'", marks=long),
    ],
)
def test_a_broken_plugin_stops_nobody_else_unless_it_was_asked_for(folder: Path, place: str, why: str) -> None:
    named = Process(folder / "named", "serve", "--data", "named", "--port", "0", "--domain", place)
    assert named.ended() == 2
    assert why in named.output
    assert "Traceback" not in named.output
    with served(folder / "data", environ=install(folder, place)) as server, server.client() as client:
        assert f"plug-in acme ({place} of acme 2.1) cannot be used" in server.output
        found = {one["name"]: one for one in client.get("/api/v1/plugins").json()}
        assert why in found["acme"]["error"]
        assert client.get("/api/v1/kinds/ovc.vm").status_code == 200
        assert client.get("/api/v1/kinds/acme.lamp").status_code == 404
        token = client.post("/api/v1/tokens", json={"name": "v", "role": "viewer", "namespaces": ["*"]}).json()
        seen = httpx.get(
            f"{server.url}/api/v1/plugins", headers={"Authorization": f"Bearer {token['token']}"}, trust_env=False
        )
        assert "acme" not in seen.text


def test_an_installed_plugin_is_served_with_its_routes(folder: Path) -> None:
    environ = install(folder, "acme_routes:good")
    with (
        served(folder / "data", "--log-format", "json", "--only", "ovc,acme", environ=environ) as server,
        server.client() as client,
    ):
        lit(server)
        assert client.get("/api/v1/acme/home/bright").json() == {"ns": "home"}
        plain = httpx.get(f"{server.url}/api/v1/acme/home/bright", trust_env=False)
        assert plain.status_code == 401
        assert "/api/v1/acme/{ns}/bright" in client.get("/docs/openapi.json").json()["paths"]
        assert client.get("/api/v1/me").json()["domains"][-1] == "acme"
        assert "uvicorn.access" not in server.output  # the check of its routes leaves the form of the log alone
