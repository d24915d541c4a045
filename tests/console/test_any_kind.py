"""The kinds of a foreign domain without a console module: forms from their types, their columns, their pages."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx
import msgspec
import pytest
from msgspec import Meta, Struct
from playwright.sync_api import Browser, Locator, Page, expect

from stateward.engine.typed_values import value_type
from tests.console.browser import AUDIT, PageErrors, signed_in
from tests.console.server_process import ROOT
from tests.integration.server.server_processes import Served, served
from tests.long_forms import in_long_form

PRINTERS = "/api/v1/ns/office/objects"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("foreign") / "data"
    with served(folder, "--domain", "tests.console.printing:domain", environ={"PYTHONPATH": str(ROOT)}) as found:
        yield found


def go(page: Page, view: str) -> None:
    page.evaluate("view => { location.hash = '#/' + view }", view)


def choose_kind(page: Page, kind: str) -> Locator:
    """Open the create form of a kind from the choice of kinds."""
    page.get_by_role("button", name="New object", exact=True).click()
    page.get_by_role("searchbox", name="Search kinds").fill(kind)
    page.locator(f"[data-creates='{kind}']").click()
    return page.locator("#question form")


def field(form: Locator, name: str) -> Locator:
    return form.locator(f"[name='{name}']")


def group(form: Locator, name: str) -> Locator:
    return form.locator(f"[data-path='{name}']")


def make(api: httpx.Client, name: str, kind: str = "printing.printer", **more: Any) -> None:
    """Create an object, and wait until it is there."""
    body = {"kind": kind, "id": name, **more}
    asked = api.post(PRINTERS, json=body).raise_for_status().json()
    with api.stream("GET", f"/api/v1/ns/office/operations/{asked['operation']['id']}/events") as events:
        assert "succeeded" in events.read().decode()


def test_an_object_is_made_with_a_form_of_every_type(opened: tuple[Page, PageErrors], api: httpx.Client) -> None:
    page, page_errors = opened
    go(page, "objects")
    form = choose_kind(page, "printing.printer")
    expect(form.get_by_label("network address")).to_be_visible()
    expect(form.get_by_text("a host name")).to_be_visible()
    expect(field(form, "spec.port")).to_have_value("9100")
    expect(form.get_by_text("a whole number from 1 to 65535 · default: 9100")).to_be_visible()
    expect(field(form, "spec.duplex")).to_be_checked()
    for name, value in {"ns": "office", "id": "front", "spec.address": "front.example", "spec.margin": "7.25"}.items():
        field(form, name).fill(value)
    field(form, "spec.paper").select_option("A3")
    field(form, "spec.duplex").uncheck()
    field(form, "spec.bought").fill("2026-03-01T10:20:30")
    field(form, "spec.extra").fill('{"any": ["JSON"]}')
    form.get_by_role("checkbox", name="login").check()
    field(form, "spec.login.user").fill("ann")
    field(form, "spec.login.password").fill("tiger-striped")
    assert field(form, "spec.login.password").get_attribute("type") == "password"
    trays = group(form, "spec.trays")
    for paper in ("A4", "A3", "letter"):
        trays.get_by_role("button", name="Add to trays").click()
        trays.locator("select").last.select_option(paper)
    expect(trays.get_by_role("button", name="Add to trays")).to_be_disabled()
    trays.get_by_role("button", name="Remove from trays").first.click()
    group(form, "spec.cleaning").locator("select").select_option("weekly")
    field(form, "spec.cleaning.day").fill("3")
    form.get_by_role("button", name="Add to options").click()
    form.get_by_label("name in options").fill("toner")
    form.get_by_label("value in options").fill("save")
    form.get_by_role("button", name="Add to labels").click()
    form.get_by_label("name in labels").fill("floor")
    form.get_by_label("value in labels").fill("2")
    form.get_by_role("button", name="Create").click()
    expect(page.locator("#question")).to_be_hidden()
    expect(page.locator("#question")).to_be_empty()  # no secret stays in the page
    made = api.get(f"{PRINTERS}/front").raise_for_status().json()
    spec = made["spec"]
    assert made["labels"] == {"floor": "2"}
    assert (spec["paper"], spec["duplex"], spec["margin"], spec["port"]) == ("A3", False, 7.25, 9_100)
    assert spec["trays"] == [{"paper": "A3", "sheets": 250}, {"paper": "letter", "sheets": 250}]
    assert spec["cleaning"] == {"type": "weekly", "day": 3}
    assert (spec["options"], spec["extra"]) == ({"toner": "save"}, {"any": ["JSON"]})
    assert spec["login"] == {"user": "ann", "password": "***"}
    assert spec["bought"].startswith("2026-03-01T")
    assert page_errors.errors == []


def test_all_texts_below_a_secret_are_entered_hidden(opened: tuple[Page, PageErrors]) -> None:
    page, page_errors = opened
    go(page, "objects")
    form = choose_kind(page, "printing.printer")
    for name in ("pins", "keys"):
        form.get_by_role("button", name=f"Add to {name}").click()
    form.get_by_role("checkbox", name="card").check()
    for name in ("spec.pins.0", "spec.keys.value", "spec.card.holder"):
        expect(field(form, name)).to_have_attribute("type", "password")
    expect(field(form, "spec.card.data")).to_have_css("-webkit-text-security", "disc")
    expect(form.get_by_label("name in keys")).not_to_have_attribute("type", "password")
    assert page_errors.errors == []


def test_an_administrator_reads_the_traceback_of_a_failed_operation(
    opened: tuple[Page, PageErrors], api: httpx.Client
) -> None:
    make(api, "jammed", spec={"address": "jammed.example"})
    api.post(f"{PRINTERS}/jammed/actions/clean?wait=30", json={}).raise_for_status()
    page, _ = opened
    go(page, "object/office/jammed")
    page.locator("summary", has_text="traceback").dispatch_event("click")  # a refresh can't replace it halfway
    lines = page.get_by_role("group", name="Traceback")
    expect(lines).to_contain_text('raise LookupError("no such tray")')
    for floor in ("1", "2"):  # the second refresh begins while the lines are visible
        with page.expect_request("**/jammed/changes?*"):
            api.put("/api/v1/ns/office/objects/jammed/labels", json={"labels": {"floor": floor}}).raise_for_status()
    expect(lines).to_be_visible()


def test_what_is_wrong_stands_beside_its_field_and_what_was_entered_stays(opened: tuple[Page, PageErrors]) -> None:
    page, _ = opened
    go(page, "objects?kind=printing.printer")
    page.get_by_role("button", name="New printing.printer", exact=True).click()
    form = page.locator("#question form")
    field(form, "ns").fill("office")
    field(form, "spec.address").fill("UPPER")
    field(form, "spec.port").fill("70000")
    group(form, "spec.trays").get_by_role("button", name="Add to trays").click()
    form.get_by_role("button", name="Create").click()
    wrong = form.locator(".complaint:visible")
    expect(wrong).to_have_text(
        [
            "Id must be given",
            "Address must be text of a-z 0-9 . -",
            "Port must be a whole number from 1 to 65535",
            "Paper must be one of A3, A4, letter",
        ]
    )
    expect(field(form, "id")).to_be_focused()
    expect(field(form, "spec.port")).to_have_attribute("aria-invalid", "true")
    field(form, "id").fill("none")
    field(form, "spec.port").fill("80")
    field(form, "spec.address").fill("taken")  # only the server knows that
    group(form, "spec.trays").locator("select").select_option("A4")
    form.get_by_role("button", name="Create").click()
    expect(wrong).to_contain_text(["an address that no other printer has"])
    expect(field(form, "spec.port")).to_have_value("80")
    page.locator("#question").get_by_role("button", name="Cancel").click()
    expect(page.locator("#question")).to_be_hidden()


def test_the_server_s_error_stands_beside_the_field_that_it_names(opened: tuple[Page, PageErrors]) -> None:
    page, _ = opened
    go(page, "overview")
    form = choose_kind(page, "printing.printer")
    form.get_by_role("checkbox", name="login").check()
    login = {"spec.login.user": "UPPER", "spec.login.password": "tiger-striped"}
    for name, value in {"ns": "office", "id": "p", "spec.address": "a", **login}.items():
        field(form, name).fill(value)
    form.get_by_role("button", name="Create").click()
    expect(group(form, "spec.login").locator(".complaint:visible")).to_have_text("User must be text of a-z")
    expect(field(form, "spec.login.user")).to_be_focused()
    expect(field(form, "spec.login.password")).to_have_value("tiger-striped")
    expect(form.locator(".problem")).to_have_count(0)


def test_an_action_asks_for_its_arguments_and_sends_them(opened: tuple[Page, PageErrors], api: httpx.Client) -> None:
    page, page_errors = opened
    make(api, "back", spec={"address": "back", "paper": "letter"})
    go(page, "object/office/back")
    page.get_by_role("button", name="resize…").click()
    form = page.locator("#question form")
    expect(page.locator("#question")).to_contain_text("Other paper for a printer.")
    expect(field(form, "paper").locator("option:checked")).to_have_text("letter")  # as its spec has it
    form.get_by_role("button", name="resize").click()
    expect(form.locator(".complaint:visible")).to_have_text(["Sheets must be given"])
    field(form, "paper").select_option("A3")
    field(form, "sheets").fill("12")
    field(form, "code").fill("hidden-code")
    form.get_by_role("button", name="resize").click()
    expect(page.locator(".timeline")).to_contain_text("resize")
    expect(page.locator(".who-is .badge")).to_have_text("ready")
    found = api.get("/api/v1/ns/office/operations?object=back").json()["items"]
    args = [one["args"] for one in found if one["action"] == "resize"]
    assert args == [{"paper": "A3", "sheets": 12, "code": "***"}]
    page.get_by_role("button", name="Clean", exact=True).click()
    expect(page.locator(".timeline")).to_contain_text("clean")
    assert page_errors.errors == []


def test_a_spec_is_changed_by_fields_that_begin_with_its_values_and_secrets_are_entered_again(
    opened: tuple[Page, PageErrors], api: httpx.Client
) -> None:
    page, page_errors = opened
    login = {"user": "bob", "password": "hidden-one"}
    make(api, "porch", spec={"address": "porch", "port": 9101, "login": login, "trays": [{"paper": "A3"}]})
    go(page, "object/office/porch")
    page.get_by_text("More actions").click()
    page.get_by_role("button", name="Action with arguments…").click()
    form = page.locator("#question form")
    field(form, "action").select_option("clean")
    expect(form).to_contain_text("clean declares no arguments.")
    field(form, "action").select_option("resize")
    expect(field(form, "args.paper").locator("option:checked")).to_have_text("A4")
    field(form, "args.sheets").fill("7")
    expect(field(form, "spec.port")).to_be_hidden()
    form.get_by_label("Change the spec, too").check()
    expect(field(form, "spec.port")).to_have_value("9101")
    expect(field(form, "spec.login.user")).to_have_value("bob")
    expect(field(form, "spec.login.password")).to_have_value("")
    expect(form).to_contain_text("a secret that is left out is removed")
    field(form, "spec.port").fill("70000")
    form.get_by_role("button", name="Continue").click()
    expect(form.locator(".complaint:visible")).to_have_text(
        ["Port must be a whole number from 1 to 65535", "Password must be given"]
    )
    field(form, "spec.port").fill("9102")
    field(form, "spec.login.password").fill("hidden-two")
    form.get_by_role("button", name="JSON", exact=True).click()
    assert '"port": 9102' in field(form, "spec").input_value()
    assert "hidden" not in field(form, "spec").input_value()
    form.get_by_role("button", name="Fields", exact=True).click()
    expect(field(form, "args.sheets")).to_have_value("7")
    expect(field(form, "spec.port")).to_have_value("9102")
    field(form, "spec.login.password").fill("hidden-two")
    form.get_by_role("button", name="Continue").click()
    expect(page.locator("#question")).to_be_hidden()
    expect(page.locator(".who-is .badge")).to_have_text("ready")
    expect(page.locator(".card-spec [data-field=port]")).to_contain_text("9102")
    found = api.get("/api/v1/ns/office/objects/porch").json()["spec"]
    assert (found["port"], found["trays"][0]["paper"], found["login"]["user"]) == (9102, "A3", "bob")
    assert page_errors.errors == []


def test_an_action_on_many_asks_for_its_arguments_once(opened: tuple[Page, PageErrors], api: httpx.Client) -> None:
    page, _ = opened
    for name in ("many-1", "many-2"):
        make(api, name, spec={"address": name})
    go(page, "objects?kind=printing.printer&q=many")
    for name in ("many-1", "many-2"):
        page.get_by_role("checkbox", name=f"Select office/{name}").click()
    page.locator(".bulk").get_by_role("button", name="resize").click()
    form = page.locator("#question form")
    field(form, "paper").select_option("A4")
    field(form, "sheets").fill("1")
    form.get_by_role("button", name="resize").click()
    expect(page.locator("#question")).to_be_hidden()
    page.locator("#action").get_by_role("button", name="Resize 2 printers").click()
    expect(page.locator(".notice [data-ended=true]")).to_have_text("2 of 2 done")


def test_lists_and_pages_have_the_columns_that_the_kind_names(
    opened: tuple[Page, PageErrors], api: httpx.Client
) -> None:
    page, page_errors = opened
    spec = {"address": "hall.example", "login": {"user": "bob", "password": "hidden-one"}, "trays": [{"paper": "A4"}]}
    make(api, "hall", spec=spec, labels={"floor": "7"})
    make(api, "page-1", "printing.sheet", parent="hall", spec={"pages": 2})
    go(page, "objects?kind=printing.printer&q=hall")
    row = page.locator(".vrow", has_text="hall")
    expect(page.locator(".vhead")).to_contain_text("network address")
    expect(page.locator(".vhead")).to_contain_text("floor")
    expect(row).to_contain_text("hall.example")
    expect(row).to_contain_text("A4")
    go(page, "objects?kind=printing.sheet")
    expect(page.locator(".vhead")).not_to_contain_text("network address")
    go(page, "object/office/hall")
    expect(page.locator(".summary")).to_contain_text("network address")
    expect(page.locator(".summary")).to_contain_text("hall.example")
    shown = page.locator(".card-spec .record").first
    expect(shown).to_contain_text("a host name")
    expect(shown.locator("[data-field=password]")).to_have_text("secret, not shown")
    expect(shown.locator("[data-field=port]")).to_contain_text("9100")
    expect(page.locator(".card-children")).to_contain_text("page-1")
    expect(page.locator(".state.here")).to_contain_text("ready")
    assert "hidden-one" not in page.content()
    assert page_errors.errors == []


def test_a_domain_without_a_module_has_a_view_with_its_kinds_and_lifecycles(
    opened: tuple[Page, PageErrors], api: httpx.Client
) -> None:
    page, page_errors = opened
    make(api, "attic", spec={"address": "attic.example"})
    page.get_by_role("button", name="More ▾").click()
    page.locator("#more-domains").get_by_role("link", name="printing").click()
    expect(page.get_by_role("heading", name="printing", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="New printing.sheet")).to_be_visible()
    expect(page.locator("tr", has_text="attic")).to_contain_text("attic.example")
    ready = page.locator(".card-lifecycle [data-state=ready] .count")
    expect(ready).not_to_be_empty()
    count = int(str(ready.text_content()))
    assert count == len(api.get(f"{PRINTERS}?kind=printing.printer&state=ready").json()["items"])
    page.get_by_role("button", name="New printing.printer").click()
    form = page.locator("#question form")
    for name, value in {"ns": "office", "id": "cellar", "spec.address": "cellar.example"}.items():
        field(form, name).fill(value)
    form.get_by_role("button", name="Create").click()
    expect(page.locator("tr", has_text="cellar")).to_contain_text("ready")
    expect(ready).to_have_text(str(count + 1))
    assert page_errors.errors == []


def test_a_kind_is_found_with_keys_alone(opened: tuple[Page, PageErrors]) -> None:
    page, _ = opened
    go(page, "overview")
    page.get_by_role("button", name="New object", exact=True).press("Enter")
    page.keyboard.type("printing sheet")
    expect(page.locator(".choices li")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    expect(page.locator("[data-creates='printing.sheet']")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#question h2")).to_have_text("New printing.sheet")
    page.keyboard.press("Escape")
    expect(page.locator("#question")).to_be_hidden()


@pytest.mark.parametrize("theme", in_long_form(["dark", "light"], short=["light"]))
def test_a_form_can_be_used_by_everybody_and_fits_on_a_phone(
    browser: Browser, server: Served, axe: str, theme: str
) -> None:
    with signed_in(browser, server.url, server.token, theme=theme, width=390, height=844) as (_, page, _):
        page.evaluate(axe)
        go(page, "objects")
        page.get_by_role("button", name="New object", exact=True).click()
        expect(page.locator(".choices li").first).to_be_visible()
        assert page.evaluate(AUDIT) == []
        page.locator("[data-creates='printing.printer']").click()
        form = page.locator("#question form")
        form.get_by_role("checkbox", name="login").check()
        for name in ("trays", "options", "labels"):
            form.get_by_role("button", name=f"Add to {name}").click()
        group(form, "spec.cleaning").locator("select").select_option("weekly")
        form.get_by_role("button", name="Create").click()
        expect(form.locator(".complaint:visible").first).to_be_visible()
        assert page.evaluate(AUDIT) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate("(one => one.scrollWidth - one.clientWidth)(document.querySelector('#question'))") <= 0


class Leaf(Struct, tag="leaf"):
    size: int


class Branch(Struct, tag="branch"):
    leaves: list[Leaf] = []


class Every(Struct, kw_only=True):
    """Every type that a schema may have."""

    text: str = "a"
    level: Literal[1, 2, 3] = 2
    on: bool | None = None
    amount: Decimal | None = None
    day: date | None = None
    at: Annotated[datetime, Meta(tz=True)] | None = None
    lasts: timedelta | None = None
    pair: tuple[int, str] = (1, "x")
    grid: list[list[int]] = []
    names: set[str] = set()
    counts: dict[str, int] = {}
    either: int | str | None = None
    tree: Leaf | Branch | None = None
    limits: dict[str, Leaf] | None = None
    size: int | None = 7
    made: Leaf | None = msgspec.field(default_factory=lambda: Leaf(1))
    anything: Any = None
    inner: "Every | None" = None


GIVEN = (
    Every(),
    Every(text="", level=3, on=False, amount=Decimal("1.50"), day=date(2026, 11, 16), lasts=timedelta(minutes=90)),
    Every(at=datetime(2026, 11, 16, 12, 30, 5, tzinfo=UTC), pair=(0, ""), grid=[[1, 2], [], [3]]),
    Every(names={"one"}, counts={"a b": 0, "c.d": -1}, either=0, on=True),
    Every(either="0", tree=Branch([Leaf(1), Leaf(2)]), limits={"x": Leaf(0)}, anything=[None, {"a": 1.5}]),
    Every(size=None, tree=Leaf(9), inner=Every(text="deep")),
)


def test_a_form_of_any_type_reads_what_it_was_given(opened: tuple[Page, PageErrors]) -> None:
    page, page_errors = opened
    for value in GIVEN:
        complaints, read = page.evaluate(
            """async ([schema, value]) => {
                const { partOf } = await import("/console/ui/schema-groups.js");
                const complaints = [];
                const read = partOf(schema, { path: [], label: "", required: true, value }).read(complaints);
                return [complaints, read];
            }""",
            [value_type(Every).schema, msgspec.to_builtins(value)],
        )
        assert complaints == [], value
        assert msgspec.convert(read, Every) == value
    assert page_errors.errors == []
