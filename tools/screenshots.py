"""Screenshots of every view of the console: `make screenshots`, into build/screenshots; the gallery's go into the docs.

One server has objects of all kinds that tests made, another runs the demo. Each view is shot dark and light, on a
laptop and on a phone. This needs Chromium (`apt-get install chromium-headless-shell`), and takes a few minutes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from playwright.sync_api import expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from stateward.plugin.registry import installed  # noqa: E402
from tests.console.browser import CHROMIUM, PATIENT, launch_browser, signed_in  # noqa: E402
from tests.console.server_process import ConsoleServer, run_console_server  # noqa: E402
from tests.integration.server.server_processes import Served, served  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

FOLDER = ROOT / "build" / "screenshots"
SHOWN = ROOT / "docs" / "pictures" / "console"
GALLERY = frozenset(
    {
        *("overview", "overview-light", "overview-phone", "objects", "object", "object-phone", "search", "question"),
        *("refusal", "form", "kind-form", "operations", "operation-light", "queues", "journal"),
        *("demo-mci", "leases-light", "systems", "logs"),
    }
)
"""The pictures of docs/gallery.md."""

LAPTOP, PHONE = (1440, 900), (390, 844)

DOMAIN_VIEWS = {name: (name, ".badge") for name in installed().names}
"""The view of each domain, and the selector of an element that says that its objects are there."""

VIEWS = {
    # picture    view                    selector
    "overview":  ("overview",            "canvas[data-loaded]"),
    "objects":   ("objects?kind=mci.vm", ".vrow"),
    "object":    ("object/demo/ledger",  ".timeline .event"),
    "waiting":   ("object/demo/deploy-2", ".sentence"),
    "operations": ("operations",         ".vrow"),
    "queues":    ("queues",              ".queue"),
    "lanes":     ("lanes",               "table"),
    "workers":   ("workers",             "table"),
    "timers":    ("timers",              "table"),
    "journal":   ("journal",             ".vrow"),
    "access":    ("access",              "table"),
    **DOMAIN_VIEWS,
}  # fmt: skip

SHOP_PROGRAM = """
printf '\\033[32mINFO\\033[0m  web listens on port %s\\n' "${PORT:-8080}"
number=0
while :; do
  number=$((number + 1))
  echo "INFO  GET /cart/$((number * 37 % 900)) 200 $((number * 7 % 90)) ms"
  [ $((number % 9)) = 0 ] && echo "WARN  prices took 612 ms: the cached price of item $((number * 11)) is used"
  sleep 0.2
