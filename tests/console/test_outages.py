"""Outages: every view, opened before, during and after one, shows by itself what it is for once the server is back.

The views are those of the route table, so that a new one is tested, too. All of them see the same two outages, each in
a tab of its own; one test looks at what each tab has shown, because two would see the outages twice if they ran in
different processes.
"""

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from signal import SIGKILL
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from msgspec import Struct
from playwright.sync_api import Browser, Error, Page, expect

from tests.console.browser import signed_in
from tests.console.server_process import ConsoleServer
from tests.console.view_table import VIEW_NAMES, address_of
from tests.integration.server.server_processes import run, served

CONTENT = """() => {
  const main = document.querySelector("#main");
  const texts = [...main.querySelectorAll("h1, h2")].map((one) => one.textContent).sort();
  const filled = [".vrow", "tbody tr", "canvas[data-loaded]", ".timeline li", ".card", ".diagram svg", "form"];
  const problems = [...document.querySelectorAll(".problem")].map((one) => one.textContent);
  return {texts: [...new Set(texts)], filled: filled.filter((one) => main.querySelector(one)), problems,
    dialogs: document.querySelectorAll("dialog[open]").length, banner: !document.querySelector("#offline").hidden};
}"""


class Outages(Struct):
    """What each view shows when all is well, and the tabs in which it saw an outage."""

    healthy: dict[str, object]
    opened_before: dict[str, object]
    opened_during: dict[str, object]
    opened_after: dict[str, object]
    texts: dict[str, str]
    errors: list[str]

    def add_error(self, view: str, error: Error) -> None:
        self.errors.append(f"{view}: {error}")


def go(page: Page, view: str) -> None:
    page.evaluate("where => { location.hash = where }", address_of(view))


def settled(pages: dict[str, Page], wanted: dict[str, object] | None = None) -> dict[str, object]:
    """Return what each page shows once it is what is wanted, or stays the same; the tests say what is wrong."""
    found: dict[str, Any] = {}
    same, changing = dict.fromkeys(pages, 0), set(pages)
    for _ in range(200):
        for view in sorted(changing):
            shown = pages[view].evaluate(CONTENT)
            same[view] = same[view] + 1 if shown == found.get(view) else 0
            found[view] = shown
        if wanted is None:
            changing = {view for view in changing if same[view] < 6 or not found[view]["texts"]}
        else:
            changing = {view for view in changing if found[view] != wanted[view]}
        if not changing:
            break
        next(iter(pages.values())).wait_for_timeout(100)
    return found


@pytest.fixture
def outages(browser: Browser, server: ConsoleServer) -> Iterator[Outages]:
    """Let all views see two outages: kill -9, and another process on the same port."""
    with signed_in(browser, server.url, server.token) as (context, first, _):
        found = Outages({}, {}, {}, {}, {}, [])
        pages = {view: first if number == 0 else context.new_page() for number, view in enumerate(VIEW_NAMES)}
        for view, page in pages.items():
            page.on("pageerror", partial(found.add_error, view))
            page.goto(f"{server.url}/{address_of(view)}")
        found.healthy = settled(pages)

        server.stop(SIGKILL)
        for page in pages.values():
            expect(page.locator("#offline")).to_contain_text("The server does not answer since")
        server.start()
        found.opened_before = settled(pages, found.healthy)

        server.stop(SIGKILL)
        moved = dict(zip([*VIEW_NAMES[1:], VIEW_NAMES[0]], pages.values(), strict=True))
        for view, page in moved.items():
            expect(page.locator("#offline")).to_contain_text("The server does not answer since")
            go(page, view)
        for view, page in moved.items():
            expect(page.locator(f"#main[data-view={view}]")).to_be_visible()
        first.wait_for_timeout(100)
        for view, page in moved.items():
            found.texts[view] = page.locator("body").inner_text()
        server.start()
        found.opened_during = settled(moved, found.healthy)

        for view, page in pages.items():
            go(page, view)
        found.opened_after = settled(pages, found.healthy)
        yield found


def test_a_view_shows_the_same_after_an_outage_before_during_or_after_which_it_was_opened(outages: Outages) -> None:
    assert outages.opened_before == outages.healthy
    assert outages.opened_during == outages.healthy
    assert outages.opened_after == outages.healthy
    for view in VIEW_NAMES:
        assert "The server does not answer since " in outages.texts[view], view
        assert not re.search("TypeError|Failed to fetch|went wrong", outages.texts[view]), view
    assert outages.errors == []


def test_what_was_entered_stays_and_a_problem_of_the_outage_closes_by_itself(
    browser: Browser, server: ConsoleServer
) -> None:
    with signed_in(browser, f"{server.url}/#/access", server.token) as (_, page, _):
        page.get_by_label("person or program").fill("ann")
        expect(page.locator("#live .dot.live")).to_be_visible()
        server.stop(SIGKILL)
        expect(page.locator("#offline")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.locator("#problem")).to_contain_text("the server does not answer")
        server.start()
        expect(page.locator("#problem")).to_be_hidden()
        expect(page.locator("#offline")).to_be_hidden()
        expect(page.get_by_label("person or program")).to_have_value("ann")


def test_the_page_goes_on_by_itself_when_a_database_was_away(
    browser: Browser, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    dsn = request.getfixturevalue("postgres_server").new_database()
    assert run("migrate", "--database", dsn).returncode == 0
    with served(tmp_path / "data", "--database", dsn) as server, server.client() as client:
        made = client.post("/api/v1/ovc/shop/accounts", json={"name": "acme"})
        assert made.status_code == 202, made.text
        with signed_in(browser, f"{server.url}/#/ovc", server.token) as (context, page, _):
            expect(page.locator("main")).to_contain_text("acme")
            allow_connections(dsn, "false")
            other = context.new_page()
            other.goto(f"{server.url}/#/ovc")  # the server has the page, and no data for it
            for one in (page, other):
                expect(one.locator("#offline")).to_contain_text(re.compile("(database|server).* since "))
            expect(page.locator("main")).to_contain_text("acme")
            allow_connections(dsn, "true")
            for one in (page, other):
                expect(one.locator("#offline")).to_be_hidden()
                expect(one.locator("main")).to_contain_text("acme")


def allow_connections(dsn: str, allowed: str) -> None:
    """Let a database accept connections, or not; those that there are end."""

    async def alter() -> None:
        place = urlsplit(dsn)
        name = place.path.removeprefix("/")
        connection = await asyncpg.connect(urlunsplit(place._replace(path="/postgres")))
        await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}")
        await connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        await connection.close()

    with ThreadPoolExecutor() as threads:  # the browser's loop runs in this one
        threads.submit(asyncio.run, alter()).result()
