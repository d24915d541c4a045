"""A server and a browser for each module: the browser must have ended before other tests run an event loop."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.console.browser import CHROMIUM, PATIENT, PageErrors, launch_browser, signed_in
from tests.console.server_process import ROOT, ConsoleServer, run_console_server
from tests.integration.server.server_processes import Served

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"

expect.set_options(timeout=PATIENT)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(
            "there is no Chromium here: apt-get install chromium-headless-shell, or run tools/setup.py dev as root"
        )
    with sync_playwright() as playwright:
        started = launch_browser(playwright)
        yield started
        started.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    with run_console_server(_folder(tmp_path_factory)) as found:
        yield found


@pytest.fixture(scope="module")
def empty_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    with run_console_server(_folder(tmp_path_factory), "--empty") as found:
        yield found


@pytest.fixture
def api(server: Served) -> Iterator[httpx.Client]:
    """A client of a module's own server."""
    with server.client() as client:
        yield client


@pytest.fixture
def opened(browser: Browser, server: Served | ConsoleServer) -> Iterator[tuple[Page, PageErrors]]:
    """A page of the module's server, signed in, at a view that is quickly drawn."""
    with signed_in(browser, f"{server.url}/#/timers", server.token) as (_, page, page_errors):
        yield page, page_errors


@pytest.fixture(scope="session")
def axe() -> str:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci")
    return AXE.read_text("utf-8")


def _folder(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("server") / "data"
