"""The views of the console: all that its route table has, and what each shows on a server with sample objects."""

import re

from playwright.sync_api import Page, expect

from stateward.plugin.registry import installed
from tests.console.server_process import ROOT

ROUTES = (ROOT / "src/stateward/console/core/routes.js").read_text("utf-8")
VIEW_NAMES = [*re.findall(r"^  (\w+): \(\) => import", ROUTES, re.MULTILINE), *(plugin.name for plugin in installed())]

VIEWS = {
    # view            what it shows
    "overview":       ("Fleet map", "Lifecycle", "Latest", "Stuck", "Lanes", "transitions/s"),
    "objects":        ("acme-prod", "namespace", "more below"),
    "object/demo/ledger": ("RUNNING", "No operation is under way.", "acme-prod", "ledger-data", "Timeline"),
    "mci":            ("Partial-Running:7 (R:7/9)", "Running:2 (R:2/2)", "azure/westeurope", "db-1"),
    "edge":           ("oslo", "2.3.9 → 2.4.1", "connected to north", "the new agent did not call"),
    "ovc":            ("Recycle bin", "old-web", "6.2 d", "Restore", "acme-prod"),
    "leases":         ("Calendar", "host-1", "gpu-day", "All leases"),
    "systems":        ("rates", "2 of 3 instances", "at 127.0.0.1:28420", "Locks of billing", "waits:"),
    "operations":     ("deploy-1", "deploy-2", "newest first"),
    "queues":         ("deploy-1", "locks are held by"),
    "lanes":          ("aws/ap-northeast-2", "of 3 lanes active at once"),
    "workers":        ("alive", "Nothing is stuck."),
    "timers":         ("old-web", "destroy"),
    "journal":        ("newest first", "sample data"),
    "access":         ("admin", "mci.vm: 500", "New token"),
}  # fmt: skip


EXAMPLES = {"object": "object/demo/ledger"}
"""The addresses of views that need more than a name."""

GO = """view => {
  if (location.hash === "#/" + view) dispatchEvent(new Event("hashchange"));
  else location.hash = "#/" + view;
}"""
"""Show a view, anew if it is shown already."""


def address_of(view: str) -> str:
    """Return the address of a view of the route table."""
    return f"#/{EXAMPLES.get(view, view)}"


def visit(page: Page, view: str, least: int = 99) -> None:
    """Go to a view and wait until it shows what it is for."""
    page.evaluate(GO, view)
    for text in VIEWS[view][:least]:
        expect(page.locator("main").get_by_text(text).first).to_be_visible()
