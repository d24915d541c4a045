"""The search box: suggestions by type, the keyboard, and where they lead."""

from playwright.sync_api import Browser, Page, expect

from tests.console.browser import signed_in
from tests.console.server_process import ConsoleServer


def focus_search(page: Page) -> None:
    """Press the key of the search, when the page listens to keys."""
    expect(page.locator("#live")).to_contain_text("#")
    page.keyboard.press("/")
    expect(page.get_by_role("combobox", name="Search")).to_be_focused()


def test_suggestions_come_by_type_with_the_matched_part_marked(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, server.url, server.token) as (_, page, page_errors):
        focus_search(page)
        box = page.get_by_role("combobox", name="Search")
        expect(box).to_be_focused()
        box.press_sequentially("WEB")
        expect(page.get_by_role("listbox", name="Suggestions")).to_be_visible()
        expect(box).to_have_attribute("aria-expanded", "true")
        expect(page.get_by_role("group", name="Objects").get_by_role("option").first).to_be_visible()
        expect(page.get_by_role("group", name="Labels")).to_contain_text("=")
        marks = page.locator("#suggestions mark").all_text_contents()
        assert {one.lower() for one in marks} == {"web"}
        page.keyboard.press("Escape")
        expect(page.get_by_role("listbox", name="Suggestions")).to_be_hidden()
        expect(box).to_be_focused()
        assert page_errors.errors == []


def test_the_keyboard_walks_in_the_suggestions_and_opens_one(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, server.url, server.token) as (_, page, page_errors):
        focus_search(page)
        page.keyboard.type("ledger")
        first = page.get_by_role("option").first
        expect(first).to_contain_text("ledger")
        page.keyboard.press("ArrowDown")
        expect(first).to_have_attribute("aria-selected", "true")
        expect(page.get_by_role("combobox", name="Search")).to_have_attribute("aria-activedescendant", "suggestion-0")
        page.keyboard.press("ArrowUp")
        expect(first).to_have_attribute("aria-selected", "false")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="ledger", level=1)).to_be_visible()
        assert page_errors.errors == []


def test_what_was_chosen_stays_chosen_when_more_is_typed(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, server.url, server.token) as (_, page, page_errors):
        focus_search(page)
        page.keyboard.type("ledge")
        first = page.get_by_role("option").first
        expect(first.locator("mark")).to_have_text("ledge")
        page.keyboard.press("ArrowDown")
        page.keyboard.type("r")
        expect(first.locator("mark")).to_have_text("ledger")
        expect(first).to_have_attribute("aria-selected", "true")
        assert page_errors.errors == []


def test_kinds_and_states_lead_to_the_objects_and_enter_alone_lists_by_id(
    browser: Browser, server: ConsoleServer
) -> None:
    with signed_in(browser, server.url, server.token) as (_, page, _):
        focus_search(page)
        page.keyboard.type("mci.vm")
        page.get_by_role("group", name="Kinds").get_by_role("option", name="mci.vm").click()
        expect(page.get_by_label("Kind", exact=True)).to_have_value("mci.vm")
        focus_search(page)
        page.keyboard.type("shop.web")
        page.keyboard.press("Enter")
        expect(
            page.get_by_role("textbox", name="id contains").or_(page.get_by_role("searchbox", name="id contains"))
        ).to_have_value("shop.web")
        focus_search(page)
        page.keyboard.type("no such thing")
        expect(page.get_by_text("No matches for “no such thing”.")).to_be_visible()
