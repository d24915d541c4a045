"""Signing in: the session of the browser, roles, the tour, and the keyboard."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import PATIENT, WATCH, record_errors, signed_in
from tests.console.server_process import ConsoleServer, wait_until

FORM_POST = """(target) => {
  const field = `<input name='{"a' value='"}'>`;
  document.body.innerHTML = `<form method="post" enctype="text/plain" action="${target}">${field}</form>`;
  document.forms[0].submit();
}"""
SENDS = """async ([target, stream]) => {
  const how = {method: "POST", credentials: "include", headers: {"X-Stateward-Request": "1"}, body: "{}"};
  const posted = await fetch(target, how).then(() => "sent", () => "refused");
  const socket = new WebSocket(stream);
  const closed = new Promise((resolve) => { socket.onclose = (event) => resolve(event.code); });
  socket.onopen = () => socket.send("{}");
  return [posted, await closed];
}"""


class ForeignPage(BaseHTTPRequestHandler):
    """An empty page of somebody else."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><body>")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def foreign_page() -> Iterator[str]:
    """Serve a page on another port of this host."""
    with ThreadingHTTPServer(("127.0.0.1", 0), ForeignPage) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_a_wrong_token_is_refused_with_its_problem_and_a_right_one_opens_all_tabs(
    browser: Browser, server: ConsoleServer
) -> None:
    context = browser.new_context()
    context.add_init_script(WATCH)
    page = context.new_page()
    page.set_default_timeout(PATIENT)
    page_errors = record_errors(page, server.url)
    page.goto(server.url)
    expect(page.get_by_label("Token")).to_be_visible()
    assert page_errors.errors == [], "who is not signed in asks the server nothing"
    page.get_by_label("Token").fill("sw_000000000000_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".problem")).to_contain_text("401")
    page.get_by_label("Token").fill(server.token)
    page.get_by_label("Token").press("Enter")
    expect(page.get_by_role("heading", name="Fleet map")).to_be_visible()
    assert [one for one in page_errors.errors if "401 (Unauthorized)" not in one] == []
    assert page.evaluate("window.violations") == []
    kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
    assert "sw_" not in kept
    assert "ss_" not in kept, "scripts can read neither the token nor the cookie"
    other = context.new_page()
    other.goto(f"{server.url}/#/lanes")
    expect(other.locator("#live .dot.live")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Fleet map")).to_be_visible()
    # Signing out in one tab ends the session in all of them, in the browser and in the server.
    cookie = {one["name"]: one["value"] for one in context.cookies()}
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_text("You are signed out.")).to_be_visible()
    expect(other.get_by_label("Token")).to_be_visible()
    assert context.cookies() == []
    assert httpx.get(f"{server.url}/api/v1/me", cookies=cookie, trust_env=False).status_code == 401
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()
    # Signing in again opens the other tab, too.
    page.get_by_label("Token").fill(server.token)
    page.get_by_label("Token").press("Enter")
    expect(page.get_by_role("heading", name="Fleet map")).to_be_visible()
    expect(other.get_by_role("heading", name="Lanes")).to_be_visible()
    context.close()


def test_another_page_cannot_act_with_the_session_of_who_visits_it(browser: Browser, server: ConsoleServer) -> None:
    """A real page on another port of the same host, which is the same site: the browser sends the cookie."""
    with signed_in(browser, server.url, server.token) as (context, page, _), foreign_page() as foreign:
        expect(page.locator("#live .dot.live")).to_be_visible()
        evil = context.new_page()
        evil.goto(foreign)
        target = f"{server.url}/api/v1/ns/demo/objects/ledger/actions/reboot"
        evil.evaluate(FORM_POST, target)
        expect(evil.locator("body")).to_contain_text("403")
        evil.goto(foreign)
        assert evil.evaluate(SENDS, [target, server.url.replace("http", "ws") + "/api/v1/stream"]) == ["refused", 4403]
        events = [line["event"] for line in server.call("GET", "/journal?object=ledger")["items"]]
        assert "reboot" not in events


def test_a_token_that_is_taken_back_ends_the_session(browser: Browser, server: ConsoleServer) -> None:
    made = server.call("POST", "/tokens", {"name": "eve", "role": "viewer", "namespaces": ["demo"]})
    with signed_in(browser, server.url, made["token"]) as (_, page, _):
        expect(page.locator("#live .dot.live")).to_be_visible()
        server.call("DELETE", f"/tokens/{made['info']['id']}")
        expect(
            page.get_by_text("You are signed out: the session has ended, or its token is no longer valid.")
        ).to_be_visible()


def test_the_first_run_is_guided_and_comes_only_once(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, server.url, server.token, tour=True) as (_, page, page_errors):
        page.get_by_role("button", name="Start the tour").click()
        for view in ("objects", "mci", "leases", "systems", "journal", "overview"):
            page.get_by_role("button", name="Next").click()
            expect(page.locator(f"main[data-view={view}]")).to_be_attached()
        page.locator("#tour").get_by_role("button", name="Close").click()
        page.reload()
        expect(page.get_by_role("heading", name="Fleet map")).to_be_visible()
        expect(page.locator("#tour")).to_be_hidden()
        assert page_errors.errors == []


def test_keys_alone_find_and_open_an_object(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, server.url, server.token) as (_, page, _):
        expect(page.get_by_role("heading", name="Fleet map")).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("ledger")
        page.keyboard.press("Enter")
        expect(page.get_by_role("row", name="ledger-logs")).to_be_visible()
        page.locator(".vrow").first.focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Space")
        expect(page.get_by_text("1 disk selected")).to_be_visible()
        page.locator(".vrow[tabindex='0']").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="ledger-data")).to_be_visible()
        page.keyboard.press("?")
        expect(page.locator("#help")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#help")).to_be_hidden()
        wait_until(lambda: journal_by_keys(page))


def journal_by_keys(page: Page) -> bool:
    """Press the two keys, which count only soon after each other; a busy machine may need to try again."""
    page.keyboard.press("g")
    page.keyboard.press("j")
    return page.get_by_role("heading", name="Journal").is_visible()


def test_the_fleet_map_is_walked_with_arrows(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, server.url, server.token) as (_, page, _):
        canvas = page.locator("canvas[data-loaded]")
        expect(canvas).to_have_attribute("data-cells", "463")
        canvas.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(page.locator(".fleet .tip")).to_contain_text(" · ")
        told = page.locator(".fleet .tip").inner_text().split(" · ")[0]
        page.keyboard.press("Enter")
        expect(page.locator(".who-is")).to_contain_text(told)


def test_a_page_whose_modules_do_not_arrive_loads_again_by_itself_then_says_so(
    browser: Browser, server: ConsoleServer
) -> None:
    with signed_in(browser, f"{server.url}/console/icon.svg", server.token) as (context, page, _):
        loads: list[str] = []
        page.on("domcontentloaded", lambda loaded: loads.append(loaded.url))
        part = "**/console/core/dom.js"
        context.route(part, lambda route: route.continue_() if loads else route.abort())
        page.goto(f"{server.url}/#/timers")
        expect(page.get_by_role("heading", name="Timers")).to_be_visible()
        assert len(loads) == 2
        assert page.evaluate("sessionStorage.length") == 0, "the next time, it tries as often"
        context.route(part, lambda route: route.abort())
        page.reload()
        page.get_by_role("button", name="Load again").wait_for()
        page.wait_for_load_state()
        assert len(loads) == 5
        context.unroute(part)
        page.get_by_role("button", name="Load again").click()
        expect(page.get_by_role("heading", name="Timers")).to_be_visible()
        assert page.evaluate("window.violations") == []


def test_a_page_without_any_script_of_its_own_offers_to_load_again(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, f"{server.url}/console/icon.svg", server.token) as (context, page, _):
        context.route("**/console/**/*.js", lambda route: route.abort())
        context.route("**/console/*.js", lambda route: route.abort())
        page.goto(server.url)
        expect(page.get_by_text("The console is loading.")).to_be_visible()
        context.unroute_all()
        page.get_by_role("link", name="load it again").click()
        expect(page.get_by_role("heading", name="Fleet map")).to_be_visible()
