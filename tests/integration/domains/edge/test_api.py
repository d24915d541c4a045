"""The routes below /api/v1/edge: their requests, responses and rights."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stateward.access import Role
from stateward.config import Config
from stateward.server.auth.authenticator import RateLimiter
from stateward.server.run import ServerApplication, open_application
from tests.waiting import until

BASE = "/api/v1/edge/ns/lab"


class Api:
    """The whole application in this process, with a client for every role."""

    def __init__(self, parts: ServerApplication) -> None:
        self.parts = parts
        self.clients: dict[Role, httpx.AsyncClient] = {}

    async def open(self) -> None:
        transport = httpx.ASGITransport(self.parts.app)  # type: ignore[arg-type]
        for role in Role:
            token, _ = await self.parts.tokens.issue(role.value, role, ["lab:*" if role is Role.AGENT else "lab"])
            headers = {"Authorization": f"Bearer {token}"}
            self.clients[role] = httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers)

    async def call(
        self, method: str, path: str, body: Any = None, status: int = 200, role: Role = Role.OPERATOR, **params: Any
    ) -> Any:
        answer = await self.clients[role].request(method, f"{BASE}{path}", json=body, params=params)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def until_gone(self, path: str) -> None:
        """Wait until something is not there any more."""
        await until(
            lambda: self.clients[Role.VIEWER].get(f"{BASE}{path}"),
            lambda answer: answer.status_code == httpx.codes.NOT_FOUND,
        )


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with open_application(Config(data=str(tmp_path / "data"), only="edge")) as parts:
        found = Api(parts)
        await found.open()
        yield found
        for client in found.clients.values():
            await client.aclose()


async def test_everything_can_be_made_changed_shown_and_removed(api: Api) -> None:
    made = await api.call("POST", "/cloudlets", {"name": "munich", "orphans": "remove"}, 202)
    assert made["object"]["state"] == "Init"
    assert made["operation"]["status"] == "waiting"
    await api.call("PUT", "/flavors/m4", {"size": "small"})
    await api.call("PUT", "/autoscale/busy", {"min": 1, "max": 5, "cpu": 100})
    await api.call("PUT", "/autoprov/near", {"cloudlets": ["munich"], "max": 3})
    await api.call("PUT", "/apps/web", {"command": "sleep 9", "autoprov": "near", "flavor": "m4"})
    body = {"name": "c1", "flavor": "m4", "nodes": 2, "autoscale": "busy"}
    made = await api.call("POST", "/cloudlets/munich/clusterinsts", body, 202)
    assert made["object"]["spec"]["size"] == "small"
    assert (await api.call("GET", "/cloudlets/munich/clusterinsts/c1"))["state"] == "CreateRequested"
    assert [one["id"] for one in await api.call("GET", "/clusterinsts", cloudlet="munich")] == ["munich:c1"]
    assert await api.call("GET", "/appinsts") == []
    await api.call("POST", "/apps/web/demand", {"requests": {"munich": 100}})
    assert (await api.call("GET", "/apps/web"))["spec"]["command"] == "sleep 9"
    for path in ("/flavors/m4", "/autoscale/busy", "/autoprov/near"):
        assert "in use by" in (await api.call("DELETE", path, status=409))["detail"]
    await api.call("DELETE", "/cloudlets/munich/clusterinsts/c1", None, 202, Role.ADMIN, ignore=["agent", "transient"])
    await api.until_gone("/cloudlets/munich/clusterinsts/c1")
    assert await api.call("GET", "/clusterinsts") == []
    await api.call("PATCH", "/cloudlets/munich/clusterinsts/c1", {"nodes": 2}, 404)
    await api.call("DELETE", "/cloudlets/munich/clusterinsts/c1", status=404)
    await api.call("DELETE", "/apps/web")
    for path in ("/flavors/m4", "/autoscale/busy", "/autoprov/near"):
        assert await api.call("GET", path)
        assert (await api.call("DELETE", path))["id"] == path[1:].replace("s/", ".").replace("/", ".")
        await api.call("GET", path, status=404)
    assert (await api.call("GET", "/agents"))["agents"] == []


async def test_what_cannot_be_is_refused_with_the_field_named(api: Api) -> None:
    await api.call("POST", "/cloudlets", {"name": "munich"}, 202)
    for body in ({"name": "Munich"}, {"name": "a:b"}, {"name": ""}, {"nme": "x"}, {"name": "x", "missing": "panic"}):
        assert (await api.call("POST", "/cloudlets", body, 400))["field"]
    clusters = "/cloudlets/munich/clusterinsts"
    for wrong in ({"nodes": 0}, {"name": "autocluster1"}, {"size": "x"}):
        await api.call("POST", clusters, {"name": "c1", **wrong}, 400)
    await api.call("POST", clusters, {"name": "c1", "flavor": "none"}, 404)
    await api.call("POST", "/cloudlets/nowhere/clusterinsts", {"name": "c1"}, 404)
    await api.call("PATCH", f"{clusters}/c1", {"nodes": 2}, 404)
    await api.call("POST", "/cloudlets/munich/upgrade", {"version": "../x"}, 400)
    await api.call("POST", f"{clusters}/c1/appinsts", {"app": "none"}, 404)
    problem = await api.call("PUT", "/autoprov/p", {"cloudlets": ["munich", "nope"]}, 400)
    assert problem["field"] == "cloudlets"
    assert "'nope'" in problem["detail"]
    await api.call("PUT", "/apps/web", {"command": "true"})
    problem = await api.call("POST", "/apps/web/demand", {"requests": {"nope": 5}}, 400)
    assert problem["field"] == "requests"
    assert "'nope'" in problem["detail"]
    contrary: dict[str, object] = {"min": 5, "max": 4}
    for policy, wanted in (("/autoscale/p", contrary), ("/autoprov/p", {"cloudlets": [], **contrary})):
        problem = await api.call("PUT", policy, wanted, 400)
        assert "at least 5, the minimum" in problem["detail"]
    await api.call("GET", "/cloudlets/munich:c1", status=400)


async def test_a_field_of_a_part_that_nobody_reads_is_refused_with_the_nearest_name(api: Api) -> None:
    wrong: tuple[tuple[dict[str, object], str, str], ...] = (
        ({"privileged": True}, "privileged", "Known: name, image"),
        ({"read_onyl": True}, "read_onyl", "did you mean 'read_only'?"),
        ({"volumes": [{"path": "/d", "source": "/etc"}]}, "volumes[0].source", "Known: path, name"),
        ({"ports": [{"port": 80, "publishd": True}]}, "ports[0].publishd", "did you mean 'published'?"),
        ({"probe": {"type": "tcp", "port": 80, "host": "x"}}, "probe.host", "Known: type, port"),
        ({"resources": {"memory": 64}}, "resources.memory", "did you mean 'memory_mib'?"),
    )
    for part, field, told in wrong:
        for method, path in (("PUT", "/apps/web"), ("PATCH", "/cloudlets/munich/clusterinsts/c1/appinsts/web")):
            problem = await api.call(method, path, {"parts": [{"image": "web:1", **part}]}, 400)
            assert problem["field"] == f"parts[0].{field}"
            assert told in problem["detail"]


@pytest.mark.parametrize(
    ("path", "whole", "field"),
    [
        ("/flavors/m4", {"size": "small"}, "size"),
        ("/apps/web", {"command": "serve"}, "command"),
        ("/autoprov/near", {"cloudlets": ["munich"]}, "cloudlets"),
    ],
)
async def test_a_record_is_not_replaced_by_one_without_its_required_field(
    api: Api, path: str, whole: dict[str, Any], field: str
) -> None:
    await api.call("POST", "/cloudlets", {"name": "munich"}, 202)
    await api.call("PUT", path, whole)
    assert field in (await api.call("PUT", path, {}, 400))["detail"]
    assert (await api.call("GET", path))["spec"][field] == whole[field]


async def test_numbers_of_a_policy_and_of_a_load_have_limits(api: Api) -> None:
    for field, value in (("cpu", 1e-300), ("mem", 1e300), ("connections", 0.0001), ("cpu", -1)):
        assert field in (await api.call("PUT", "/autoscale/as", {"min": 1, "max": 3, field: value}, 400))["field"]
    await api.call("PUT", "/autoscale/as", {"min": 1, "max": 3, "cpu": 0.001})
    await api.call("POST", "/cloudlets", {"name": "munich"}, 202)
    await api.call("POST", "/cloudlets/munich/clusterinsts", {"name": "c1", "autoscale": "as"}, 202)
    load = "/cloudlets/munich/clusterinsts/c1/load"
    for value in (1e308, -1):
        assert "cpu" in (await api.call("POST", load, {"cpu": value}, 400))["field"]
    await api.call("POST", load, {"cpu": 1e12})


@pytest.mark.parametrize("text", ["a\0b", "a\x1b[2J", "a\x9b"])
async def test_control_characters_in_texts_of_processes_are_refused_with_the_field_named(api: Api, text: str) -> None:
    async def refused(method: str, path: str, body: dict[str, str], field: str) -> None:
        assert (await api.call(method, path, body, 400))["field"] == field

    await api.call("POST", "/cloudlets", {"name": "munich"}, 202)
    await refused("PUT", "/flavors/m4", {"size": text}, "size")
    await refused("PUT", "/apps/web", {"command": text}, "command")
    await refused("PUT", "/apps/web", {"command": "serve", "setup": text}, "setup")
    await refused("POST", "/cloudlets/munich/clusterinsts", {"name": "c1", "setup": text}, "setup")
    await api.call("GET", "/apps/web", status=404)
    script = {"command": "set -e\n\tserve\r\n", "setup": "true\n"}
    assert (await api.call("PUT", "/apps/web", script))["spec"]["command"] == script["command"]


async def test_a_refusal_tells_the_state_and_who_is_in_the_way(api: Api) -> None:
    await api.call("POST", "/cloudlets", {"name": "munich"}, 202)
    problem = await api.call("POST", "/cloudlets/munich/upgrade", {"version": "2.0"}, 409)
    assert (problem["state"], problem["blocker"]["action"]) == ("Init", "create")
    await api.call("POST", "/cloudlets/munich/clusterinsts", {"name": "c1"}, 202)
    problem = await api.call("DELETE", "/cloudlets/munich/clusterinsts/c1", status=403)  # now for administrators only
    assert problem["state"] == "CreateRequested"


async def test_each_role_may_do_what_it_may(api: Api) -> None:
    await api.call("POST", "/cloudlets", {"name": "munich"}, 403, Role.VIEWER)
    await api.call("POST", "/cloudlets", {"name": "munich"}, 403, Role.AGENT)
    await api.call("GET", "/cloudlets", status=200, role=Role.VIEWER)
    await api.call("POST", "/cloudlets", {"name": "munich"}, 202)
    clusters = "/cloudlets/munich/clusterinsts"
    problem = await api.call("POST", clusters, {"name": "c1"}, 403, ignore="agent")
    assert "only an administrator" in problem["detail"]
    await api.call("POST", clusters, {"name": "c1"}, 202, Role.ADMIN, ignore="agent")


async def test_the_same_key_does_it_only_once(api: Api) -> None:
    await api.call("POST", "/cloudlets", {"name": "munich"}, 202)
    client, headers = api.clients[Role.OPERATOR], {"Idempotency-Key": "once"}
    path = f"{BASE}/cloudlets/munich/clusterinsts"
    answers = [await client.post(path, json={"name": "c1"}, headers=headers) for _ in range(2)]
    assert [one.status_code for one in answers] == [202, 202], answers[1].text
    assert answers[0].json()["operation"]["id"] == answers[1].json()["operation"]["id"]
    assert [one.headers.get("idempotency-replayed") for one in answers] == [None, "true"]


async def dialled(api: Api, token: str, address: str = "192.0.2.7") -> list[int]:
    """Connect as an agent and disconnect; return the code with which the server refuses the connection, if it does."""
    path = "/api/v1/edge/agents/lab/munich"
    sent: list[Any] = []
    scope: Any = {
        "type": "websocket", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "ws", "path": path,
        "raw_path": path.encode(), "root_path": "", "query_string": b"", "subprotocols": [], "extensions": {},
        "headers": [(b"host", b"x"), (b"authorization", f"Bearer {token}".encode())],
        "client": (address, 4711), "server": ("x", 80), "state": {},
    }  # fmt: skip
    words: Any = iter([{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1001}])

    async def receive() -> Any:
        return next(words)

    async def send(message: Any) -> None:
        sent.append(message)

    await api.parts.app(scope, receive, send)
    return [one["code"] for one in sent if one["type"] == "websocket.close"]


async def test_wrong_tokens_of_agents_are_limited_and_lock_no_honest_agent_out(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticator = api.parts.app.state.service.authenticator
    monkeypatch.setattr(authenticator, "_failure_limiter", RateLimiter(1.0, lambda: 0.0, span=5.0))
    mine, _ = await api.parts.tokens.issue("munich", Role.AGENT, ["lab:munich"])
    assert await dialled(api, mine) == []
    found = [await dialled(api, f"sw_{number:012x}_guess") for number in range(8)]
    assert found == [[4401]] * 5 + [[4429]] * 3
    assert await dialled(api, mine) == [], "it was right before"
    assert await dialled(api, "sw_000000000099_guess", "192.0.2.8") == [4401], "an allowance of its own"


async def test_a_second_create_is_refused_with_a_key_as_without_and_stays_refused(api: Api) -> None:
    await api.call("POST", "/cloudlets", {"name": "munich"}, 202)
    client, path = api.clients[Role.OPERATOR], f"{BASE}/cloudlets/munich/clusterinsts"
    await client.post(path, json={"name": "c1"}, headers={"Idempotency-Key": "first"})
    plain = await client.post(path, json={"name": "c1"})
    for _ in range(2):
        keyed = await client.post(path, json={"name": "c1"}, headers={"Idempotency-Key": "second"})
        assert (keyed.status_code, keyed.json()["code"]) == (plain.status_code, plain.json()["code"]), keyed.text
        assert keyed.json()["detail"] == plain.json()["detail"]


async def test_a_second_create_of_a_cloudlet_is_refused_alike_with_a_key_and_without(api: Api) -> None:
    client, path = api.clients[Role.OPERATOR], f"{BASE}/cloudlets"

    async def create(key: str) -> httpx.Response:
        return await client.post(path, json={"name": "oslo"}, headers={"Idempotency-Key": key})

    made = await create("first")
    plain = await client.post(path, json={"name": "oslo"})
    assert (plain.status_code, plain.json()["code"]) == (409, "in_transition")
    for _ in range(2):
        keyed = await create("second")
        assert (keyed.status_code, keyed.json()["detail"]) == (409, plain.json()["detail"]), keyed.text
    assert (await create("first")).json()["operation"]["id"] == made.json()["operation"]["id"]
    other = await client.post(path, json={"name": "rome"}, headers={"Idempotency-Key": "second"})
    assert (other.status_code, other.json()["code"]) == (409, "key_reused")
