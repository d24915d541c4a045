"""Roles: the console offers what the token may do, and asks the server for nothing that it may not.

Every view of the route table is opened with the token of a viewer, a namespaced operator, and administrators.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from tests.console.browser import signed_in
from tests.console.server_process import ConsoleServer
from tests.console.view_table import VIEW_NAMES, address_of
from tests.integration.server.server_processes import served

FOR_ADMINISTRATORS = ["Lanes", "Workers", "Access"]
"""The views about the whole deployment."""

READING = {"Reload", "Export", "Show all objects", "Retry now"}
"""Buttons that change nothing."""

CHANGES = """() => [...document.querySelectorAll("#main [data-action], #main [data-makes]")]
  .map((one) => one.dataset.action ?? one.dataset.makes)"""
"""What the view offers to do."""


@contextmanager
def as_role(browser: Browser, server: ConsoleServer, role: str, ns: str) -> Iterator[tuple[Page, list[str]]]:
    """Sign in with a new token; yields the page, and the requests that were refused."""
    made = server.call("POST", "/tokens", {"name": f"{role} of {ns}", "role": role, "namespaces": [ns]})
    refused: list[str] = []

    def note(answer: Response) -> None:
        if answer.status == 403:
            refused.append(f"{answer.request.method} {answer.url}")

    with signed_in(browser, server.url, made["token"]) as (_, page, _):
        page.on("response", note)
        expect(page.locator("#live .dot.live")).to_be_visible()
        yield page, refused


def visit(page: Page, view: str) -> None:
    page.evaluate("where => { location.hash = where }", address_of(view))
    expect(page.locator(f"#main[data-view={view}] h1, #main[data-view={view}] h2").first).to_be_visible()
    page.wait_for_load_state("networkidle")


def test_a_viewer_is_offered_nothing_that_would_be_refused(browser: Browser, server: ConsoleServer) -> None:
    with as_role(browser, server, "viewer", "demo") as (page, refused):
        links = page.locator("nav a:visible").all_inner_texts()
        assert not set(links) & set(FOR_ADMINISTRATORS)
        for view in VIEW_NAMES:
            visit(page, view)
            assert page.evaluate(CHANGES) == [], view
        visit(page, "object")
        expect(page.locator("main")).to_contain_text("Your role, viewer, is read-only.")
        visit(page, "objects")
        expect(page.get_by_role("button", name="New object")).to_have_count(0)
        assert refused == []


def test_a_namespaced_operator_acts_and_is_not_offered_what_administrators_do(
    browser: Browser, server: ConsoleServer
) -> None:
    with as_role(browser, server, "operator", "demo") as (page, refused):
        links = page.locator("nav a:visible").all_inner_texts()
        assert not set(links) & set(FOR_ADMINISTRATORS)
        for view in VIEW_NAMES:
            visit(page, view)
        visit(page, "object")
        expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
        expect(page.get_by_role("button", name="Migrate", exact=True)).to_have_count(0)
        assert refused == []


@pytest.mark.parametrize("ns", ["demo", "*"])
def test_an_administrator_sees_the_deployment_only_with_a_token_for_all_of_it(
    browser: Browser, server: ConsoleServer, ns: str
) -> None:
    with as_role(browser, server, "admin", ns) as (page, refused):
        links = page.locator("nav a:visible").all_inner_texts()
        assert [one for one in FOR_ADMINISTRATORS if one in links] == (FOR_ADMINISTRATORS if ns == "*" else [])
        for view in VIEW_NAMES:
            visit(page, view)
        visit(page, "object")
        page.get_by_text("More actions").click()
        expect(page.get_by_role("button", name="Migrate", exact=True)).to_be_visible()
        assert refused == []


def test_the_last_administrators_token_is_not_revoked(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path / "data", "--no-worker") as server, signed_in(browser, server.url, server.token) as opened:
        _, page, _ = opened
        page.evaluate("location.hash = '#/access'")
        page.get_by_role("button", name="Revoke").click()
        page.locator("dialog[open]").get_by_role("button", name="Revoke").last.click()
        problem = page.locator("#problem .problem")
        expect(problem).to_contain_text("is the last one that administers all namespaces")
        expect(problem).to_contain_text("stateward token create NAME --role admin --ns '*'")
        page.reload()
        expect(page.get_by_role("button", name="Revoke")).to_be_visible()


def test_a_namespaced_operator_makes_an_mci(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path / "data") as server, server.client() as client:
        body = {"name": "olga", "role": "operator", "namespaces": ["shop"]}
        made = client.post("/api/v1/tokens", json=body).json()
        with signed_in(browser, f"{server.url}/#/mci", made["token"]) as (_, page, page_errors):
            page.get_by_role("button", name="New MCI").click()
            form = page.locator("#question form")
            expect(form.locator("[name=ns]")).to_have_value("shop")
            form.locator("[name=name]").fill("web")
            form.locator("[name=commonSpec]").select_option(label=first_option(form.page, "commonSpec", "aws/"))
            form.locator("[name=commonImage]").select_option(index=0)
            form.locator("button[type=submit], button.primary").last.click()
            expect(page.locator("[data-mci=web]")).to_be_visible()
            assert [one for one in page_errors.errors if "403" in one] == []


def first_option(page: Page, field: str, prefix: str) -> str:
    texts: list[str] = page.locator(f"[name={field}] option").all_inner_texts()
    return next((one for one in texts if one.startswith(prefix)), texts[0])
