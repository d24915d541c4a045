"""The console modules of plug-ins: the example of the guide works, and a broken module breaks nothing else."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.console.browser import AUDIT, signed_in
from tests.console.server_process import ROOT
from tests.integration.server.server_processes import Served, served
from tests.long_forms import in_long_form

GUIDE = (ROOT / "docs" / "howto" / "console-module.md").read_text("utf-8")
FILES = {"python": "__init__.py", "javascript": "console.js", "css": "console.css"}
MODULE = "/console/domains/acme.js"
OWN = 'export default { name: "acme", view: { title: "x", show } };\n'

DRAWS = "const show = () => {\n  null.x;\n};\n" + OWN
DRAWS_LATER = "const show = async () => {\n  await 1;\n  null.x;\n};\n" + OWN

BROKEN = {
    # what is wrong                   module                                                 what is told
    "a syntax error":                ("const a = 1;\nconst b = ;\n",                         [":2:", "SyntaxError"]),
    "an import that does not exist": ('import { nothing } from "/console/core/dom.js";\n',   ["nothing"]),
    "a file that does not exist":    ('import "./none.js";\n',                               [""]),
    "an error while it loads":       ("const a = 1;\n\nnull.x;\n",                           [":3:", "TypeError"]),
    "no default export":             ("export const a = 1;\n",                               ["must be an object"]),
    "the name of another plug-in":   ('export default { name: "mci" };\n',                   ['must be "acme"']),
    "a view that is no view":        ('export default { name: "acme", view: 7 };\n',         ["must be a function"]),
    "an error while it draws":       (DRAWS,                                                 [":2:", "TypeError"]),
    "an error after a while":        (DRAWS_LATER,                                           [":3:", "TypeError"]),
}  # fmt: skip
UNLIKE = ("an import that does not exist", "an error while it loads", "no default export", "an error after a while")
"""Faults that are found at different times: before, while and after the module is run, and when its view is drawn."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("acme")
    package = folder / "acme_lamp"
    package.mkdir()
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE):
        if language in FILES:
            (package / FILES[language]).write_text(text, "utf-8")
    install_broken(folder)
    with served(folder / "data", "--domain", "acme_lamp:domain", environ={"PYTHONPATH": str(folder)}) as found:
        yield found


def install_broken(folder: Path) -> None:
    """Install a package whose plug-in cannot be imported."""
    info = folder / "torn-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torn\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[stateward.domains]\ntorn = torn:domain\n")
    (folder / "torn.py").write_text("domain = nothing\n")


def replaced(context: BrowserContext, page: Page, module: str) -> None:
    """Load the page with another module of the domain."""
    context.route(f"**{MODULE}*", lambda route: route.fulfill(body=module, content_type="text/javascript"))
    page.reload()
    expect(page.locator("#live .dot.live")).to_be_visible()


def make(page: Page, name: str, room: str) -> None:
    """Create a lamp with its form."""
    page.get_by_role("button", name="New acme.lamp").click()
    for field, value in {"ns": "home", "id": name, "spec.room": room}.items():
        page.locator(f"#question [name='{field}']").fill(value)
    page.locator("#question").get_by_role("button", name="Create").click()
    expect(page.locator("#question")).to_be_hidden()


def test_the_example_of_the_guide_is_a_view_with_forms_buttons_and_a_key(
    browser: Browser, server: Served, axe: str
) -> None:
    with signed_in(browser, server.url, server.token) as (_, page, page_errors):
        expect(page.locator("#live .dot.live")).to_be_visible()
        page.keyboard.press("g")
        page.keyboard.press("p")
        expect(page.get_by_role("heading", name="Lamps")).to_be_visible()
        expect(page.get_by_text("There is no lamp yet.")).to_be_visible()
        make(page, "wall", "study")
        lamp = page.locator(".card-study .lamp", has_text="wall")
        lamp.get_by_role("button", name="light").click()
        page.locator("#action").get_by_role("button", name="Light wall").click()
        expect(lamp.locator(".badge")).to_have_text("on")
        assert page.evaluate("getComputedStyle(document.querySelector('.lamp.on')).borderLeftWidth") == "3px"
        page.evaluate(axe)
        assert page.evaluate(AUDIT) == []
        page.evaluate("location.hash = '#/object/home/wall'")
        expect(page.locator(".summary")).to_contain_text("study")
        assert page_errors.errors == []
        assert page.evaluate("window.violations") == []


