"""A program that serves a real Nova and a real Placement in one process, for tests: `nova_process.py FOLDER`.

It runs in the environment `.venv/nova`, and is wired by the fixtures of Nova's own functional tests, which are part of
its package. Real are Nova's API with all microversions, policies and quotas, its conductor, scheduler and compute
manager, its database code on SQLite, and Placement. Stand-ins are the hypervisor (Nova's own fake, which keeps states
and runs nothing), the message bus (in memory), Glance and Cinder (Nova's fixtures), Keystone and Neutron (ours).

The metadata of a server can hold it up or break its hypervisor. While the file that an item names exists, the server
is not scheduled (`fake_hold_scheduler`), or is in its cell but still counts as not scheduled (`fake_hold_cell`), or its
host does not know of it (`fake_hold_host`), or no call of its hypervisor goes on (`fake_hold`). `fake_fail` names the
calls that fail (`spawn`, `pause`, ...). The program prints `READY URL`, and ends on SIGTERM.
"""

import json
import logging
import os
import signal
import sys
import tempfile
import time
import unittest
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from socketserver import ThreadingMixIn
from threading import Event, Thread
from typing import Any, TypeAlias
from urllib.parse import parse_qsl
from uuid import NAMESPACE_DNS, uuid4, uuid5
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

FOLDER = Path(sys.argv[1])
sys.argv[1:] = []  # Nova reads the arguments while it is imported
os.environ["TMPDIR"] = tempfile.tempdir = str(FOLDER)
os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "1"  # threads, as Nova recommends by now

import nova.tests.functional  # noqa: E402, F401 - the first import of Nova selects threads
from futurist import _thread  # noqa: E402
from nova import context, objects, test  # noqa: E402
from nova.api import wsgi  # noqa: E402
from nova.conductor.manager import ComputeTaskManager  # noqa: E402
from nova.tests import fixtures  # noqa: E402
from nova.tests.fixtures.nova import _use_file_backed_sqlite_with_wal  # noqa: E402
from nova.tests.functional.fixtures import PlacementFixture  # noqa: E402
from nova.virt.fake import FakeDriver  # noqa: E402

from tests.integration.drivers.openstack.neutron_stand_in import NetworkRecords, NeutronApi  # noqa: E402

Environ: TypeAlias = dict[str, Any]
Application: TypeAlias = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

PAGE = 5
"""How many records a page has; small, so that tests turn pages."""

HEARTBEATS = {"report_interval": 600, "service_down_time": 36_000}
"""How often services report, in seconds; each report takes time from the tests."""

SETTINGS: dict[str | None, dict[str, Any]] = {
    None: {"state_path": str(FOLDER), "compute_driver": "fake.FakeDriver", **HEARTBEATS},
    "wsgi": {"api_paste_config": str(Path(sys.prefix) / "etc/nova/api-paste.ini")},
    "api": {"response_validation": "warn", "max_limit": PAGE},
    "quota": {"instances": 20, "cores": 40, "ram": 100_000},
    "oslo_messaging_notifications": {"driver": ["noop"]},
}
BREAKABLE = (
    *("spawn", "destroy", "reboot", "power_off", "power_on", "pause", "unpause", "suspend", "resume"),
)  # fmt: skip
"""The calls of the hypervisor that a server's metadata can hold up or break."""

OVER = Event()


