"""The list of objects: columns, order, saved views, and an address that shows the same elsewhere."""

import re

from playwright.sync_api import Browser, Page, Route, expect

from tests.console.browser import signed_in
from tests.console.server_process import ConsoleServer


def at(server: ConsoleServer, query: str) -> str:
    return f"{server.url}/#/objects{query}"


def ids(page: Page) -> list[str]:
    """Return the ids of the rows that are drawn, in their order."""
    keys = page.locator(".vrow").evaluate_all("rows => rows.map((row) => row.dataset.key)")
    return [str(key).partition("/")[2] for key in keys]


def heads(page: Page) -> list[str]:
    return [one.strip(" ↑↓") for one in page.locator(".vhead [role=columnheader]").all_text_contents()[1:]]


def test_what_was_being_read_in_a_former_order_is_not_shown_in_the_present_one(
    browser: Browser, server: ConsoleServer
) -> None:
    held: list[Route] = []
    with signed_in(browser, at(server, "?kind=mci.vm"), server.token) as (_, page, page_errors):
        page.get_by_role("button", name="Columns").click()
        page.get_by_label("tier", exact=True).check()
        page.keyboard.press("Escape")
        tier = page.get_by_role("columnheader", name="tier")
        page.route(re.compile(r"/objects\?.*sort=label\.tier"), lambda one: held.append(one))
        with page.expect_request(re.compile(r"/objects\?.*sort=label\.tier")):
            tier.get_by_role("button").click()
        tier.get_by_role("button").click()
        expect(tier).to_have_attribute("aria-sort", "descending")
        held[0].continue_()
        expect(page.locator(".vrow").first).to_contain_text("web")
        assert page_errors.errors == []


def test_the_server_sorts_over_all_objects_and_the_way_back_leads_to_the_former_order(
    browser: Browser, server: ConsoleServer
) -> None:
    with signed_in(browser, at(server, "?kind=mci.vm"), server.token) as (_, page, page_errors):
        head = page.get_by_role("columnheader", name="id", exact=True)
        expect(head).to_have_attribute("aria-sort", "ascending")
        expect(page.locator(".vrow").first).to_contain_text("lab.node-1")
        head.get_by_role("button").click()
        expect(head).to_have_attribute("aria-sort", "descending")
        expect(page.locator(".vrow").first).to_contain_text("vm-00399")
        assert ids(page) == sorted(ids(page), reverse=True)
        page.get_by_role("columnheader", name="state").get_by_role("button").click()
        expect(page.locator(".vrow").first).to_contain_text("Failed")
        page.go_back()
        expect(page.locator(".vrow").first).to_contain_text("vm-00399")
        page.go_back()
        expect(page.get_by_role("columnheader", name="id", exact=True)).to_have_attribute("aria-sort", "ascending")
        page.go_forward()
        expect(page.locator(".vrow").first).to_contain_text("vm-00399")
        assert page_errors.errors == []


def shown_count(page: Page) -> str:
    """Return the number of rows that the list says it has, when it has read them all."""
    expect(page.locator(".vfoot")).to_have_text(re.compile(r"^[\d,]+ of [\d,]+ shown"))
    return page.locator(".vfoot").inner_text().split(" of ")[1].split()[0]


def test_a_figure_of_the_overview_leads_to_exactly_its_objects(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, f"{server.url}/#/overview", server.token) as (_, page, page_errors):
        legend = page.locator(".legend a")
        expect(legend.first.locator("b")).not_to_have_text("0")
        figures = [*page.locator("a.number").all_inner_texts(), *legend.all_inner_texts()]
        for place, text in enumerate(figures):
            page.goto(f"{server.url}/#/overview")
            link = page.locator("a.number, .legend a").nth(place)
            count = link.locator("b").inner_text()
            link.click()
            expect(page.get_by_role("combobox", name="Health")).not_to_have_value("")
            if count == "0":
                expect(page.get_by_text("No objects match.")).to_be_visible()
                continue
            assert (shown_count(page), text) == (count, text)
        page.goto(f"{server.url}/#/objects?health=failed")  # hosts are `failed` and stay; a deploy that is, has ended
        expect(page.locator(".vrow", has_text="host-6")).to_be_visible()
        assert page_errors.errors == []


