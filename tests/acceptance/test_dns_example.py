"""The example plug-in `stateward-dns`: installed by pip, and driven through the API, the commands and the console.

The DNS server is a real one. All tests share the environment, the DNS server and the Stateward server.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dns.message
import dns.query
import dns.tsig
import dns.update
import httpx
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from knot_server import KNOTD, KnotServer, running_knot
from tests.acceptance.fresh_environments import FreshEnvironment
from tests.console.browser import AUDIT, CHROMIUM, launch_browser, signed_in
from tests.integration.server.server_processes import Served, served
from tests.waiting import wait_until

PACKAGE = Path(__file__).parents[2] / "examples" / "dns"
AXE = PACKAGE.parents[1] / "node_modules" / "axe-core" / "axe.min.js"
PATIENT = 60.0
BY_HAND = 60
"""The TTL of records that somebody else writes."""


def missing(program: str, package: str) -> None:
    """Skip a test whose program is not installed; in CI nothing is skipped."""
    reason = f"there is no {program} on this machine: apt-get install {package}, or run tools/setup.py dev as root"
    pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


@pytest.fixture(scope="module")
def knot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnotServer]:
    if KNOTD is None:
        missing("knotd", "knot")
    with running_knot(tmp_path_factory.mktemp("knot")) as server:
        yield server


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> FreshEnvironment:
    made = FreshEnvironment(tmp_path_factory.mktemp("fresh") / "environment")
    made.install(PACKAGE)
    return made


class Site:
    """A Stateward server in the fresh environment, which can be killed and started again."""

    def __init__(self, folder: Path, environment: FreshEnvironment, knot: KnotServer) -> None:
        self._folder, self._environment, self.knot = folder, environment, knot
        self._stack = ExitStack()
        self.server = self.start()

    def start(self) -> Served:
        """Start the server."""
        self.server = self._stack.enter_context(
            served(self._folder / "data", environ=self.knot.environ, program=self._environment.stateward)
        )
        return self.server

    def stop(self) -> None:
        """End what was started."""
        self._stack.close()

    def typed(self, *words: str, code: int = 0) -> str:
        """Run a command, and return what it prints."""
        command = [str(self._environment.stateward), *words, "--data", str(self._folder / "data")]
        return self._environment.run(command, code=code)

    def call(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Call the API."""
        with self.server.client() as client:
            return client.request(method, f"/api/v1{path}", json=body)

    def state(self, id_: str) -> str:
        """Return an object's state."""
        return str(self.call("GET", f"/ns/default/objects/{id_}").json()["state"])

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something is true."""
        wait_until(holds, explain=lambda: self.server.output)

    def served(self, name: str, type_: str = "A") -> list[str]:
        """Ask the DNS server, as any resolver would."""
        query = dns.message.make_query(name, type_)
        answer = dns.query.udp(query, "127.0.0.1", 5.0, self.knot.port, ignore_unexpected=True)
        return sorted(data.to_text() for found in answer.answer for data in found)

    def write_by_hand(self, zone: str, name: str, value: str) -> None:
        """Change a record at the DNS server, past Stateward."""
        at = self.knot.at
        message = dns.update.UpdateMessage(zone, keyring=dns.tsig.Key(at.key_name, at.key_secret, at.key_algorithm))
        message.replace(name, BY_HAND, "A", value)
        assert dns.query.tcp(message, at.host, 5.0, at.port).rcode() == 0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, environment: FreshEnvironment, knot: KnotServer) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("served"), environment, knot)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def page(site: Site) -> Iterator[Page]:
    if CHROMIUM is None:
        missing("chromium-headless-shell", "chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = launch_browser(playwright)
        with signed_in(browser, site.server.url, site.server.token) as (_, opened, errors):
            opened.set_default_timeout(PATIENT * 1000)
            yield opened
            assert (errors.errors, errors.outside) == ([], [])
        browser.close()


def record(zone: str, id_: str, value: str = "192.0.2.1", **more: Any) -> dict[str, Any]:
    return {"kind": "dns.record", "id": id_, "spec": {"zone": zone, "name": id_, "values": [value], **more}}


def test_api_creates_changes_explains_and_exports(site: Site) -> None:
    zone = "api.example"
    schema = site.call("GET", "/kinds/dns.record").json()
    assert schema["spec"]["properties"]["ttl"]["minimum"] == 30
    assert schema["args"]["change"]["properties"].keys() == {"values", "ttl"}
    assert site.call("POST", "/ns/default/objects", {"kind": "dns.zone", "id": zone, "spec": {}}).status_code == 202
    site.until(lambda: site.state(zone) == "ready")
    assert site.call("POST", "/ns/default/objects", record(zone, "www")).status_code == 202
    site.until(lambda: site.served("www.api.example") == ["192.0.2.1"])
    refused = site.call("POST", "/ns/default/objects", record(zone, "api", ttl=1))
    assert refused.is_client_error
    assert refused.json()["field"].endswith("ttl")
    twin = {**record(zone, "www"), "id": "twin"}
    assert site.call("POST", "/ns/default/objects", twin).json()["code"] == "record_taken"
    site.call("POST", "/ns/default/objects/www/actions/change", {"args": {"values": ["192.0.2.2"], "ttl": 60}})
    site.until(lambda: site.served("www.api.example") == ["192.0.2.2"])
    file = site.call("GET", f"/dns/default/zones/{zone}/file")
    assert file.text == "$ORIGIN api.example.\nwww\t60\tIN\tA\t192.0.2.2\n"
    assert site.call("GET", "/dns/default/zones/www/file").status_code in (400, 404)
    assert (
        httpx.get(
            f"{site.server.url}/api/v1/dns/default/zones/{zone}/file", trust_env=False, timeout=PATIENT
        ).status_code
        == 401
    )
    page = site.call("GET", "/plugins/dns/docs").text
    assert page.startswith("# DNS zones and records")
    assert "## dns.record" in page
    described = httpx.get(f"{site.server.url}/docs/openapi.json", trust_env=False, timeout=PATIENT).json()
    assert "/api/v1/dns/{ns}/zones/{zone}/file" in described["paths"]
    example = {"zone": "example.org", "name": "www", "type": "A", "values": ["192.0.2.1"]}
    assert described["components"]["schemas"]["dns.record.spec"]["examples"] == [example]
    assert site.call("POST", f"/ns/default/objects/{zone}/actions/delete", {}).json()["code"] == "zone_not_empty"


def test_commands_do_the_same_by_domain_names(site: Site) -> None:
    assert "ready" in site.typed("dns", "add", "cli.example", "--wait")
    assert "active" in site.typed("dns", "set", "www.cli.example", "A", "192.0.2.1", "192.0.2.2", "--wait")
    assert site.served("www.cli.example") == ["192.0.2.1", "192.0.2.2"]
    assert "active" in site.typed("dns", "set", "www.cli.example", "A", "192.0.2.3", "--ttl", "60", "--wait")
    assert "192.0.2.3" in site.typed("dns", "records", "cli.example")
    assert site.typed("dns", "export", "cli.example") == "$ORIGIN cli.example.\nwww\t60\tIN\tA\t192.0.2.3\n"
    assert "must be a name in one of the zones" in site.typed("dns", "set", "www.nowhere.example", "A", "::1", code=2)
    assert "must be the data of a record of type A" in site.typed("dns", "set", "www.cli.example", "A", "::1", code=2)
    spec = ("--set", "zone=cli.example", "--set", "name=api", "--set", "values=192.0.2.8,192.0.2.9")
    assert "active" in site.typed("create", "dns.record", "api", *spec, "--wait")
    assert site.served("api.cli.example") == ["192.0.2.8", "192.0.2.9"]
    assert "succeeded" in site.typed("delete", "api", "--wait")
    assert "disabled" in site.typed("do", "disable", "www.cli.example-A", "--wait")
    assert site.served("www.cli.example") == []
    assert "succeeded" in site.typed("dns", "remove", "www.cli.example", "A", "--wait")
    assert "succeeded" in site.typed("delete", "cli.example", "--wait")
    assert "cli.example" not in site.typed("dns", "zones")


def test_killed_server_neither_doubles_nor_loses_a_change(site: Site) -> None:
    """The DNS server gets the update, and carries it out only when the process that has sent it is dead."""
    site.typed("dns", "add", "killed.example", "--wait")
    with site.knot.suspended():
        body = {**record("killed.example", "www"), "id": "killed-www"}
        op = site.call("POST", "/ns/default/objects", body).json()["operation"]["id"]
        site.until(lambda: site.knot.has_unread_data)  # the update has arrived
        site.server.stop(signal.SIGKILL)
    site.start()
    site.until(lambda: site.call("GET", f"/ns/default/operations/{op}").json()["status"] == "succeeded")
    assert site.state("killed-www") == "active"
    assert site.served("www.killed.example") == ["192.0.2.1"]
    history = site.call("GET", "/ns/default/objects/killed-www/history").json()["items"]
    assert [one["target"] for one in history if one["target"]] == ["creating", "active"]


def test_silent_server_makes_a_zone_unknown_and_never_lost(site: Site) -> None:
    site.typed("dns", "add", "silent.example", "--wait")
    with site.knot.suspended():
        site.until(lambda: site.state("silent.example") == "unknown")
    site.until(lambda: site.state("silent.example") == "ready")


def test_console_shows_zones_with_their_records_and_drift(site: Site, page: Page) -> None:
    site.typed("dns", "add", "console.example", "--wait")
    page.evaluate("() => { location.hash = '#/dns' }")
    card = page.locator("[data-zone='console.example']")
    expect(card).to_contain_text("ready")
    expect(card).to_contain_text("It has no records yet.")
    page.get_by_role("button", name="New record", exact=True).click()
    form = page.locator("#question form")
    for name, value in {"zone": "console.example", "name": "www", "values": "192.0.2.7"}.items():
        form.locator(f"[name={name}]").fill(value)
    form.get_by_role("button", name="Create", exact=True).click()
    expect(card).to_contain_text("192.0.2.7")
    expect(card).to_contain_text("active")
    assert site.served("www.console.example") == ["192.0.2.7"]
    site.write_by_hand("console.example", "www", "198.51.100.9")
    expect(card).to_contain_text("drifted")
    expect(card).to_contain_text("the server serves 198.51.100.9 with TTL 60")
    card.get_by_role("button", name="Zone file").click()
    expect(card.locator("pre")).to_contain_text("198.51.100.9")
    page.evaluate(AXE.read_text("utf-8"))
    assert page.evaluate(AUDIT) == []
    card.get_by_role("link", name="www").click()
    page.get_by_role("button", name="Repair", exact=True).click()
    page.locator("#action").get_by_role("button", name="Repair www", exact=True).click()
    site.until(lambda: site.served("www.console.example") == ["192.0.2.7"])
    site.until(lambda: site.state("www.console.example-A") == "active")
    page.locator("[data-action=change][aria-disabled='true']").wait_for(state="detached")
    page.locator("[data-action=change]").click()
    form.locator("[name=values]").fill("192.0.2.8\n192.0.2.9")
    form.get_by_role("button", name="Change", exact=True).click()
    site.until(lambda: site.served("www.console.example") == ["192.0.2.8", "192.0.2.9"])
