"""Actions in the page: they run to their end and are shown live, are refused with a reason, and survive a restart."""

import json
from signal import SIGKILL
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.console.browser import record_errors, signed_in
from tests.console.server_process import ConsoleServer, wait_until

SEEN = "import('/console/core/store.js').then((one) => one.store.latest.map((entry) => entry.seq))"
HEAD = ".who-is .badge"


def at(server: ConsoleServer, view: str) -> str:
    return f"{server.url}/#/{view}"


def test_an_action_is_done_in_the_page_and_seen_to_end_without_a_reload(
    browser: Browser, server: ConsoleServer
) -> None:
    view = at(server, "object/demo/ledger")
    with signed_in(browser, view, server.token, motion=True) as (_, page, page_errors):
        page.get_by_role("button", name="Stop", exact=True).click()
        expect(page.locator(HEAD)).to_have_text("HALTED")
        expect(page.locator(".timeline li").first).to_contain_text("succeeded")
        expect(page.locator(".state.here")).to_contain_text("HALTED")
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator(HEAD)).to_have_text("RUNNING")
        assert page_errors.errors == []


def test_what_was_deleted_is_restored_from_the_recycle_bin(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, at(server, "ovc"), server.token) as (_, page, page_errors):
        row = page.locator("tr", has_text="old-data")
        row.get_by_role("button", name="Restore").click()
        expect(row).to_have_count(0)
        assert page_errors.errors == []


def test_the_journal_is_filtered_followed_and_taken_along(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, at(server, "journal?object=lab"), server.token) as (_, page, page_errors):
        expect(page.locator(".vrow")).to_have_count(1)
        server.call("POST", "/ns/demo/objects/lab/actions/reboot?wait=60", {})
        expect(page.locator(".vrow", has_text="reboot").first).to_be_visible()
        with page.expect_download() as begun:
            page.get_by_role("button", name="Export", exact=True).click()
        written = [json.loads(line) for line in begun.value.path().read_text().splitlines()]
        assert {line["object"] for line in written} == {"lab"}
        assert "reboot" in {line["event"] for line in written}
        assert page_errors.errors == []


def test_a_token_is_made_shown_once_and_taken_back_and_a_quota_is_set(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, at(server, "access"), server.token) as (_, page, page_errors):
        page.get_by_label("person or program").fill("ann")
        page.locator("form").get_by_label("namespaces").fill("demo")
        page.get_by_role("button", name="Create token").click()
        expect(page.locator(".secret")).to_contain_text("sw_")
        row = page.locator("tr", has_text="ann")
        row.get_by_role("button", name="Revoke").click()
        page.locator("#question").get_by_role("button", name="Revoke").click()
        expect(row).to_contain_text("revoked")
        page.locator("form").get_by_label("namespace", exact=True).fill("bank")
        page.get_by_label("objects by kind").fill("mci.vm=7")
        page.get_by_role("button", name="Set quota", exact=True).click()
        expect(page.locator("tr", has_text="bank")).to_contain_text("mci.vm: 7")
        assert page_errors.errors == []


def test_a_restart_of_the_server_needs_no_reload_and_hides_no_change(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, at(server, "object/demo/ledger"), server.token) as (_, page, _):
        page.evaluate("window.marker = 'the same page'")
        expect(page.locator("#live .dot.live")).to_be_visible()
        expect(page.locator(".timeline")).to_be_visible()
        before = page.evaluate("import('/console/core/store.js').then((one) => one.store.seq)")
        server.stop(SIGKILL)
        expect(page.locator("#offline")).to_be_visible()
        server.start()
        server.call("POST", "/ns/demo/objects/ledger/actions/reboot?wait=30", {})
        expect(page.locator("#live .dot.live")).to_be_visible()
        wanted = [line["seq"] for line in server.call("GET", f"/journal?after={before}&limit=1000")["items"]]
        wait_until(lambda: [seq for seq in page.evaluate(SEEN) if seq > before][: len(wanted)] == wanted)
        expect(page.locator(".timeline")).to_contain_text("reboot")
        assert page.evaluate("window.marker") == "the same page"


@pytest.mark.parametrize(
    ("view", "times"), [("object/demo/ledger", ".timeline time"), ("journal?object=ledger", "[role=row] time")]
)
def test_a_view_of_the_journal_has_what_happens_while_it_is_read(
    browser: Browser, server: ConsoleServer, view: str, times: str
) -> None:
    with signed_in(browser, at(server, "timers"), server.token) as (_, page, _):
        expect(page.locator("#live .dot.live")).to_be_visible()
        read_until = page.evaluate("import('/console/core/store.js').then((one) => one.store.seq)")
        operations: list[str] = []

        def answer_late(route: Route) -> None:
            answer = route.fetch().json()
            answer["items"] = [entry for entry in answer["items"] if entry["seq"] <= read_until]
            if not operations:
                done = server.call("POST", "/ns/demo/objects/ledger/actions/reboot?wait=30", {})
                operations.append(done["operation"]["id"])
                last = server.call("GET", f"/journal?op={operations[0]}")["items"][-1]["seq"]
                wait_until(lambda: last in page.evaluate(SEEN))
            route.fulfill(json=answer)

        page.route("**/api/v1/journal?*object=ledger*", answer_late)
        page.evaluate("view => { location.hash = '#/' + view }", view)
        expect(page.locator(times).first).to_be_visible()
        entries = server.call("GET", "/journal?ns=demo&object=ledger&limit=1000")["items"]
        expect(page.locator(times)).to_have_count(len(entries))


def test_a_view_that_was_opened_while_the_server_was_away_is_shown_when_it_is_back(
    browser: Browser, server: ConsoleServer
) -> None:
    with signed_in(browser, at(server, "object/demo/ledger"), server.token) as (_, page, _):
        expect(page.locator(".timeline")).to_be_visible()
        server.stop(SIGKILL)
        expect(page.locator("#offline")).to_be_visible()
        page.evaluate("location.hash = '#/lanes'")
        expect(page.locator("#main[data-view=lanes] [role=alert]")).to_be_visible()
        server.start()
        expect(page.locator("#main[data-view=lanes] h1")).to_be_visible()


@pytest.mark.long
def test_twenty_tabs_see_the_same_at_once(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, at(server, "timers"), server.token) as (context, first, _):
        pages: list[Page] = [first, *(context.new_page() for _ in range(19))]
        page_errors = [record_errors(page, server.url) for page in pages]
        for page in pages[1:]:
            page.goto(at(server, "timers"), wait_until="commit")
        for page in pages:
            expect(page.locator("#live .dot.live")).to_be_visible()
        done: Any = server.call("POST", "/ns/demo/objects/ledger/actions/pause?wait=30", {})
        last = server.call("GET", f"/journal?op={done['operation']['id']}")["items"][-1]["seq"]
        for page in pages:
            wait_until(lambda page=page: last in page.evaluate(SEEN))  # type: ignore[misc]
        assert [one.errors for one in page_errors] == [[]] * 20
