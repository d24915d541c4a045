"""The dialog of actions: what it shows before, what must be typed, what is done only once, and what is told after."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.console.browser import signed_in
from tests.console.server_process import ConsoleServer, run_console_server

VMS = 1_200
HEAD = ".who-is .badge:not(.protected)"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    with run_console_server(tmp_path_factory.mktemp("server") / "data", "--vms", str(VMS), "--cells", "0") as found:
        yield found


@pytest.fixture
def own_server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ConsoleServer]:
    """A server for a test that changes many VMs, with as many as its parameter says."""
    vms = getattr(request, "param", VMS)
    with run_console_server(tmp_path / "data", "--vms", str(vms), "--cells", "0") as found:
        yield found


@pytest.fixture(scope="module")
def tokens(server: ConsoleServer) -> dict[str, str]:
    """A token of each role that looks at the fleet."""
    return {role: token_of(server, role) for role in ROLES}


ROLES = ("viewer", "operator")


def token_of(server: ConsoleServer, role: str) -> str:
    body = {"name": f"the {role}", "role": role, "namespaces": ["*"], "expires": None}
    token: str = server.call("POST", "/tokens", body)["token"]
    return token


def at(server: ConsoleServer, view: str) -> str:
    return f"{server.url}/#/{view}"


def asked(page: Page) -> Locator:
    return page.locator("#action[open]")


def notice(page: Page) -> Locator:
    return page.locator(".notice").first


def state_of(server: ConsoleServer, ns: str, name: str) -> str:
    found: str = server.call("GET", f"/ns/{ns}/objects/{name}")["state"]
    return found


def operations_of(server: ConsoleServer, name: str, action: str) -> list[dict[str, Any]]:
    found = server.call("GET", f"/ns/demo/operations?object={name}&limit=100")["items"]
    return [one for one in found if one["action"] == action]


def vms_in(server: ConsoleServer, state: str) -> int:
    found: int = server.call("GET", f"/ns/fleet/counts?by=state&parent=crowd&state={state}")["total"]
    return found


def test_one_click_does_what_can_be_undone_and_the_notice_undoes_it(
    browser: Browser, server: ConsoleServer, tokens: dict[str, str]
) -> None:
    with signed_in(browser, at(server, "object/demo/ledger"), tokens["operator"]) as (_, page, page_errors):
        page.get_by_role("button", name="Stop", exact=True).dblclick()
        expect(notice(page)).to_contain_text("Stop ledger")
        expect(page.locator(HEAD)).to_have_text("HALTED")
        notice(page).get_by_role("button", name="Start it").click()
        expect(page.locator(HEAD)).to_have_text("RUNNING")
        expect(asked(page)).to_have_count(0)
        assert len(operations_of(server, "ledger", "stop")) == 1
        operation = operations_of(server, "ledger", "start")[0]["id"]
        expect(notice(page).get_by_role("link", name="operation")).to_have_attribute(
            "href", f"#/operation/demo/{operation}"
        )
        assert page_errors.errors == []


def test_what_cannot_be_undone_is_shown_first_and_cancel_does_nothing(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, at(server, "object/demo/ledger"), server.token) as (_, page, _):
        page.get_by_text("More actions").click()
        page.get_by_role("button", name="Destroy", exact=True).press("Enter")
        expect(asked(page)).to_contain_text("This cannot be undone.")
        page.keyboard.press("Enter")  # the second of a key that is pressed twice
        expect(asked(page).get_by_role("button", name="Destroy ledger")).to_be_enabled()
        asked(page).get_by_role("button", name="Cancel").click()
        expect(asked(page)).to_have_count(0)
        assert state_of(server, "demo", "ledger") == "RUNNING"


def test_an_action_that_is_refused_says_why_and_offers_what_is_allowed(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, at(server, "object/demo/broken"), server.token) as (_, page, _):
        page.get_by_text("More actions").click()
        grey = page.get_by_role("button", name="Pause", exact=True)
        expect(grey).to_have_attribute("aria-disabled", "true")
        assert "ERROR" in str(grey.get_attribute("title"))
        grey.press("Enter")
        expect(asked(page).locator(".problem")).to_contain_text("409")
        expect(asked(page)).to_contain_text("allowed now")
        expect(asked(page).get_by_role("button", name="Pause broken")).to_be_disabled()
        asked(page).get_by_role("button", name="Deploy", exact=True).click()
        asked(page).get_by_role("button", name="Deploy broken").click()
        expect(page.locator(HEAD)).to_have_text("RUNNING")


def test_a_large_action_is_planned_typed_and_followed_to_its_end(browser: Browser, own_server: ConsoleServer) -> None:
    server = own_server
    running, failed = vms_in(server, "Running"), vms_in(server, "Failed")
    with signed_in(browser, at(server, "object/fleet/crowd"), token_of(server, "operator")) as (_, page, page_errors):
        page.get_by_role("button", name="Suspend", exact=True).click()
        expect(asked(page)).to_contain_text(f"{running:,} VMs")
        expect(asked(page)).to_contain_text("aws/us-east-1")
        expect(asked(page).locator(".left-out")).to_contain_text(f"{VMS - running} of {VMS:,} objects are skipped")
        expect(asked(page).locator(".left-out li", has_text="is Failed")).to_contain_text(str(failed))
        go = asked(page).get_by_role("button", name=f"Suspend {running:,} VMs")
        expect(go).to_be_disabled()
        page.get_by_label("To confirm, type").fill("crow")
        expect(go).to_be_disabled()
        page.get_by_label("To confirm, type").fill("crowd")
        go.dblclick()
        expect(notice(page)).to_contain_text(f"Suspend {running:,} VMs")
        expect(notice(page).locator("[data-ended=true]")).to_have_text(f"{running:,} of {running:,} done")
        entries = server.call("GET", "/ns/fleet/operations?action=suspend")["items"]
        assert [one["parts"] for one in entries] == [{"succeeded": running}]
        assert page_errors.errors == []


def test_force_is_asked_for_in_the_dialog_and_changes_the_plan(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, at(server, "object/demo/shop.db-azure-1"), server.token) as (_, page, _):
        page.get_by_text("More actions").click()
        page.get_by_role("button", name="Suspend", exact=True).press("Enter")
        go = asked(page).get_by_role("button", name="Suspend")
        expect(go).to_be_disabled()
        expect(asked(page).locator(".problem")).to_contain_text("needs force while mci.vm is Failed")
        expect(asked(page).locator(".problem")).to_contain_text("tick it under “Force and facts”")
        asked(page).get_by_label("force").check()  # a refusal that names it has unfolded it
        expect(asked(page).locator(".problem")).to_have_count(0)
        go.click()
        expect(page.locator(HEAD)).to_have_text("Suspended")


def test_an_action_on_what_has_changed_meanwhile_shows_the_new_plan_first(
    browser: Browser, server: ConsoleServer
) -> None:
    with signed_in(browser, at(server, "object/demo/lab"), server.token) as (_, page, _):
        page.get_by_role("button", name="Terminate", exact=True).click()
        expect(asked(page).get_by_role("button", name="Terminate 2 VMs")).to_be_enabled()
        server.call("POST", "/ns/demo/objects/lab.node-1/actions/terminate?wait=30", {})
        asked(page).get_by_role("button", name="Terminate 2 VMs").click()
        expect(asked(page)).to_contain_text("The plan has changed since the dialog was opened.")
        assert state_of(server, "demo", "lab.node-2") == "Running"
        asked(page).get_by_role("button", name="Terminate").click()
        expect(notice(page)).to_contain_text("done")
        assert state_of(server, "demo", "lab.node-2") == "Terminated"
    with signed_in(browser, at(server, "objects?ns=demo&q=shop.web-gcp"), server.token) as (_, page, _):
        for number in (1, 2):
            page.get_by_role("checkbox", name=f"Select demo/shop.web-gcp-{number}").click()
        page.locator(".bulk").get_by_role("button", name="Suspend").click()
        expect(asked(page).get_by_role("heading")).to_have_text("Suspend 2 VMs")
        server.call("POST", "/ns/demo/objects/shop.web-gcp-1/actions/suspend?wait=30", {})
        asked(page).get_by_role("button", name="Suspend 2 VMs").click()
        expect(asked(page)).to_contain_text("The plan has changed since the dialog was opened.")
        expect(asked(page).get_by_role("heading")).to_have_text("Suspend 1 VM")
        asked(page).get_by_role("button", name="Suspend 1 VM").click()
        expect(notice(page).get_by_text("Suspend 1 VM", exact=True)).to_be_visible()


def lose_answers(page: Page, path: str) -> Callable[[], None]:
    """Let the server answer, and the page not hear it; returns what ends that."""

    def lose(route: Route) -> None:
        route.fetch()
        route.abort()

    page.route(path, lose)
    return lambda: page.unroute(path)


def test_an_answer_that_is_lost_is_asked_for_again_and_nothing_is_done_twice(
    browser: Browser, server: ConsoleServer
) -> None:
    with signed_in(browser, at(server, "object/demo/ledger"), server.token) as (_, page, _):
        heal = lose_answers(page, "**/objects/ledger/actions/reboot")
        page.get_by_role("button", name="Reboot", exact=True).click()
        expect(asked(page)).to_contain_text("the request is executed once")
        heal()
        asked(page).get_by_role("button", name="Reboot ledger").click()
        expect(asked(page)).to_have_count(0)
        expect(notice(page)).to_contain_text("done")
        assert len(operations_of(server, "ledger", "reboot")) == 1


@pytest.mark.parametrize("own_server", [6 * VMS], indirect=True)  # about VMS of them are suspended
def test_what_was_asked_for_is_cancelled_from_its_notice(browser: Browser, own_server: ConsoleServer) -> None:
    server = own_server
    suspended = vms_in(server, "Suspended")
    with signed_in(browser, at(server, "objects?ns=fleet&kind=mci.vm&state=Suspended"), server.token) as (_, page, _):
        page.get_by_role("checkbox", name="Select fleet/crowd").first.click()
        page.get_by_role("button", name="Select all that match").click()
        expect(page.locator(".bulk")).to_contain_text(f"All {suspended:,} VMs that match")
        page.locator(".bulk").get_by_role("button", name="resume").click()
        page.get_by_label("To confirm, type").fill(f"resume {suspended}")
        asked(page).get_by_role("button", name=f"Resume {suspended:,} VMs").click()
        notice(page).get_by_role("button", name="Cancel").click()
        expect(notice(page).locator("[data-ended=true]")).to_contain_text("cancelled")


def test_an_action_on_many_offers_what_their_states_allow_and_groups_what_is_left_out(
    browser: Browser, server: ConsoleServer, tokens: dict[str, str]
) -> None:
    view = at(server, "objects?kind=mci.vm&q=shop.web-aws")
    with signed_in(browser, view, tokens["operator"]) as (_, page, page_errors):
        boxes = page.get_by_role("checkbox", name="Select demo/shop.web-aws")
        expect(boxes).to_have_count(4)
        for number in range(4):
            boxes.nth(number).click()
        bar = page.locator(".bulk")
        expect(bar).to_contain_text("4 VMs selected")
        expect(bar.get_by_role("button", name="create")).to_have_count(0)
        bar.get_by_role("button", name="resume").click()
        expect(asked(page).locator(".left-out")).to_contain_text("3 of 4 objects are skipped")
        asked(page).get_by_role("button", name="Resume").click()
        expect(notice(page)).to_contain_text("done")
        assert page_errors.errors == []


def test_all_that_match_are_acted_on_and_are_one_operation(
    browser: Browser, server: ConsoleServer, tokens: dict[str, str]
) -> None:
    failed = vms_in(server, "Failed")
    with signed_in(browser, at(server, "objects?kind=mci.vm&state=Failed&q=crowd"), tokens["operator"]) as (_, page, _):
        page.get_by_role("checkbox").first.click()
        page.get_by_role("button", name="Select all shown").click()
        bar = page.locator(".bulk")
        if failed > 200:
            bar.get_by_role("button", name="Select all that match").click()
        expect(bar).to_contain_text(f"{failed} VMs")
        bar.get_by_role("button", name="delete").click()
        page.get_by_label("To confirm, type").fill(f"delete {failed}")
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        expect(notice(page).locator("[data-ended=true]")).to_have_text(f"{failed} of {failed} done")
        (entry,) = server.call("GET", "/ns/fleet/operations?action=delete")["items"]
        assert (entry["who"], entry["parts"]) == ("the operator", {"succeeded": failed})


def test_what_is_protected_is_not_removed_until_the_flag_is_lifted_by_its_name(
    browser: Browser, server: ConsoleServer, tokens: dict[str, str]
) -> None:
    with signed_in(browser, at(server, "object/demo/acme-prod"), tokens["operator"]) as (_, page, page_errors):
        page.get_by_role("button", name="Protect…").click()
        page.locator("#question").get_by_label("reason").fill("customers' data")
        page.locator("#question").get_by_role("button", name="Protect", exact=True).click()
        expect(page.locator(".who-is .protected")).to_have_text("protected")
        page.goto(at(server, "object/demo/builder"))
        expect(page.locator("h1")).to_contain_text("builder")
        page.get_by_text("More actions").click()
        page.get_by_role("button", name="Destroy", exact=True).press("Enter")
        expect(asked(page)).to_contain_text("customers' data")
        expect(asked(page)).to_contain_text("Protection is set on acme-prod.")
        expect(asked(page).get_by_role("button", name="Destroy builder")).to_be_disabled()
        asked(page).get_by_role("button", name="Lift the protection…").click()
        form = page.locator("#question form")
        for name in ("acme", "acme-prod"):
            form.get_by_label("to confirm, type acme-prod").fill(name)
            form.get_by_role("button", name="Lift the protection").click()
            if name == "acme":
                expect(form.locator(".complaint")).to_have_text("Name must be acme-prod")
        asked(page).get_by_role("button", name="Destroy builder").click()
        expect(page.locator(HEAD)).to_have_text("DESTROYED")
        assert page_errors.errors == []


def test_an_administrator_protects_a_namespace(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, at(server, "access"), server.token) as (_, page, _):
        row = page.locator(".card-protection tr", has_text="fleet")
        row.get_by_role("button", name="Protect…").click()
        page.locator("#question").get_by_role("button", name="Protect", exact=True).click()
        expect(row).to_contain_text("protected")
        assert server.call("GET", "/ns/fleet/protection")["protected"] == "yes"
        row.get_by_role("button", name="Lift the protection…").click()
        page.locator("#question").get_by_label("to confirm").fill("fleet")
        page.locator("#question").get_by_role("button", name="Lift the protection").click()
        expect(row).to_contain_text("allowed")


def test_a_viewer_is_told_that_the_role_may_only_look(
    browser: Browser, server: ConsoleServer, tokens: dict[str, str]
) -> None:
    with signed_in(browser, at(server, "object/demo/ledger"), tokens["viewer"]) as (_, page, page_errors):
        expect(page.get_by_text("Your role, viewer, is read-only.")).to_be_visible()
        expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)
        expect(page.get_by_role("button", name="Protect…")).to_have_count(0)
        page.goto(at(server, "objects?kind=mci.vm&q=shop"))
        page.get_by_role("checkbox").first.click()
        expect(page.locator(".bulk")).to_contain_text("your role, viewer, is read-only")
        expect(page.locator(".bulk [data-action]")).to_have_count(0)
        assert page_errors.errors == []
