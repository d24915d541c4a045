"""A stage and a browser for each module: the browser must be gone before others run a loop of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.console.browser import CHROMIUM, PATIENT, launched
from tests.console.processes import ROOT, Played, played

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"

expect.set_options(timeout=PATIENT)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine: apt-get install chromium, or run tools/setup.py dev as root")
    with sync_playwright() as playwright:
        started = launched(playwright)
        yield started
        started.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with played(_folder(tmp_path_factory)) as found:
        yield found


@pytest.fixture(scope="module")
def empty_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with played(_folder(tmp_path_factory), "--empty") as found:
        yield found


@pytest.fixture(scope="session")
def axe() -> str:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci")
    return AXE.read_text("utf-8")


def _folder(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("stage") / "data"
