"""Everybody can use the console and the pages of the API: axe-core, contrast, zoom, shapes, motion, the keyboard.

One page walks over all views of the route table, and over what opens above them: dialogs, menus, notices. Colours are
checked in both themes, everything else in one.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import AUDIT, CONTRAST, signed_in
from tests.console.server_process import ConsoleServer
from tests.console.view_table import VIEW_NAMES, VIEWS, visit

LAPTOP: Any = {"width": 1440, "height": 900}
ZOOMED: Any = {"width": 640, "height": 400}
"""What a window of 1280 x 800 has at a zoom of 200 %."""

NARROW: Any = {"width": 320, "height": 640}
"""The narrowest page of WCAG 1.4.10."""

FITS = """async () => {
  const wrong = [];
  for (const _ of [1, 2]) await new Promise(requestAnimationFrame);  // the page has its new size
  if (document.documentElement.scrollWidth > innerWidth) wrong.push(`${document.documentElement.scrollWidth} px wide`);
  const above = [...document.querySelectorAll("dialog[open], :popover-open, #suggestions:not([hidden])")].at(-1);
  if (above && above.scrollWidth > above.clientWidth) wrong.push(`${above.id} is ${above.scrollWidth} px wide`);
  for (const one of (above ?? document.body).querySelectorAll("a[href], button, input, select, textarea, summary")) {
    if (!one.checkVisibility({visibilityProperty: true}) || one.matches(".skip")) continue;
    one.scrollIntoView({block: "center", inline: "center"});
    const seen = [...one.getClientRects()].some(({left, top, width, height}) => {
      const hit = document.elementFromPoint(left + width / 2, top + height / 2);
      return left >= -1 && left + width <= innerWidth + 1 && (one.contains(hit) || one.closest("label")?.contains(hit));
    });
    if (!seen) wrong.push(`${one.outerHTML.slice(0, 120)} is cut off or covered`);
  }
  scrollTo(0, 0);
  return wrong;
}"""
COLOURED = """() => [...document.querySelectorAll("main [class*='tone-'], #notices [class*='tone-']")].filter((one) => {
  const named = one.textContent.trim() || one.getAttribute("aria-label") || one.getAttribute("title");
  const shape = "svg.shape, path[d]";
  const near = one.querySelector(shape) ? one : one.parentElement.closest("li, td, .column") ?? one;
  const listed = one.closest(".rollup")?.parentElement.querySelector(".legend .shape");
  return !one.matches(shape) && !listed && !(near.querySelector(shape) && named) && !one.matches("[role=meter]");
}).map((one) => one.outerHTML.slice(0, 160))"""
MOVES = """() => {
  const [still, all] = [["", "0s"], [...document.querySelectorAll("*")]];
  const moving = (one, part) => {
    const { transitionDuration, animationDuration, animationName } = getComputedStyle(one, part);
    const lasts = `${transitionDuration}, ${animationName === "none" ? "0s" : animationDuration}`;
    return lasts.split(", ").some((time) => !still.includes(time));
  };
  const found = all.filter((one) => [null, "::before", "::after"].some((part) => moving(one, part)));
  return [...found.map((one) => one.outerHTML.slice(0, 120)), ...document.getAnimations().map(String)];
}"""


@pytest.fixture(scope="module")
def page(browser: Browser, server: ConsoleServer, axe: str) -> Iterator[Page]:
    with signed_in(browser, server.url, server.token) as (_, page, _):
        page.evaluate(axe)
        yield page


@pytest.fixture(params=[*VIEWS, "operation", "object/demo/none", "nowhere"])
def view(page: Page, request: pytest.FixtureRequest) -> str:
    """A view that is shown."""
    page.set_viewport_size(LAPTOP)
    name: str = request.param
    if name in VIEWS:
        visit(page, name)
    elif name == "operation":
        visit(page, "operations")
        page.locator("main").get_by_role("link", name="deploy", exact=True).first.click()
        expect(page.locator("main .bars")).to_be_visible()
    else:
        page.evaluate("view => { location.hash = '#/' + view }", name)
        expect(page.locator("main .empty")).to_be_visible()
    return name


def problems(page: Page, *parts: str) -> list[str]:
    """Return what axe finds in both themes: in the whole page, or in these parts."""
    found: list[str] = []
    for theme, rules in (("dark", None), ("light", CONTRAST)):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        found += [f"{theme}: {one}" for one in page.evaluate(AUDIT, {"rules": rules, "parts": parts})]
    return found


def misfits(page: Page) -> list[str]:
    """Return what does not fit at a zoom of 200 %, and on the narrowest page."""
    found: list[str] = []
    for size in (ZOOMED, NARROW):
        page.set_viewport_size(size)
        found += [f"{size['width']}: {one}" for one in page.evaluate(FITS)]
    return found


def test_every_view_of_the_route_table_is_looked_at() -> None:
    assert {one.partition("/")[0] for one in VIEWS} | {"operation"} == set(VIEW_NAMES)


def test_axe_finds_nothing_in_a_view_in_both_themes(page: Page, view: str) -> None:
    assert problems(page) == [], view


def test_states_of_a_view_differ_by_shape_or_text_too(page: Page, view: str) -> None:
    assert page.evaluate(COLOURED) == [], view


def test_nothing_in_a_view_moves_for_people_who_want_less_motion(page: Page, view: str) -> None:
    assert page.evaluate(MOVES) == [], view


def test_a_view_fits_at_a_zoom_of_200_percent_and_on_320_pixels(page: Page, view: str) -> None:
    assert misfits(page) == [], view
    assert page.evaluate(AUDIT, {"rules": ["target-size"]}) == [], view  # with lists in several lines


# --- what opens above views ------------------------------------------------------------------------------------------


def open_help(page: Page) -> str:
    page.get_by_role("button", name="Help").click()
    return "#help"


def open_kinds(page: Page) -> str:
    page.get_by_role("button", name="New object").click()
    expect(page.locator(".choices li").first).to_be_visible()
    return "#question"


def open_form(page: Page) -> str:
    open_kinds(page)
    page.locator("[data-creates='ovc.vm']").click()
    page.locator("#question").get_by_role("button", name="Create").click()
    expect(page.locator("#question .complaint:visible").first).to_be_visible()
    return "#question"


def open_action(page: Page) -> str:
    page.get_by_role("button", name="Delete (can be restored)", exact=True).click()
    page.locator("#action").get_by_text("Force and facts").click()
    return "#action"


def open_bulk_action(page: Page) -> str:
    for row in page.locator(".vrow input").all()[:3]:
        row.check()
    page.locator(".bulk [data-action]").first.click()
    expect(page.locator("#action")).to_be_visible()
    return "#action"


def open_columns(page: Page) -> str:
    page.get_by_role("button", name="Columns").click()
    return ".popup:popover-open"


def open_saved_views(page: Page) -> str:
    page.get_by_role("button", name="Views", exact=False).last.click()
    return ".popup:popover-open"


def open_search(page: Page) -> str:
    page.get_by_role("combobox", name="Search").fill("web")
    expect(page.get_by_role("option").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    return "#suggestions"


def open_question(page: Page) -> str:
    page.locator("main").get_by_role("button", name="Revoke").first.click()
    return "dialog[open]"


def open_problem(page: Page) -> str:
    page.evaluate("""async () => {
      const { showProblem, toast } = await import("/console/ui/problems.js");
      const { Problem } = await import("/console/core/api.js");
      toast("done", "good");
      toast("failed", "failed");
      const refused = {title: "Refused", status: 409, code: "refused", detail: "it is not allowed now", retry: true};
      const state = {state: "RUNNING", state_class: "stable", allowed: ["stop"]};
      showProblem(new Problem({...refused, ...state}), {onAllowed: () => {}});
    }""")
    return "#problem"


ABOVE: dict[str, tuple[str, Callable[[Page], str]]] = {
    # what                   above which view      how it is opened
    "help":                  ("timers",             open_help),
    "kinds to create":       ("objects",            open_kinds),
    "a form with errors":    ("objects",            open_form),
    "an action":             ("object/demo/ledger", open_action),
    "an action on several":  ("objects",            open_bulk_action),
    "columns":               ("objects",            open_columns),
    "saved views":           ("objects",            open_saved_views),
    "suggestions":           ("timers",             open_search),
    "a question":            ("access",             open_question),
    "a problem":             ("timers",             open_problem),
}  # fmt: skip


AROUND = ("body > header", ".bulk", "#toasts", "#notices")
"""What may change around a view while something is opened above it. The view itself is looked at by its own test."""


@pytest.mark.parametrize("what", ABOVE)
def test_what_opens_above_a_view_can_be_used_by_everybody(page: Page, what: str) -> None:
    view, open_above = ABOVE[what]
    page.set_viewport_size(LAPTOP)
    visit(page, view)
    opened = open_above(page)
    above = page.locator(opened)
    expect(above).to_be_visible()
    assert problems(page, opened, *AROUND) == []
    assert page.evaluate(MOVES) == []
    assert misfits(page) == []
    page.set_viewport_size(ZOOMED)
    inside = "one => one.getBoundingClientRect().top >= 0 && one.getBoundingClientRect().bottom <= innerHeight"
    assert above.evaluate(inside)  # it scrolls within itself
    page.keyboard.press("Escape")
    expect(above).to_be_hidden()


def test_the_notice_of_an_action_can_be_used_by_everybody(page: Page) -> None:
    page.set_viewport_size(LAPTOP)
    page.evaluate("location.hash = '#/objects?kind=mci.vm&state=Running&q=vm-00'")
    expect(page.locator(".vrow").first).to_contain_text("vm-00")
    for number in (0, 1):
        page.locator(".vrow input").nth(number).check()
    page.locator(".bulk [data-action=suspend]").click()
    page.locator("#action").get_by_role("button", name="Suspend 2 VMs").click()
    expect(page.locator(".notice")).to_contain_text("2 of 2 done")
    assert problems(page, *AROUND) == []
    assert page.evaluate(COLOURED) == []
    page.get_by_role("button", name="Close: Suspend 2 VMs").click()
    expect(page.locator(".notice")).to_be_hidden()


# --- the keyboard ----------------------------------------------------------------------------------------------------


def test_the_skip_link_leads_to_the_content_of_the_same_view(page: Page) -> None:
    page.set_viewport_size(LAPTOP)
    visit(page, "timers")
    page.locator(".skip").focus()
    expect(page.locator(".skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main[data-view=timers]")).to_be_focused()
    assert page.url.endswith("#/timers")


def test_the_focus_goes_into_a_dialog_stays_in_it_and_comes_back(page: Page) -> None:
    page.set_viewport_size(LAPTOP)
    visit(page, "object/demo/ledger")
    button = page.get_by_role("button", name="Delete (can be restored)", exact=True)
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#action-title")).to_be_focused()
    for _ in range(12):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement === document.body || !!document.activeElement.closest('#action')")
    page.keyboard.press("Escape")
    expect(page.locator("#action")).to_be_hidden()
    expect(button).to_be_focused()


def test_a_link_of_a_view_takes_the_focus_into_the_next_one(page: Page) -> None:
    page.set_viewport_size(LAPTOP)
    visit(page, "timers")
    page.locator("main").get_by_role("link", name="old-web", exact=True).press("Enter")
    expect(page.locator("main[data-view=object]")).to_be_focused()


def test_the_menu_of_a_small_page_opens_and_closes_with_keys(page: Page) -> None:
    page.set_viewport_size(ZOOMED)
    visit(page, "timers")
    menu = page.get_by_role("button", name="Menu")
    menu.press("Enter")
    expect(page.get_by_role("link", name="Journal")).to_be_visible()
    assert problems(page) == []
    assert misfits(page) == []
    page.set_viewport_size(ZOOMED)
    page.get_by_role("link", name="Journal").focus()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Journal")).to_be_hidden()
    expect(menu).to_be_focused()


def test_what_has_the_focus_is_seen_and_not_behind_the_frame(page: Page) -> None:
    page.set_viewport_size(LAPTOP)
    visit(page, "access")
    for size in (LAPTOP, ZOOMED):
        page.set_viewport_size(size)
        page.locator("main button").last.focus()
        for _ in range(25):
            page.keyboard.press("Shift+Tab")
            assert (
                page.evaluate("""() => {
              const [one, style] = [document.activeElement, getComputedStyle(document.activeElement)];
              const { left, top, width, height } = one.getBoundingClientRect();
              const hit = document.elementFromPoint(left + width / 2, top + height / 2);
              const seen = one.contains(hit) && parseFloat(style.outlineWidth) >= 1;
              return seen || one === document.body ? "" : one.outerHTML;
            }""")
                == ""
            ), size


# --- shapes ----------------------------------------------------------------------------------------------------------


def test_each_tone_has_a_shape_of_its_own_at_every_size_of_the_map(page: Page) -> None:
    masks = page.evaluate("""async () => {
      const { TONES, SHAPES } = await import("/console/ui/states.js");
      const { paintShape } = await import("/console/fleet/map.js");
      const found = { legend: TONES.map((tone) => SHAPES[tone]) };
      for (const side of [3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 32]) {
        found[side] = TONES.map((tone) => {
          const pen = Object.assign(document.createElement("canvas"), {width: side, height: side}).getContext("2d");
          paintShape(pen, tone, side);
          return pen.getImageData(0, 0, side, side).data.filter((_, at) => at % 4 === 3).join();
        });
      }
      return found;
    }""")
    assert {size: len(set(found)) for size, found in masks.items()} == dict.fromkeys(masks, 8)


def test_shapes_and_bars_are_seen_in_the_colours_of_the_system(page: Page) -> None:
    page.set_viewport_size(LAPTOP)
    page.emulate_media(forced_colors="active")
    try:
        visit(page, "mci")
        painted = """one => { const style = getComputedStyle(one); return [style.fill, style.backgroundColor] }"""
        paper = page.locator("body").evaluate("one => getComputedStyle(one).backgroundColor")
        shape, _ = page.locator("main .badge .shape").first.evaluate(painted)
        _, bar = page.locator("main .rollup > span").first.evaluate(painted)
        assert paper not in {shape, bar}
    finally:
        page.emulate_media(forced_colors="none")


# --- pages without a session -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/docs", "/docs/guide"])
def test_pages_without_a_session_can_be_used_by_everybody(
    browser: Browser, server: ConsoleServer, axe: str, path: str
) -> None:
    context = browser.new_context(reduced_motion="reduce", bypass_csp=True)
    page = context.new_page()
    page.goto(server.url + path)
    expect(page.locator("main").get_by_text(re.compile("Token|objects|Get")).first).to_be_visible()
    page.evaluate("""() => {
      for (const [number, one] of document.querySelectorAll("details").entries())
        if (number < 3) one.open = true;
        else if (number >= 12) one.remove();  // more of the same: the reference has a part for each call
    }""")
    page.evaluate(axe)
    assert problems(page) == []
    assert misfits(page) == []
    assert page.evaluate(MOVES) == []
    context.close()