done
"""
"""What the service in the picture of logs runs."""

DEMO = {
    "demo": ("overview", "canvas[data-loaded]"),
    **{f"demo-{name}": view for name, view in DOMAIN_VIEWS.items()},
}


def main() -> None:
    """Take all pictures, or those that are named."""
    if CHROMIUM is None:
        sys.exit("There is no Chromium here: apt-get install chromium-headless-shell")
    for folder in (FOLDER, SHOWN):
        folder.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[1:] or [*VIEWS, *DEMO, *SCENES, "form", "kind-form", "logs"]
    expect.set_options(timeout=PATIENT)
    with tempfile.TemporaryDirectory() as data, sync_playwright() as playwright:
        browser = launch_browser(playwright)
        if any(name in VIEWS or name in SCENES for name in wanted):
            with run_console_server(
                Path(data) / "server", "--cells", "4000", "--rate", "16", "--vms", "2000"
            ) as server:
                take_all(browser, server, {name: VIEWS[name] for name in wanted if name in VIEWS})
                for name in (one for one in wanted if one in SCENES):
                    SCENES[name](browser, server)
        if any(name in DEMO or name == "form" for name in wanted):
            with served(Path(data) / "demo", "--demo") as demo:
                form(browser, demo)
                take_all(browser, demo, {name: DEMO[name] for name in wanted if name in DEMO})
        if "kind-form" in wanted:
            flags, environ = ("--domain", "tests.console.printing:domain"), {"PYTHONPATH": str(ROOT)}
            with served(Path(data) / "printing", *flags, environ=environ) as printing:
                kind_form(browser, printing)
        if "logs" in wanted:
            with served(Path(data) / "shop") as shop, running_shop(shop):
                logs(browser, shop)
        browser.close()


def take_all(browser: Browser, server: ConsoleServer | Served, wanted: dict[str, tuple[str, str]]) -> None:
    """Take pictures dark and light, on a laptop and on a phone."""
    for theme in ("dark", "light"):
        take(browser, server, wanted, theme, LAPTOP, "" if theme == "dark" else "-light")
    take(browser, server, wanted, "dark", PHONE, "-phone")


def take(
    browser: Browser,
    server: ConsoleServer | Served,
    wanted: dict[str, tuple[str, str]],
    theme: str,
    size: tuple[int, int],
    suffix: str,
) -> None:
    """Take a picture of each view in one theme and size."""
    width, height = size
    with signed_in(browser, server.url, server.token, theme=theme, width=width, height=height) as (_, page, _):
        for name, (view, sign) in wanted.items():
            page.evaluate("view => { location.hash = '#/' + view }", view)
            expect(page.locator(f"main {sign}").first).to_be_visible()
            page.wait_for_timeout(2_000)  # until the domains' own APIs have answered, and some transitions are seen
            shoot(
                page,
                f"{name}{suffix}",
                whole=width == PHONE[0] or name in ("overview", "object", "systems", "demo", "demo-ovc"),
            )


def refusal(browser: Browser, server: ConsoleServer) -> None:
    """Take a picture of an action that is refused, with its reason."""
    with signed_in(browser, f"{server.url}/#/object/demo/broken", server.token) as (_, page, _):
        page.locator("main details.menu summary").click()
        page.locator("[data-action=pause]").press("Enter")
        expect(page.locator("#action .problem")).to_be_visible()
        shoot(page, "refusal", whole=False)


def question(browser: Browser, server: ConsoleServer) -> None:
    """Take a picture of what is asked before two thousand VMs are terminated."""
    with signed_in(browser, f"{server.url}/#/object/fleet/crowd", server.token) as (_, page, _):
        page.get_by_role("button", name="Terminate", exact=True).click()
        expect(page.locator("#action[open] button.danger")).to_be_visible()
        shoot(page, "question", whole=False)


def operation(browser: Browser, server: ConsoleServer) -> None:
    """Take a picture of an operation and where its time went."""
    with signed_in(browser, f"{server.url}/#/object/demo/ledger", server.token, theme="light") as (_, page, _):
        page.get_by_role("button", name="Stop", exact=True).click()
        page.locator(".notice").first.get_by_role("link", name="operation").click()
        expect(page.locator("main[data-view=operation] h1")).to_be_visible()
        page.wait_for_timeout(2_000)
        shoot(page, "operation-light", whole=False)


def search(browser: Browser, server: ConsoleServer) -> None:
    """Take a picture of the suggestions of the search."""
    with signed_in(browser, f"{server.url}/#/objects", server.token) as (_, page, _):
        page.locator("#search input").fill("shop")
        expect(page.get_by_role("option").first).to_be_visible()
        page.wait_for_timeout(500)
        shoot(page, "search", whole=False)


SCENES = {"refusal": refusal, "question": question, "operation": operation, "search": search}
"""Pictures that need more than an address."""


def form(browser: Browser, demo: Served) -> None:
    """Take a picture of a form, over the groups of machines of the demo."""
    with signed_in(browser, f"{demo.url}/#/mci", demo.token) as (_, page, _):
        expect(page.locator("main .matrix .address").first).to_be_visible()
        page.get_by_role("button", name="New MCI").click()
        page.locator("#question [name=name]").fill("shop-eu")
        shoot(page, "form", whole=False)


def kind_form(browser: Browser, printing: Served) -> None:
    """Take a picture of a form that was made from the types of a kind, with what is wrong beside its field."""
    with signed_in(browser, f"{printing.url}/#/printing", printing.token) as (_, page, _):
        page.get_by_role("button", name="New printing.printer").click()
        entered = {"id": "front", "spec.address": "front.example", "spec.port": "70000"}
        for name, value in entered.items():
            page.locator(f"#question [name='{name}']").fill(value)
        page.get_by_role("button", name="Create").click()
        page.locator("#question").evaluate("one => one.scrollTo(0, 0)")
        shoot(page, "kind-form", whole=False)


@contextmanager
def running_shop(shop: Served) -> Iterator[None]:
    """Run a system whose service writes logs, as processes of this machine."""
    service = {"command": ["sh", "-c", SHOP_PROGRAM], "instances": 2, "drain": 0.05, "grace": 0.05}
    with shop.client() as client:

        def wait_for(state: str) -> None:
            while client.get("/api/v1/systems/default/shop").json().get("state") != state:
                time.sleep(0.1)

        client.post("/api/v1/systems/default", json={"name": "shop"}).raise_for_status()
        wait_for("stable")
        body = {"definition": msgspec.json.encode({"services": {"web": service}}).decode()}
        client.post("/api/v1/systems/default/shop/deploys", json=body).raise_for_status()
        while not client.get("/api/v1/systems/default/shop/logs", params={"path": "/web"}).json():
            time.sleep(0.1)
        try:
            yield
        finally:
            client.delete("/api/v1/systems/default/shop", params={"force": "true"}).raise_for_status()
            while client.get("/api/v1/systems/default/shop").is_success:
                time.sleep(0.1)


def logs(browser: Browser, shop: Served) -> None:
    """Take a picture of a service's logs, and of a command in one of its instances."""
    with signed_in(browser, f"{shop.url}/#/object/default/shop%3Aweb", shop.token, height=1290) as (_, page, _):
        form, lines = page.locator(".card-run-a-command"), page.locator(".card-logs .log-line")
        expect(lines.nth(40)).to_be_visible()
        form.locator("[name=command]").fill("sh -c 'uname -s; echo $0 >&2; exit 3' \"it's all\"")
        form.get_by_role("button", name="Run").click()
        expect(form.get_by_text("Exit status 3")).to_be_visible()
        form.get_by_text("As a command").click()
        page.mouse.move(0, 0)
        shoot(page, "logs", whole=False)


def shoot(page: Page, name: str, *, whole: bool) -> None:
    """Take one picture."""
    path = (SHOWN if name in GALLERY else FOLDER) / f"{name}.png"
    page.screenshot(path=path, full_page=whole)
    print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