class Keystone:
    """A stand-in for Keystone: any user has a project of any name; the password `wrong` is none.

    Users whose name begins with `admin` are administrators. An application credential is for the project of its id.
    """

    def __init__(self) -> None:
        self._tokens: dict[str, tuple[str, str]] = {}

    def __call__(self, environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        base = f"http://{environ['HTTP_HOST']}"  # a client behind a proxy stays behind it
        if environ["REQUEST_METHOD"] != "POST":
            link = {"rel": "self", "href": f"{base}/identity/v3/"}
            version = {"id": "v3.14", "status": "stable", "links": [link], "media-types": []}
            return _reply(start, "200 OK", {"version": version})
        asked = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))["auth"]
        try:
            user, project = _caller(asked)
        except PermissionError:
            text = "The request you have made requires authentication."
            return _reply(start, "401 Unauthorized", {"error": {"code": 401, "title": "Unauthorized", "message": text}})
        token = uuid4().hex
        self._tokens[token] = user, project
        return _reply(start, "201 Created", {"token": _token(base, user, project)}, ("X-Subject-Token", token))

    def guard(self, application: Application) -> Application:
        """Return an application for those who have a token; it takes the place of Keystone's middleware."""

        def guarded(environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
            known = self._tokens.get(environ.get("HTTP_X_AUTH_TOKEN", ""))
            if known is None:
                text = "The request you have made requires authentication."
                return _reply(start, "401 Unauthorized", {"error": {"code": 401, "message": text}})
            user, project = known
            environ |= {"HTTP_X_IDENTITY_STATUS": "Confirmed", "HTTP_X_ROLES": ",".join(_roles(user))}
            environ |= {"HTTP_X_USER_ID": user, "HTTP_X_USER_NAME": user, "HTTP_X_PROJECT_ID": project}
            return application(environ, start)

        return guarded


def _caller(asked: dict[str, Any]) -> tuple[str, str]:
    identity, project = asked["identity"], asked.get("scope", {}).get("project", {})
    if identity["methods"] == ["application_credential"]:
        given = identity["application_credential"]
        user, secret, name = f"app-{given['id']}", given["secret"], given["id"]
    else:
        given = identity["password"]["user"]
        user, secret = given.get("name") or given["id"], given["password"]
        name = project.get("name") or project.get("id") or "none"
    if secret == "wrong":
        raise PermissionError
    return user, uuid5(NAMESPACE_DNS, name).hex


def _roles(user: str) -> list[str]:
    return ["reader", "member", *(["admin"] if user.startswith("admin") else [])]


def _token(base: str, user: str, project: str) -> dict[str, Any]:
    domain = {"id": "default", "name": "Default"}
    paths = {"identity": "identity/v3", "compute": "compute/v2.1", "image": "image", "network": "network"}
    catalog = [
        {"type": kind, "name": kind, "id": kind, "endpoints": [_endpoint(kind, one, f"{base}/{path}") for one in SIDES]}
        for kind, path in paths.items()
    ]
    return {
        "methods": ["password"],
        "issued_at": _time_after(0),
        "expires_at": _time_after(86400),
        "catalog": catalog,
        "user": {"id": user, "name": user, "domain": domain},
        "roles": [{"id": role, "name": role} for role in _roles(user)],
        "project": {"id": project, "name": project, "domain": domain},
    }


SIDES = ("public", "internal")


def _endpoint(kind: str, side: str, url: str) -> dict[str, str]:
    return {"id": kind + side, "interface": side, "region": "RegionOne", "region_id": "RegionOne", "url": url}


def _time_after(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() + seconds))


def _reply(start: Callable[..., Any], status: str, body: object, *headers: tuple[str, str]) -> list[bytes]:
    start(status, [("Content-Type", "application/json"), *headers])
    return [json.dumps(body, default=str).encode()]


