"""A server for each module, and a browser for all modules that run one after the other in a process.

The event loop of the browser's driver runs in the thread of the tests. Therefore, the browser ends with the last module
before a test that doesn't use it, which may run an event loop of its own.
"""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import CHROMIUM, PATIENT, PageErrors, SharedBrowser, signed_in
from tests.console.server_process import ROOT, ConsoleServer, run_console_server
from tests.integration.server.server_processes import Served

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
SHARED_BROWSER = SharedBrowser()

expect.set_options(timeout=PATIENT)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End the browser with a module that is followed by a test without it."""
    try:
        yield
    finally:
        if nextitem is None or (nextitem.path != item.path and "browser" not in getattr(nextitem, "fixturenames", ())):
            SHARED_BROWSER.stop()


@pytest.hookimpl(trylast=True)  # after the fixtures of a run that stops early
def pytest_sessionfinish() -> None:
    """End the browser of a run that stops early."""
    SHARED_BROWSER.stop()


@pytest.fixture(scope="module")
def browser() -> Browser:
    if CHROMIUM is None:
        pytest.skip(
            "there is no Chromium here: apt-get install chromium-headless-shell, or run tools/setup.py dev as root"
        )
    return SHARED_BROWSER.start()


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
