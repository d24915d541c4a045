"""Systems on nodes: real agents that are killed, stopped and drained while their instances serve."""

import signal
import threading
from collections import Counter
from pathlib import Path

import httpx
import msgspec
from websockets.sync.client import connect

from stateward.agents.messages import Hello
from tests.integration.domains.systems.node_harness import Hosts, environment, serving_hosts, web
from tests.integration.server.server_processes import PATIENT, invoke, served
from tests.kept_ports import keep_port

MANY = 4

REPORT = {"command": ["sh", "-c", "echo on $STATEWARD_NODE; [ $STATEWARD_NODE = a ] || sleep 1000"], "retries": 9}
"""A job that ends on node a alone."""


def load(port: int, over: threading.Event, answers: Counter[str]) -> None:
    """Send requests one after the other until it is over, and count the answers by node, or by what went wrong."""
    with httpx.Client(trust_env=False, timeout=20.0, verify=False) as client:
        while not over.is_set():
            try:
                found = client.get(f"http://127.0.0.1:{port}/", headers={"Connection": "close"})
                answers[found.text.split()[0] if found.status_code == 200 else str(found.status_code)] += 1
            except httpx.HTTPError as error:
                answers[f"{type(error).__name__}: {error}"] += 1


def check_logs_and_commands(hosts: Hosts, http: httpx.Client) -> None:
    """Read the logs of all instances, and run commands in them, through one server."""
    url = "/api/v1/systems/default/shop"
    logs = http.get(f"{url}/logs", params={"path": "/web", "most": 900_000}).raise_for_status().json()
    assert {one["instance"]: one["text"] for one in logs} == {
        name: f"on {node}\n" for name, node in hosts.ready().items()
    }
    for name, node in hosts.ready().items():
        script = "[ $PWD = $STATEWARD_WORK ] && echo $STATEWARD_NAME on $STATEWARD_NODE; echo oh >&2; exit 3"
        body = {"path": "/web", "argv": ["sh", "-c", script], "instance": name}
        done = http.post(f"{url}/exec", json=body).raise_for_status().json()
        assert (done["exit_status"], done["stdout"], done["stderr"]) == (3, f"{name} on {node}\n", "oh\n")
    long = {"path": "/web", "argv": ["sh", "-c", "yes; sleep 100"], "timeout": 0.5}
    late = http.post(f"{url}/exec", json=long).raise_for_status().json()
    assert (late["exit_status"], late["truncated"]) == (None, True)
    assert 0 < len(late["stdout"]) <= 262_144
    wrong = http.post(f"{url}/exec", json={"path": "/web", "argv": ["true"], "instance": "none"})
    assert (wrong.status_code, wrong.json()["code"]) == (409, "no_running_instance")


def check_alert(hosts: Hosts, node: str) -> None:
    """Check that a lost node is an alert, wherever one looks."""
    (alert,) = hosts.node(node)["alerts"]
    assert (alert["node"], alert["name"]) == (node, "node lost")
    assert alert["reason"].startswith("it did not renew its lease; ")
    assert hosts.http.get("/api/v1/systems/default/shop").json()["alerts"] == [alert]
    why = hosts.http.get(f"/api/v1/ns/default/objects/{node}/why").raise_for_status().json()
    assert why["text"] == f"it waits for nothing; alert: node lost, {alert['reason']}"
    data = ("--data", str(hosts.folder / "data"))
    assert "node lost for" in invoke("system", "node", "list", *data).stdout
    assert f"{node}: node lost for" in invoke("system", "status", "shop", *data).stdout


