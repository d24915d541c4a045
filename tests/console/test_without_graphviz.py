"""A server without Graphviz: the pictures of built-in kinds are shown, and other pages say why they have none."""

import os
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.console.browser import signed_in
from tests.console.server_process import ROOT
from tests.integration.server.server_processes import served


def test_a_kind_without_a_picture_says_what_to_install(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "pygraphviz.py").write_text("raise ImportError")
    environ = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    printer = {"kind": "printing.printer", "id": "p1", "spec": {"address": "floor-2"}}
    with (
        served(tmp_path / "data", "--domain", "tests.console.printing:domain", environ=environ) as server,
        signed_in(browser, server.url, server.token) as (_, page, page_errors),
    ):
        expect(page.locator(".diagram svg")).to_be_visible()
        with server.client() as client:
            assert client.post("/api/v1/ns/office/objects", json=printer).status_code == 202
        page.evaluate("location.hash = '#/object/office/p1'")
        expect(page.locator("main")).to_contain_text("stateward[drawings]")
        expect(page.get_by_text("Timeline")).to_be_visible()
        assert [one for one in page_errors.errors if "501" not in one] == []