def test_new_objects_are_told_only_if_they_match_the_filter(browser: Browser, server: ConsoleServer) -> None:
    create = {"kind": "systems.deploy", "spec": {"path": "/new"}}
    with signed_in(browser, at(server, "?kind=systems.deploy&ns=demo&q=deploy-"), server.token) as (_, page, _):
        expect(page.locator(".vfoot")).to_contain_text("4 shown")
        for name in ("other-1", "deploy-8", "other-2", "deploy-9"):
            server.call("POST", "/ns/demo/objects", {"id": name, **create})
        server.call("POST", "/ns/demo/objects/builder/actions/start", {})
        expect(page.locator(".vfoot")).to_contain_text("2 new: reload")


def test_columns_are_chosen_and_a_link_shows_the_same_in_another_browser(
    browser: Browser, server: ConsoleServer
) -> None:
    with signed_in(browser, at(server, "?kind=mci.vm"), server.token) as (_, page, page_errors):
        page.get_by_role("button", name="Columns").click()
        page.get_by_label("parent", exact=True).uncheck()
        page.get_by_label("tier", exact=True).check()
        page.keyboard.press("Escape")
        assert "tier" in heads(page)
        assert "parent" not in heads(page)
        tier = page.get_by_role("columnheader", name="tier")
        for order in ("ascending", "descending"):
            tier.get_by_role("button").click()
            expect(tier).to_have_attribute("aria-sort", order)
        expect(page.locator(".vrow").first).to_contain_text("web")
        page.locator(".vrow input").nth(1).click()
        expect(page.locator(".vrow").nth(1)).to_have_attribute("aria-selected", "true")
        shown, first, url = heads(page), ids(page)[:5], page.url
        assert page_errors.errors == []
    with signed_in(browser, url, server.token, width=390) as (_, page, page_errors):
        expect(page.locator(".vrow").nth(1)).to_have_attribute("aria-selected", "true")
        assert (heads(page), ids(page)[:5]) == (shown, first)
        last = page.get_by_role("columnheader").last
        last.scroll_into_view_if_needed()
        box = last.bounding_box()
        assert box is not None
        assert box["x"] < 390  # every column can be reached on a phone
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page_errors.errors == []


def test_a_link_keeps_the_namespace_and_another_choice_replaces_it(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, at(server, "?ns=demo&kind=mci.vm"), server.token) as (_, page, _):
        expect(page.get_by_label("Namespace", exact=True)).to_have_value("demo")
        expect(page.locator(".vrow").first).to_contain_text("lab.node-1")
        page.get_by_label("Namespace", exact=True).select_option("fleet")
        expect(page.locator(".vrow").first).to_contain_text("vm-0000")
        assert "ns=fleet" in page.url


def test_views_are_saved_opened_and_removed(browser: Browser, server: ConsoleServer) -> None:
    with signed_in(browser, at(server, "?kind=mci.vm&state=Failed&sort=-since"), server.token) as (
        _,
        page,
        page_errors,
    ):
        page.get_by_role("button", name="Views").click()
        page.get_by_label("Name of the view").fill("broken VMs")
        page.get_by_role("button", name="Save this view").click()
        page.goto(at(server, ""))
        page.reload()
        page.get_by_role("button", name="Views").click()
        page.get_by_role("link", name="broken VMs").click()
        expect(page.get_by_label("State", exact=True)).to_have_value("Failed")
        page.get_by_role("button", name="Views").click()
        page.get_by_role("button", name="Delete the view broken VMs").click()
        expect(page.get_by_text("No saved views in this browser.")).to_be_visible()
        assert page_errors.errors == []


def test_a_link_keeps_the_choice_of_all_that_match_and_says_what_it_does_not_keep(
    browser: Browser, server: ConsoleServer
) -> None:
    with signed_in(browser, at(server, "?ns=fleet&kind=mci.vm"), server.token) as (_, page, page_errors):
        bar = page.locator(".bulk")
        page.locator(".vrow input").first.click()
        bar.get_by_role("button", name="Select all shown").click()
        expect(bar).to_contain_text("The address keeps at most 50 selected objects, or all that match.")
        bar.get_by_role("button", name="Select all that match").click()
        expect(bar.get_by_role("status")).to_have_text(re.compile(r"^All [\d,]+ VMs that match$"))
        chosen, url = bar.get_by_role("status").inner_text(), page.url
        assert "selected=all" in url
        bar.get_by_role("button", name="Clear selection").click()
        expect(bar).to_be_hidden()
        assert "selected" not in page.url
        assert page_errors.errors == []
    with signed_in(browser, url, server.token) as (_, page, page_errors):
        expect(page.locator(".bulk").get_by_role("status")).to_have_text(chosen)
        assert "selected=all" in page.url
        page.get_by_label("State", exact=True).select_option("Failed")
        expect(page.locator(".bulk")).to_be_hidden()
        assert "selected" not in page.url
        assert page_errors.errors == []
