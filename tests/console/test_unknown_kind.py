"""The page of an object whose plug-in is not loaded in the server: it says so, and shows no values."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.console.browser import signed_in
from tests.console.server_process import ROOT
from tests.integration.server.server_processes import Served, served

AT = "/api/v1/ns/office/objects"
PRINTER = {"kind": "printing.printer", "id": "p1", "spec": {"address": "secret-host"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve a database with a printer by a server that does not know printers."""
    folder: Path = tmp_path_factory.mktemp("unknown") / "data"
    domain = ("--domain", "tests.console.printing:domain")
    with served(folder, *domain, environ={"PYTHONPATH": str(ROOT)}) as whole, whole.client() as client:
        asked = client.post(AT, json=PRINTER)
        assert asked.status_code == 202, asked.text
    with served(folder) as found:
        yield found


def test_the_page_of_an_object_of_an_unknown_kind_is_complete_and_shows_no_values(
    browser: Browser, server: Served
) -> None:
    with signed_in(browser, server.url, server.token) as (_, page, page_errors):
        expect(page.locator(".diagram svg")).to_be_visible()  # of a kind that the server knows
        page.evaluate("location.hash = '#/object/office/p1'")
        expect(page.get_by_text("Timeline")).to_be_visible()
        expect(page.locator("main")).to_contain_text("printing.printer")
        expect(page.locator("main")).to_contain_text("***")
        expect(page.locator("main")).not_to_contain_text("secret-host")
        assert [one for one in page_errors.errors if "404" not in one] == []