@pytest.mark.parametrize("what", in_long_form(BROKEN, short=UNLIKE))
def test_a_broken_module_is_told_and_the_generic_pages_stand_in(browser: Browser, server: Served, what: str) -> None:
    module, told = BROKEN[what]
    with signed_in(browser, server.url, server.token) as (context, page, _):
        replaced(context, page, module)
        page.evaluate("location.hash = '#/acme'")
        notice = page.get_by_role("alert")
        expect(notice).to_contain_text("The console module of the plug-in acme is broken")
        for text in (MODULE, *told):
            expect(notice).to_contain_text(text)
        expect(page.get_by_role("heading", name="acme", exact=True)).to_be_visible()
        name = "-".join(what.split())
        make(page, name, "cellar")
        expect(page.locator("main tr", has_text=name)).to_contain_text("cellar")
        page.evaluate("location.hash = '#/mci'")
        expect(page.get_by_role("heading", name="Multi-cloud infrastructure")).to_be_visible()
        notice.get_by_role("button", name="Hide").click()
        expect(notice).to_be_hidden()


LATE = """
const show = ({main, on}) => {
  main.append("drawn");
  on("entries", () => { null.x; });
};
const actions = {"acme.lamp": {light: {fields: () => null.x, call: () => []}}};
export default { name: "acme", view: { title: "x", show }, actions };
"""


def test_what_a_module_throws_later_is_told_and_stops_nobody_else(browser: Browser, server: Served) -> None:
    with signed_in(browser, server.url, server.token) as (context, page, _):
        replaced(context, page, LATE)
        page.evaluate("location.hash = '#/acme'")
        expect(page.locator("main")).to_have_text("drawn")
        seen = page.locator("#live").inner_text()
        body = {"kind": "acme.lamp", "id": "late", "spec": {"room": "attic"}}
        with server.client() as client:
            client.post("/api/v1/ns/home/objects", json=body).raise_for_status()
        expect(page.get_by_role("alert")).to_contain_text(f"{MODULE}:4")
        expect(page.locator("#live")).not_to_have_text(seen)  # the stream goes on
        page.evaluate("location.hash = '#/object/home/late'")
        page.get_by_role("button", name="light…").click()
        expect(page.locator("#problem")).to_contain_text(f"{MODULE}:6")


def test_a_plug_in_that_cannot_be_loaded_is_told_to_administrators_and_no_others(
    browser: Browser, server: Served
) -> None:
    with server.client() as client:
        asked = {"name": "vic", "role": "viewer", "namespaces": ["home"]}
        viewer = client.post("/api/v1/tokens", json=asked).raise_for_status().json()["token"]
    with signed_in(browser, server.url, server.token) as (_, page, _):
        expect(page.get_by_role("alert")).to_contain_text("The plug-in torn is not loaded")
        expect(page.get_by_role("alert")).to_contain_text("name 'nothing' is not defined")
        expect(page.locator("nav [data-domain]")).to_have_count(6)
    with signed_in(browser, server.url, viewer) as (_, page, _):
        expect(page.locator("nav [data-domain]")).to_have_count(6)
        expect(page.get_by_role("alert")).to_have_count(0)


def test_the_guide_names_the_public_modules_with_their_exports_and_the_built_in_ones_use_no_others(
    browser: Browser, server: Served
) -> None:
    rows = re.findall(r"^\| `(/console/\S+)` \| (.+) \|$", GUIDE, re.MULTILINE)
    public = {path: set(re.findall(r"`(\w+)`", names)) for path, names in rows}
    with signed_in(browser, server.url, server.token) as (_, page, _):
        for path, names in public.items():
            exported = set(page.evaluate("path => import(path).then(Object.keys)", path))
            assert names <= exported, path
    for module in (
        *(ROOT / "src" / "stateward" / "domains").glob("*/console.js"),
        *ROOT.glob("examples/*/*/console.js"),
    ):
        for names, path in re.findall(r"^import \{ (.+) \} from \"(.+)\";$", module.read_text("utf-8"), re.MULTILINE):
            assert set(names.split(", ")) <= public[path], (module, path)


def test_entries_that_do_not_fit_into_the_navigation_are_behind_more(browser: Browser, server: Served) -> None:
    with signed_in(browser, server.url, server.token, width=1200) as (_, page, page_errors):
        page.get_by_role("button", name="More ▾").click()
        page.locator("#more-domains").get_by_role("link", name="Lamps").click()
        expect(page.get_by_role("heading", name="Lamps")).to_be_visible()
        expect(page.locator("#more-domains")).to_be_hidden()
        page.set_viewport_size({"width": 2400, "height": 900})
        expect(page.get_by_role("link", name="Lamps")).to_have_attribute("aria-current", "page")
        expect(page.get_by_role("button", name="More ▾")).to_be_hidden()
        assert page_errors.errors == []