def image_api(glance: Any) -> Application:
    """Return an application that shows the images of Nova's fixture."""

    def answer(environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        words = environ["PATH_INFO"].strip("/").split("/")
        if len(words) < 2:
            link = {"rel": "self", "href": f"http://{environ['HTTP_HOST']}/image/v2/"}
            return _reply(start, "200 OK", {"versions": [{"id": "v2.16", "status": "CURRENT", "links": [link]}]})
        images = [{**one, "visibility": "public"} for one in glance.detail(None)]
        if len(words) == 3:
            found = next((one for one in images if one["id"] == words[2]), None)
            return _reply(start, "200 OK" if found else "404 Not Found", found)
        wanted = [(name, value) for name, value in parse_qsl(environ["QUERY_STRING"]) if name in ("name", "status")]
        shown = [one for one in images if all(str(one[name]) == value for name, value in wanted)]
        return _reply(start, "200 OK", {"images": shown})

    return answer


class NovaProcess(test.TestCase):  # type: ignore[misc]
    """Nova as one long test of Nova's own framework: it starts, serves until it is told to end, and cleans up."""

    REQUIRES_LOCKING = True
    USES_DB, USES_DB_SELF = False, True  # the fixture for databases of cells can deadlock with threads

    def setUp(self) -> None:
        """Start all services."""
        super().setUp()
        _thread.ThreadWorker.MAX_IDLE_FOR = 1  # the framework sets 0.01 s, and idle threads then use up a processor
        warnings.simplefilter("ignore")  # the framework makes errors of deprecations in SQLAlchemy
        logging.getLogger().setLevel(logging.CRITICAL)  # the framework keeps the whole log in memory
        for group, settings in SETTINGS.items():
            self.flags(**settings, **({"group": group} if group else {}))
        self._create_databases()
        self.useFixture(PlacementFixture())
        records = self.useFixture(NetworkRecords(self))
        glance = self.useFixture(fixtures.GlanceFixture(self))
        self.useFixture(fixtures.CinderFixture(self))
        self.useFixture(fixtures.RealPolicyFixture())
        keystone = Keystone()
        self.stub_out("keystonemiddleware.auth_token.filter_factory", lambda *_, **__: keystone.guard)
        self.stub_out("nova.api.openstack.identity.verify_project_id", lambda *_: True)  # it would ask Keystone
        self._make_hypervisor_breakable()
        self._make_scheduling_holdable()
        self.start_service("conductor")
        self.start_service("scheduler")
        self._start_compute("host1")
        self._applications: dict[str, Application] = {
            "identity": keystone,
            "compute": wsgi.Loader().load_app("osapi_compute"),
            "image": keystone.guard(image_api(glance)),
            "network": keystone.guard(NeutronApi(records)),
        }

    def _create_databases(self) -> None:
        """Make a database for the API and one for each of two cells, as a deployment has them."""
        self.useFixture(fixtures.Database(database="api"))
        cell1 = str(self.useFixture(fixtures.Database(database="main")).get_engine().url)
        cell0, _ = _use_file_backed_sqlite_with_wal("cell0")
        self.useFixture(fixtures.Database(database="main", connection=cell0))
        for name, native, url in (("cell0", objects.CellMapping.CELL0_UUID, cell0), ("cell1", str(uuid4()), cell1)):
            self.cell_mappings[name] = objects.CellMapping(
                context=context.get_context(),
                uuid=native,
                name=name,
                transport_url="fake://nowhere/",
                database_connection=url,
            )
            self.cell_mappings[name].create()
        self.useFixture(fixtures.DefaultFlavorsFixture())
        self.USES_DB = True  # from now on, each service that starts is mapped to its cell

    def _make_hypervisor_breakable(self) -> None:
        for name in BREAKABLE:
            self.stub_out(f"nova.virt.fake.FakeDriver.{name}", _breakable(name, getattr(FakeDriver, name)))

    def _make_scheduling_holdable(self) -> None:
        schedule, destroy = ComputeTaskManager.schedule_and_build_instances, objects.BuildRequest.destroy

        def held_schedule(manager: Any, *given: Any, build_requests: Any, **named: Any) -> Any:
            _wait_while_held(build_requests[0].instance, "fake_hold_scheduler")
            return schedule(manager, *given, build_requests=build_requests, **named)

        def held_destroy(build_request: Any) -> Any:
            _wait_while_held(build_request.instance, "fake_hold_cell")
            destroy(build_request)
            _wait_while_held(build_request.instance, "fake_hold_host")

        self.stub_out("nova.conductor.manager.ComputeTaskManager.schedule_and_build_instances", held_schedule)
        self.stub_out("nova.objects.build_request.BuildRequest.destroy", held_destroy)

    def _dispatch(self, environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        first, _, rest = environ["PATH_INFO"].lstrip("/").partition("/")
        environ |= {"SCRIPT_NAME": f"/{first}", "PATH_INFO": f"/{rest}"}
        application = self._applications.get(first)
        return _reply(start, "404 Not Found", {}) if application is None else application(environ, start)

    def test_serve(self) -> None:
        """Serve until the end is asked for."""
        server = make_server("127.0.0.1", 0, self._dispatch, ThreadingServer, QuietHandler)
        Thread(target=server.serve_forever, daemon=True).start()
        print(f"READY http://127.0.0.1:{server.server_port}", flush=True)  # noqa: T201
        OVER.wait()
        os._exit(0)  # idle threads of Nova need not be waited for, and the folder is its owner's


class ThreadingServer(ThreadingMixIn, WSGIServer):
    """A thread for each connection."""

    daemon_threads, request_queue_size = True, 128


class QuietHandler(WSGIRequestHandler):
    """Logs nothing."""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _wait_while_held(instance: Any, item: str) -> None:
    while Path(instance.metadata.get(item, "nothing")).exists():
        time.sleep(0.05)


def _breakable(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(driver: Any, *given: Any, **named: Any) -> Any:
        instance = next(one for one in (*given, *named.values()) if isinstance(one, objects.Instance))
        _wait_while_held(instance, "fake_hold")
        if name in instance.metadata.get("fake_fail", "").split(","):
            raise RuntimeError(f"fake_fail: {name}")
        return real(driver, *given, **named)

    return call


def main() -> None:
    """Serve until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: OVER.set())
    result = unittest.TestResult()
    NovaProcess("test_serve").run(result)
    for _, text in result.errors + result.failures:
        print(text, file=sys.stderr)  # noqa: T201
    os._exit(1)


if __name__ == "__main__":
    main()
