"""Systems over HTTP: the real application with the domain's routes, without a network."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar

from stateward.access import Role, Tokens
from stateward.access.quotas import Quota, QuotaGuard, Quotas, quota_kind
from stateward.access.tokens import token_kind
from stateward.config import Config
from stateward.domains.systems import api as systems_api
from stateward.domains.systems.backends.local import LocalBackend
from stateward.domains.systems.backends.port import ServiceRef, SystemRef
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.definition import read
from stateward.domains.systems.instance_limits import INSTANCES
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.engine import Engine, Permanent
from stateward.server.app import create_app
from stateward.store import open_store
from tests.integration.domains.systems.conftest import PATIENT, SHOP
from tests.waiting import until

BASE = "/api/v1/systems/default"


class Api:
    """A server, and callers with different rights."""

    def __init__(self, engine: Engine, app: Litestar, texts: dict[str, str], backend: SimulatedBackend) -> None:
        self._engine, self._app, self._texts = engine, app, texts
        self.backend = backend

    async def ask(self, method: str, path: str, body: Any = None, who: str = "admin", **how: Any) -> httpx.Response:
        """Send a request."""
        transport = httpx.ASGITransport(self._app)  # type: ignore[arg-type]
        headers = {"Authorization": f"Bearer {self._texts[who]}", **how.pop("headers", {})}
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
            url = path if path.startswith("/api/") else BASE + path
            return await client.request(method, url, **({} if body is None else {"json": body}), **how)

    async def done(self, method: str, path: str, body: Any = None) -> Any:
        """Ask for something that must be accepted, and wait until it has ended."""
        answer = await self.ask(method, path, body)
        assert answer.status_code == 202, answer.text
        found = answer.json()
        if found["operation"]:
            await self._engine.wait_record("default", found["operation"], PATIENT)
        return found

    async def history(self, name: str) -> Any:
        """Return the journal of an object."""
        return await self._engine.history("default", name)

    async def system(self, **params: Any) -> Any:
        """Return the shop."""
        return (await self.ask("GET", "/shop", params=params)).json()

    async def stable(self, **params: Any) -> Any:
        """Return the shop, as soon as it has followed its services and is stable."""
        return await until(lambda: self.system(**params), lambda system: system["state"] == "stable")

    async def begun(self, path: str) -> Any:
        """Begin a deploy that does not end by itself."""
        self.backend.fail(path)
        answer = await self.ask("POST", "/shop/deploys", {"definition": "{command: x, deadline: 600}", "path": path})
        assert answer.status_code == 202
        return answer.json()


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with open_api("simulated", SimulatedBackend()) as opened:
        yield opened


@asynccontextmanager
async def open_api(name: str, backend: Any) -> AsyncIterator[Api]:
    """Open a server with one backend, and the system shop on it."""
    plugin = SystemsRuntime({name: backend})
    engine = Engine(open_store(":memory:"), [*plugin.kinds, token_kind(), quota_kind()], admission=QuotaGuard())
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=True):
        tokens = Tokens(engine)
        roles = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
        texts = {role.value: (await tokens.issue(role.value, role, ["default"]))[0] for role in roles}
        found = Api(engine, create_app(engine, tokens, Config(rate=1_000_000), routes=plugin.routes), texts, backend)
        await found.done("POST", "", {"name": "shop", "backend": name})
        yield found


async def test_a_system_is_made_deployed_shown_rolled_back_and_torn_down(api: Api) -> None:
    await api.done("POST", "/shop/deploys", {"definition": SHOP})
    found = await api.stable(instances="true")
    assert found["backend"] == "simulated"
    assert {one["path"]: (one["state"], len(one["instances"])) for one in found["services"]} == {
        "/web": ("stable", 2),
        "/store/api": ("stable", 1),
        "/store/db": ("stable", 1),
    }
    assert [one["path"] for one in (await api.system(path="/store"))["services"]] == ["/store/api", "/store/db"]
    await api.done("POST", "/shop/deploys", {"definition": "{command: db v2}", "path": "/store/db"})
    await api.done("POST", "/shop/rollback", {})
    database = (await api.system(path="/store/db"))["services"][0]
    assert database["definition"]["command"] == ["db", "v1"]
    assert [one["state"] for one in (await api.ask("GET", "/shop/deploys")).json()] == ["succeeded"] * 3
    await api.done("POST", "/shop/teardowns", {})
    assert (await api.system())["services"] == []
    await api.done("DELETE", "/shop")
    assert (await api.ask("GET", "/shop")).status_code == 404


async def test_a_system_that_has_not_failed_is_not_tried_again_and_one_that_has_is(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = await api.ask("POST", "/shop/retry")
    assert (refused.status_code, refused.json()["state"]) == (409, "stable")
    assert (await api.ask("POST", "/nowhere/retry")).status_code == 404

    async def unable(_: object) -> dict[str, str]:
        raise Permanent("no room")

    with monkeypatch.context() as broken:
        broken.setattr(api.backend, "prepare", unable)
        await api.done("POST", "", {"name": "second", "backend": "simulated"})
    assert (await api.ask("GET", "/second")).json()["state"] == "failed"
    await api.done("POST", "/second/retry")
    assert (await api.ask("GET", "/second")).json()["state"] == "stable"


async def test_a_mistake_in_a_definition_is_told_by_file_line_and_field(api: Api) -> None:
    text = SHOP.replace("instances: 2", "instances: two")
    answer = await api.ask("POST", "/shop/deploys", {"definition": text, "file": "shop.yaml"})
    assert answer.status_code == 400
    assert answer.json()["field"] == "shop.yaml, line 3, services.web.instances"
    assert "a whole number, not a text" in answer.json()["detail"]


async def test_a_nul_that_no_process_can_be_given_is_refused_by_its_field_and_changes_nothing(api: Api) -> None:
    text = 'services:\n  x: {command: ["true"], folder: f, env: {A: "a\\0b"}}'
    answer = await api.ask("POST", "/shop/deploys", {"definition": text})
    assert (answer.status_code, answer.json()["field"]) == (400, "definition, line 2, services.x.env.A")
    answer = await api.ask("POST", "/shop/deploys", {"definition": text.replace("\\0", ""), "base": "/srv\0"})
    assert (answer.status_code, answer.json()["field"]) == (400, "base")
    assert (await api.ask("GET", "/shop/deploys")).json() == []


async def test_a_definition_is_read_beside_the_event_loop(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[int] = []

    def noted(*how: Any) -> Any:
        readers.append(threading.get_ident())
        return read(*how)

    monkeypatch.setattr(systems_api, "read", noted)
    await api.done("POST", "/shop/deploys", {"definition": SHOP})
    assert readers
    assert threading.get_ident() not in readers


async def test_a_small_definition_that_stands_for_much_is_refused_at_once(api: Api) -> None:
    text = "a0: &a0 [x]\n" + "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9))
    answer = await api.ask("POST", "/shop/deploys", {"definition": text, "file": "shop.yaml"})
    assert (answer.status_code, answer.json()["field"]) == (400, "shop.yaml, line 6")
    assert "more than 100000 values" in answer.json()["detail"]


async def test_who_is_refused_is_told_every_blocker_with_path_and_mode(api: Api) -> None:
    deploys = [await api.begun(path) for path in ("/a", "/b/c")]
    refused = await api.ask("POST", "/shop/teardowns", {})
    assert (refused.status_code, refused.json()["code"], refused.json()["retry"]) == (409, "locked", True)
    blockers = [(one["path"], one["mode"], one["action"], one["who"]) for one in refused.json()["blockers"]]
    assert blockers == [("/a", "X", "deploy", "admin"), ("/b/c", "X", "deploy", "admin")]
    locks = (await api.ask("GET", "/shop/locks")).json()
    assert [(one["path"], one["mode"], one["waiting"], one["action"]) for one in locks] == [
        ("/a", "X", False, "deploy"),
        ("/b/c", "X", False, "deploy"),
    ]
    waiting = await api.ask("POST", "/shop/teardowns", {"wait": 60})
    assert (waiting.status_code, waiting.json()["waiting"]) == (202, True)
    for one in deploys:
        await api.ask("POST", f"/shop/deploys/{one['id']}/cancel")


async def test_a_deploy_can_be_cancelled(api: Api) -> None:
    answer = await api.begun("/a")
    assert (await api.ask("POST", f"/shop/deploys/{answer['id']}/cancel")).status_code == 202
    await until(lambda: api.ask("GET", "/shop/deploys"), lambda answer: answer.json()[0]["state"] == "cancelled")
    assert (await api.ask("POST", f"/shop/deploys/{answer['id']}/cancel")).status_code == 409
    assert (await api.ask("POST", "/shop/deploys/shop@none/cancel")).status_code == 404


async def test_the_operation_of_a_deploy_is_cancelled_as_the_deploy_is(api: Api) -> None:
    answer = await api.begun("/a")
    cancel = f"/api/v1/ns/default/operations/{answer['operation']}/cancel"
    assert (await api.ask("POST", cancel)).status_code == 202
    async with asyncio.timeout(PATIENT):
        while (deploy := (await api.ask("GET", "/shop/deploys")).json()[0])["state"] != "cancelled":
            await asyncio.sleep(0.02)
    assert deploy["cancelled"] == "admin"
    assert (await api.system())["services"] == []
    assert (await api.ask("POST", cancel)).status_code == 409


async def test_the_same_key_is_one_deploy(api: Api) -> None:
    body, key = {"definition": "{command: x}", "path": "/a"}, {"Idempotency-Key": "k1"}
    answers = [await api.ask("POST", "/shop/deploys", body, headers=key) for _ in range(2)]
    assert answers[0].json()["operation"] == answers[1].json()["operation"]
    assert [one.headers.get("idempotency-replayed") for one in answers] == [None, "true"]
    other = await api.ask("POST", "/shop/deploys", {**body, "path": "/b"}, headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "key_reused")


RIGHTS = [
    # method  path               body                                          least role
    ("GET",   "",                None,                                         "viewer"),
    ("GET",   "/shop",           None,                                         "viewer"),
    ("GET",   "/shop/locks",     None,                                         "viewer"),
    ("GET",   "/shop/deploys",   None,                                         "viewer"),
    ("POST",  "/shop/teardowns", {"wait": 60},                                 "operator"),
    ("POST",  "",                {"name": "second", "backend": "simulated"},   "operator"),
    ("POST",  "/shop/deploys",   {"definition": SHOP, "wait": 60},             "admin"),
]  # fmt: skip


async def test_each_call_needs_its_right(api: Api) -> None:
    callers = ["viewer", "operator", "admin"]
    for method, path, body, least in RIGHTS:
        for who in callers[: callers.index(least)]:
            assert (await api.ask(method, path, body, who)).status_code == 403
        assert (await api.ask(method, path, body, least)).status_code in (200, 202)


EMPTY = ["{}", "services: {}", "jobs: {}", "{services: {}, jobs: {}}", "services: {store: {services: {}}}"]


@pytest.mark.parametrize("definition", EMPTY)
async def test_a_definition_without_services_and_jobs_removes_everything_only_if_that_is_allowed(
    api: Api, definition: str
) -> None:
    await api.done("POST", "/shop/deploys", {"definition": SHOP})
    refused = await api.ask("POST", "/shop/deploys", {"definition": definition})
    assert (refused.status_code, refused.json()["field"]) == (400, "services")
    assert "--allow-empty" in refused.json()["detail"]
    assert len((await api.system())["services"]) == 3
    await api.done("POST", "/shop/deploys", {"definition": definition, "allow_empty": True})
    assert (await api.system())["services"] == []


UNDEPLOYABLE = [
    # definition                                                          field
    ("services: [",                                                       "shop.yaml, line 1"),
    ("services: {web: {image: a}}",                                       "shop.yaml, line 1, services.web.command"),
    ("services: {web: {command: x, node_pool: main}}",                    "shop.yaml, line 1, services.web.node_pool"),
    ("services: {web: {command: x, secrets: {A: {secret: db}}}}",  "shop.yaml, line 1, services.web.secrets.A.secret"),
    ("services: {web: {command: x, folder: nowhere}}",                    "shop.yaml, line 1, services.web.folder"),
    ("services: {web: {command: x, address: 80}}",                        "shop.yaml, line 1, services.web.address"),
    ("services: {}",                                                      "services"),
]  # fmt: skip


@pytest.mark.parametrize(("definition", "field"), UNDEPLOYABLE)
async def test_no_system_is_created_for_a_first_deploy_that_is_impossible(
    tmp_path: Path, definition: str, field: str
) -> None:
    first = {"definition": definition, "file": "shop.yaml", "base": str(tmp_path)}
    async with open_api("local", LocalBackend(tmp_path / "systems")) as api:
        refused = await api.ask("POST", "", {"name": "second", "first_deploy": first})
        assert (refused.status_code, refused.json()["field"]) == (400, field), refused.text
        assert (await api.ask("GET", "/second")).status_code == 404


async def test_no_system_is_created_for_a_first_deploy_that_exceeds_the_quota(api: Api) -> None:
    await Quotas(api._engine).set(Quota("default", {INSTANCES: 3}, None))
    second = {"name": "second", "backend": "simulated", "first_deploy": {"definition": SHOP}}
    refused = await api.ask("POST", "", second)
    assert (refused.status_code, refused.json()["limit"]) == (403, 3), refused.text
    assert (await api.ask("GET", "/second")).status_code == 404


NONSENSE = [
    # method   path                     body                                                 status
    ("POST",   "",                      {"name": "Shop"},                                    400),
    ("POST",   "",                      {"name": "shop", "backend": "simulated"},            409),
    ("POST",   "",                      {"name": "x", "backend": "moonbase"},                400),
    ("POST",   "",                      {"name": "x", "colour": "red"},                      400),
    ("GET",    "/nowhere",              None,                                                404),
    ("DELETE", "/nowhere",              None,                                                404),
    ("POST",   "/nowhere/deploys",      {"definition": "services: {}"},                      404),
    ("POST",   "/nowhere/teardowns",    {},                                                  404),
    ("POST",   "/shop/rollback",        {},                                                  409),
    ("POST",   "/shop/deploys",         {"definition": "services: {}", "path": "/A"},        400),
    ("POST",   "/shop/deploys",         {"definition": "services: {}", "wait": -1},          400),
    ("POST",   "/shop/deploys",         {"definition": "{command: x}", "path": "/"},         400),
    ("GET",    "/shop/logs?path=/none", None,                                                404),
    ("GET",    "/shop?path=x",          None,                                                400),
]  # fmt: skip


async def test_what_makes_no_sense_is_refused_with_its_reason(api: Api) -> None:
    for method, path, body, status in NONSENSE:
        answer = await api.ask(method, path, body)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), path


async def test_a_command_needs_a_right_of_its_own_and_is_in_the_journal_without_its_arguments(api: Api) -> None:
    await api.done("POST", "/shop/deploys", {"definition": "services: {web: {command: x}}"})
    body = {"path": "/web", "argv": ["login", "--password", "hush"]}
    assert (await api.ask("POST", "/shop/exec", body, "operator")).status_code == 403
    answer = await api.ask("POST", "/shop/exec", body)
    assert (answer.status_code, answer.json()["stdout"]) == (200, "login --password hush")
    assert (await api.ask("POST", "/shop/exec", {**body, "path": "/none"})).status_code == 404
    none = await api.ask("POST", "/shop/exec", {**body, "instance": "other"})
    assert (none.status_code, none.json()["code"]) == (409, "no_running_instance")
    lines = [line for line in await api.history("shop:web") if line.event == "exec"]
    assert [(line.who, line.reason) for line in lines] == [("admin", "login")] * 2
    assert "hush" not in str(lines)


async def test_the_log_of_an_unknown_instance_is_an_error_that_names_those_that_exist(api: Api) -> None:
    await api.done("POST", "/shop/deploys", {"definition": "services: {web: {command: x}}"})
    (known,) = [one["instance"] for one in (await api.ask("GET", "/shop/logs?path=/web")).json()]
    assert (await api.ask("GET", f"/shop/logs?path=/web&instance={known}")).status_code == 200
    refused = await api.ask("GET", "/shop/logs?path=/web&instance=nope")
    assert (refused.status_code, refused.json()["code"], refused.json()["known"]) == (404, "unknown_name", [known])
    await api.done("POST", "/shop/deploys", {"definition": JOBS.replace("HOW", "history: 2"), "path": "/"})
    await api.done("POST", "/shop/runs", {"path": "/report"})
    (run,) = (await api.ask("GET", "/shop/runs")).json()
    assert (await api.ask("GET", f"/shop/runs/{run['id']}/logs?instance=nope")).status_code == 404


async def test_the_generic_api_does_not_go_around_the_locks(api: Api) -> None:
    path = "/../../ns/default/objects/shop/actions/delete"
    answer = await api.ask("POST", path, {})
    assert (answer.status_code, answer.json()["code"]) == (409, "unlocked")


JOBS = "jobs: {report: {command: work, env: {KEY: secret-1}, schedule: '0 3 * * *', HOW}}"


async def test_a_job_is_listed_run_suspended_resumed_and_its_runs_are_shown(api: Api) -> None:
    await api.done("POST", "/shop/deploys", {"definition": JOBS.replace("HOW", "history: 2")})
    (job,) = (await api.ask("GET", "/shop/jobs")).json()
    assert (job["path"], job["state"], job["runs"]) == ("/report", "active", [])
    assert job["next"].endswith("T03:00:00Z")
    assert job["definition"]["program"]["env"] == {"KEY": "***"}
    for _ in range(2):
        await api.done("POST", "/shop/runs", {"path": "/report"})
    runs = (await api.ask("GET", "/shop/runs", params={"path": "/report"})).json()
    assert [(one["state"], one["trigger"], one["succeeded"]) for one in runs] == [("succeeded", "request", 1)] * 2
    assert (await api.system())["jobs"][0]["runs"][0]["id"] == runs[0]["id"]
    assert (await api.ask("GET", f"/shop/runs/{runs[0]['id']}/logs")).json() == []
    assert (await api.done("POST", "/shop/jobs/suspend", {"path": "/report"}))["state"] == "suspended"
    assert (await api.ask("GET", "/shop/jobs")).json()[0]["next"] is None
    refused = await api.ask("POST", "/shop/jobs/suspend", {"path": "/report"})
    assert (refused.status_code, refused.json()["state"]) == (409, "suspended")
    assert (await api.done("POST", "/shop/jobs/resume", {"path": "/report"}))["state"] == "active"
    assert (await api.ask("GET", "/shop/deploys")).json()[0]["jobs"] == 1


async def test_a_run_is_cancelled_and_what_is_not_there_is_not_found(api: Api) -> None:
    await api.done("POST", "/shop/deploys", {"definition": JOBS.replace("HOW", "history: 2")})
    api.backend.hang("/report")
    asked = (await api.ask("POST", "/shop/runs", {"path": "/report"}, who="operator")).json()
    cancelled = await api.ask("POST", f"/shop/runs/{asked['id']}/cancel", who="operator")
    assert cancelled.status_code == 202, cancelled.text
    async with asyncio.timeout(PATIENT):
        while (run := (await api.ask("GET", "/shop/runs")).json()[0])["state"] != "cancelled":
            await asyncio.sleep(0.01)
    assert run["cancelled"] == "operator"
    assert (await api.ask("POST", "/shop/runs", {"path": "/other"})).status_code == 404
    assert (await api.ask("POST", "/shop/runs/shop.report@none/cancel")).status_code == 404
    assert (await api.ask("GET", "/shop/runs/shop.report/logs")).status_code == 404
    assert (await api.ask("POST", "/shop/runs", {"path": "/report"}, who="viewer")).status_code == 403


async def test_no_way_out_of_a_run_has_a_value_of_its_environment(api: Api) -> None:
    await api.done("POST", "/shop/deploys", {"definition": JOBS.replace("HOW", "history: 2")})
    run = (await api.done("POST", "/shop/runs", {"path": "/report"}))["id"]
    for path in (f"/objects/{run}", "/objects/shop.report", f"/objects/{run}/history", "/objects"):
        shown = await api.ask("GET", "/../../../v1/ns/default" + path)
        assert shown.status_code == 200, shown.text
        assert "secret-1" not in shown.text


async def test_why_tells_what_is_wrong_with_a_service_its_system_and_a_failed_deploy_and_what_is_allowed(
    api: Api,
) -> None:
    async def why(id_: str) -> Any:
        return (await api.ask("GET", f"/api/v1/ns/default/objects/{id_}/why")).json()

    await api.done("POST", "/shop/deploys", {"definition": "{command: web v1}", "path": "/web"})
    await api.stable()
    api.backend.crash(ServiceRef(SystemRef("default", "shop"), "/web"))
    await until(api.system, lambda system: system["state"] == "degraded")
    (instance,) = await api.backend.instances(ServiceRef(SystemRef("default", "shop"), "/web"))
    ill = f"instance {instance.name} crashed"
    service, system = await why("shop:web"), await why("shop")
    assert (service["error"], service["allowed"]) == (ill, [])
    assert service["text"] == (
        f"it waits for nothing; error: {ill}; allowed now: nothing on itself, but stateward system deploy"
    )
    assert (system["error"], system["allowed"]) == (f"shop:web is degraded: {ill}", ["delete"])
    api.backend.fail("/api")
    deploy = await api.done("POST", "/shop/deploys", {"definition": "{command: x, deadline: 0.1}", "path": "/api"})
    assert "no progress within 0.1 s" in (await why(deploy["id"]))["error"]


async def test_a_folder_that_instances_on_this_host_could_not_use_is_refused_with_its_field(tmp_path: Path) -> None:
    async with open_api("local", LocalBackend(tmp_path)) as api:
        for folder, allowed in (("code", "an absolute path"), ("/no/such/folder", "a folder of this host")):
            definition = f"services:\n  web: {{command: x, folder: {folder}}}"
            answer = await api.ask("POST", "/shop/deploys", {"definition": definition, "path": "/"})
            problem = answer.json()
            assert (answer.status_code, problem["field"]) == (400, "definition, line 2, services.web.folder")
            assert allowed in problem["detail"]
