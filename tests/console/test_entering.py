"""Signing in: the token of the tab, roles, the tour, and the keyboard."""

from playwright.sync_api import Browser, Page, expect

from tests.console.browser import PATIENT, WATCH, record_errors, signed_in
from tests.console.server_process import ConsoleServer, wait_until


def test_a_wrong_token_is_refused_with_its_problem_and_a_right_one_is_kept_for_the_tab_only(
    browser: Browser, server: ConsoleServer
) -> None:
    context = browser.new_context()
    context.add_init_script(WATCH)
    page = context.new_page()
    page.set_default_timeout(PATIENT)
    page.goto(server.url)
    page.get_by_label("Token").fill("sw_000000000000_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".problem")).to_contain_text("401")
    page_errors = record_errors(page, server.url)
    page.get_by_label("Token").fill(server.token)
    page.get_by_label("Token").press("Enter")
    expect(page.get_by_role("heading", name="Fleet map")).to_be_visible()
    assert server.token not in page.evaluate("JSON.stringify(localStorage) + document.cookie")
    # The browser may tell late of the wrong token's answers; an answer 401 to the right one would end the session.
    assert [one for one in page_errors.errors if "401 (Unauthorized)" not in one] == []
    assert page.evaluate("window.violations") == []
    other = context.new_page()
    other.goto(server.url)
    expect(other.get_by_label("Token")).to_be_visible()
    context.close()


def test_a_token_that_is_taken_back_ends_the_session(browser: Browser, server: ConsoleServer) -> None:
    made = server.call("POST", "/tokens", {"name": "eve", "role": "viewer", "namespaces": ["demo"]})
    with signed_in(browser, server.url, made["token"]) as (_, page, _):
        expect(page.locator("#live .dot.live")).to_be_visible()
        server.call("DELETE", f"/tokens/{made['info']['id']}")
        expect(page.get_by_text("The token is not valid any more.")).to_be_visible()


def test_a_viewer_may_look_and_is_offered_nothing_else(browser: Browser, server: ConsoleServer) -> None:
    made = server.call("POST", "/tokens", {"name": "vic", "role": "viewer", "namespaces": ["demo"]})
    with signed_in(browser, f"{server.url}/#/object/demo/builder", made["token"]) as (_, page, page_errors):
        button = page.get_by_role("button", name="start", exact=True)
        expect(button).to_have_attribute("aria-disabled", "true")
        assert button.get_attribute("title") == "your role, viewer, may only look"
        expect(page.get_by_role("link", name="Access")).to_be_hidden()
        expect(page.get_by_role("button", name="With arguments…")).to_have_count(0)
        page.goto(f"{server.url}/#/objects")
        expect(page.get_by_role("row", name="acme-prod").first).to_be_visible()
        expect(page.get_by_role("button", name="New object")).to_have_count(0)
        page.goto(f"{server.url}/#/lanes")
        expect(page.get_by_text("Lanes concern all namespaces.")).to_be_visible()
        assert page_errors.errors == []


def test_the_first_run_is_guided_and_comes_only_once(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, server.url, server.token, tour=True) as (_, page, page_errors):
        page.get_by_role("button", name="Show me").click()
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
        expect(page.get_by_text("1 selected")).to_be_visible()
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
        expect(canvas).to_have_attribute("data-cells", "458")
        canvas.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(page.locator(".fleet .tip")).to_contain_text(" · ")
        told = page.locator(".fleet .tip").inner_text().split(" · ")[0]
        page.keyboard.press("Enter")
        expect(page.locator(".who-is")).to_contain_text(told)