def test_a_killed_and_a_stopped_agent_and_a_drained_node_lose_no_request_and_double_nothing(tmp_path: Path) -> None:
    port = keep_port()
    with serving_hosts(tmp_path) as hosts:
        for name in ("a", "b"):
            hosts.register(name, {"zone": name})
            hosts.join(name)
        hosts.until(lambda: all(hosts.node(name)["state"] == "ready" for name in ("a", "b")))
        hosts.deploy({"report": REPORT}, web=web(MANY, port, drain=1.0))
        assert Counter(hosts.ready().values()) == {"a": 2, "b": 2}  # spread

        # Logs come from the nodes, and commands run there: through this server, and through one without a connection.
        with (
            served(tmp_path / "data", "--no-worker", environ=environment()) as other,
            other.client() as client,
        ):
            for http in (hosts.http, client):
                check_logs_and_commands(hosts, http)
        history = hosts.http.get("/api/v1/ns/default/objects/shop:web/history", params={"limit": 1000}).json()
        commands = Counter(one["reason"] for one in history["items"] if one["event"] == "exec")
        assert commands["sh"] == 2 * (MANY + 1)  # each once: a server that forwards a command does not record it

        # A node with instances cannot be deleted.
        refused = hosts.http.delete("/api/v1/systems/default/-/nodes/a")
        assert (refused.status_code, refused.json()["code"]) == (409, "not_empty")

        # A drain under load: new ones are ready before the old ones stop, and no request is lost.
        over, answers = threading.Event(), Counter[str]()
        loads = [threading.Thread(target=load, args=(port, over, answers)) for _ in range(4)]
        for one in loads:
            one.start()
        drained = hosts.http.post("/api/v1/systems/default/-/nodes/a/drain")
        assert hosts.ended(drained) == "succeeded"
        hosts.until(lambda: Counter(hosts.ready().values()) == {"b": MANY}, hosts.never_doubled)
        over.set()
        for one in loads:
            one.join()
        assert set(answers) <= {"a", "b"}, answers
        assert sum(answers.values()) >= 20
        assert not hosts.agents["a"].living()
        assert hosts.node("a")["state"] == "cordoned"

        # A run of a job goes on after the server was killed; if that takes longer than the lease, with another attempt.
        begun = hosts.http.post("/api/v1/systems/default/shop/runs", json={"path": "/report"}).raise_for_status().json()
        hosts.until(lambda: "0-0" in hosts.agents["b"].living().values())
        hosts.restart(signal.SIGKILL)
        hosts.until(lambda: bool(hosts.node("b")["connected"]), hosts.never_doubled)
        hosts.until(lambda: any(name.startswith("0-") for name in hosts.agents["b"].living().values()))
        hosts.http.post("/api/v1/systems/default/-/nodes/a/uncordon").raise_for_status()

        # The agent of b is killed: its watchdog kills the instances, and only then they start on a; so does the retry.
        hosts.agents["b"].signal(signal.SIGKILL)
        hosts.until(lambda: Counter(hosts.ready().values()) == {"a": MANY}, hosts.never_doubled)
        assert hosts.node("b")["state"] == "lost"
        assert not hosts.agents["b"].living()
        assert hosts.ended(begun) == "succeeded"
        check_alert(hosts, "b")

        # It comes back with nothing but logs: each attempt was made once, and the last one on a.
        hosts.agents["b"].start()
        hosts.until(lambda: hosts.node("b")["state"] == "ready", hosts.never_doubled)
        logs = hosts.http.get(f"/api/v1/systems/default/shop/runs/{begun['id']}/logs").raise_for_status().json()
        *former, last = [one["text"] for one in sorted(logs, key=lambda one: str(one["instance"]))]
        assert (set(former), last) == ({"on b\n"}, "on a\n")
        assert hosts.http.get("/api/v1/systems/default/shop").json()["alerts"] == []

        # The agent of a is stopped, and wakes up after its instances were moved.
        hosts.agents["a"].signal(signal.SIGSTOP)
        hosts.until(lambda: Counter(hosts.ready().values()) == {"b": MANY}, hosts.never_doubled)
        hosts.agents["a"].signal(signal.SIGCONT)
        hosts.until(lambda: hosts.node("a")["state"] == "ready", hosts.never_doubled)
        assert not hosts.agents["a"].living()
        assert Counter(hosts.ready().values()) == {"b": MANY}

        # An empty node is deleted, and its agent is not let in again.
        hosts.http.delete("/api/v1/systems/default/-/nodes/a").raise_for_status()
        assert hosts.http.get("/api/v1/systems/default/-/nodes/a").status_code == 404
        hosts.ended(hosts.http.delete("/api/v1/systems/default/shop"))
        hosts.until(lambda: not hosts.agents["b"].living())


def test_a_token_of_another_node_or_of_all_names_opens_nothing(tmp_path: Path) -> None:
    with serving_hosts(tmp_path) as hosts:
        for name, named in (("a", "b"), ("b", "*")):
            hosts.register(name, named=named)
            hosts.join(name)
        hosts.until(lambda: all("the token does not name this node" in one.output for one in hosts.agents.values()))
        assert {hosts.node(name)["state"] for name in ("a", "b")} == {"registered"}


def test_a_node_behind_a_proxy_without_tls_takes_no_secrets_and_names_no_address_of_the_controller(
    tmp_path: Path,
) -> None:
    proxied, over_tls = {"X-Forwarded-For": "192.0.2.7"}, {"X-Forwarded-Proto": "https"}
    hellos = {
        "direct": ("127.0.0.1", {}, "welcome", False),  # of a host with a proxy, which may be anybody's
        "plain": ("192.0.2.7", proxied, "welcome", False),
        "tls": ("192.0.2.7", proxied | over_tls, "welcome", True),
        "liar": ("127.0.0.1", proxied | over_tls, "goodbye", False),
    }
    with serving_hosts(tmp_path, "--set", "trusted_proxies=127.0.0.1") as hosts:
        for name, (address, headers, answer, secrets) in hellos.items():
            hosts.register(name)
            token = {"Authorization": f"Bearer {(tmp_path / f'{name}.token').read_text().strip()}"}
            url = f"{hosts.server.url.replace('http', 'ws')}/api/v1/systems/-/nodes/default/{name}"
            with connect(url, additional_headers=token | headers, proxy=None) as agent:
                agent.send(msgspec.json.encode(Hello("1.0", address=address, secrets=True)).decode())
                assert msgspec.json.decode(agent.recv(PATIENT))["type"] == answer
            assert hosts.node(name)["secrets"] is secrets, name
