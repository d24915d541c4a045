"""The domains' views on a real server: create forms, buttons of actions, and the domain's own data."""

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.console.browser import AUDIT, PageErrors
from tests.integration.server.server_processes import Served, served

DEFINITION = """
services:
  web: {command: run v1, instances: 2}
  store:
    services:
      api: {command: run v1}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served") / "data") as found:
        yield found


def go(page: Page, view: str) -> None:
    page.evaluate("view => { location.hash = '#/' + view }", view)
    expect(page.locator(f"main[data-view={view}] h1")).to_be_visible()


def made(page: Page, what: str, **values: str) -> None:
    """Create an object with its form."""
    page.get_by_role("button", name=f"New {what}", exact=True).click()
    filled(page, "Create", **values)


def filled(page: Page, yes: str, **values: str) -> None:
    """Fill in a form, and send it until it is accepted."""
    form = page.locator("#question form")
    for name, value in values.items():
        field: Locator = form.locator(f"[name={name}]")
        field.select_option(value) if field.evaluate("one => one.tagName") == "SELECT" else field.fill(value)
    form.get_by_role("button", name=yes, exact=True).click()
    expect(page.locator("#question")).to_be_hidden()


def test_an_mci_is_made_with_a_form_and_what_its_buttons_do_reaches_its_vms(opened: tuple[Page, PageErrors]) -> None:
    page, page_errors = opened
    go(page, "mci")
    made(page, "MCI", ns="mine", name="shop", subGroupSize="2", commonSpec="aws+ap-northeast-2+t3.nano")
    shop = page.locator("[data-mci=shop]")
    expect(shop.locator(".status-text")).to_have_text("Running:2 (R:2/2)")
    shop.get_by_role("button", name="scale out…").click()
    filled(page, "Scale out", numVMsToAdd="1")
    expect(shop.locator(".matrix th .sum")).to_have_text("Running:3 (R:3/3)")
    shop.get_by_role("button", name="Suspend", exact=True).click()
    page.locator("#action").get_by_role("button", name="Suspend 3 VMs").click()
    expect(shop.locator(".status-text")).to_have_text("Suspended:3 (R:0/3)")
    expect(shop.locator(".vm", has_text="Suspended")).to_have_count(3)
    assert page_errors.errors == []


def test_an_mci_of_several_subgroups_is_made_with_one_form(opened: tuple[Page, PageErrors], api: httpx.Client) -> None:
    page, page_errors = opened
    go(page, "mci")
    page.get_by_role("button", name="New MCI", exact=True).click()
    another = page.locator("#question form").get_by_role("button", name="Add a subgroup")
    another.click()
    another.click()
    sizes = [page.locator(f"#question [name=subGroupSize{turn}]") for turn in ("", "-2", "-3")]
    assert [one.input_value() for one in sizes] == ["2", "1", "1"]
    expect(page.locator("#question [name=group-3]")).to_have_value("")
    places = {"": "aws+ap-northeast-2+t3.nano", "-2": "gcp+europe-west1+e2-micro", "-3": "aws+us-east-1+t3.nano"}
    values = {"ns": "wide", "name": "wide"}
    for number, (turn, place) in enumerate(places.items()):
        values |= {f"group{turn}": f"g{number}", f"commonSpec{turn}": place}
    filled(page, "Create", **{**values, "subGroupSize-3": "3"})
    expect(page.locator("[data-mci=wide] .status-text")).to_have_text("Running:6 (R:6/6)")
    groups = api.get("/tumblebug/ns/wide/mci/wide/subgroup").json()["output"]
    in_each = [api.get(f"/tumblebug/ns/wide/mci/wide/subgroup/{one}").json()["output"] for one in groups]
    assert (groups, [len(one) for one in in_each]) == (["g0", "g1", "g2"], [2, 1, 3])
    assert page_errors.errors == []


def test_a_group_action_on_mcis_reaches_their_vms_too(opened: tuple[Page, PageErrors], api: httpx.Client) -> None:
    page, page_errors = opened
    api.post("/tumblebug/ns", json={"name": "many"}).raise_for_status()
    group = {"name": "g", "commonSpec": "aws+ap-northeast-2+t3.nano", "commonImage": "ubuntu22.04"}
    for name in ("one", "two"):
        body = {"name": name, "vm": [group]}
        api.post("/tumblebug/ns/many/mciDynamic?wait=60", json=body).raise_for_status()
    page.evaluate("location.hash = '#/objects?kind=mci.mci'")
    for name in ("one", "two"):
        page.get_by_role("checkbox", name=f"Select many/{name}").click()
    page.locator(".bulk").get_by_role("button", name="suspend").click()
    page.locator("#action").get_by_role("button", name="Suspend 2 VMs").click()
    expect(page.locator(".notice [data-ended=true]")).to_have_text(["done", "done"])
    states = {one["state"] for one in api.get("/api/v1/ns/many/objects?kind=mci.vm").json()["items"]}
    assert states == {"Suspended"}
    assert page_errors.errors == []


def test_a_form_shows_why_it_is_refused_and_a_deploy_is_seen_in_the_tree(opened: tuple[Page, PageErrors]) -> None:
    page, _ = opened
    go(page, "systems")
    made(page, "system", ns="mine", name="billing", backend="simulated")
    system = page.locator("[data-system=billing]")
    system.get_by_role("button", name="deploy…").click()
    page.locator("#question [name=definition]").fill("nonsense: [")
    page.locator("#question").get_by_role("button", name="Deploy", exact=True).click()
    expect(page.locator("#question .problem")).to_contain_text("400")
    filled(page, "Deploy", definition=DEFINITION)
    expect(system.locator(".folder")).to_have_text("store/")
    expect(system.locator(".tree li", has_text="web").last).to_contain_text("2 of 2 instances")
    expect(system.get_by_text("No locks")).to_be_visible()
    expect(system.locator(".card-changes-of-billing .badge")).to_have_text("succeeded")
    system.get_by_role("button", name="deploy…").click()
    filled(page, "Deploy", definition=f"{DEFINITION}jobs: {{report: {{command: run v1, hook: after-deploy}}}}")
    jobs = system.locator(".card-jobs-of-billing")
    expect(jobs.locator(".badge")).to_have_text(["active", "succeeded"])
    expect(jobs).to_contain_text("after-deploy")
    jobs.get_by_role("link", name="report", exact=True).click()
    expect(page.get_by_role("button", name="run").first).to_be_visible()


def test_a_deploy_a_teardown_and_a_delete_of_a_system_tell_what_goes_before_they_remove_it(
    opened: tuple[Page, PageErrors], api: httpx.Client
) -> None:
    page, page_errors = opened
    go(page, "systems")
    made(page, "system", ns="mine", name="kiosk", backend="simulated")
    system, asked = page.locator("[data-system=kiosk]"), page.locator("#action[open]")
    system.get_by_role("button", name="deploy…").click()
    filled(page, "Deploy", definition=DEFINITION)  # nothing goes: the form was the question
    expect(system.locator(".card-changes-of-kiosk .badge")).to_have_text("succeeded")
    system.get_by_role("button", name="deploy…").click()
    filled(page, "Deploy", definition="services: {web: {command: run v1, instances: 2}}")
    expect(asked).to_contain_text("1 instance is stopped")
    asked.get_by_role("button", name="Cancel").click()
    system.get_by_role("button", name="teardown…").click()
    filled(page, "Teardown")
    expect(asked).to_contain_text("3 instances are stopped")
    expect(asked).to_contain_text("This cannot be undone.")
    assert len(api.get("/api/v1/systems/mine/kiosk").json()["services"]) == 2
    asked.get_by_role("button", name="Teardown 2 services").click()
    expect(system.get_by_text("No services deployed yet.")).to_be_visible()
    expect(system.locator(".card-changes-of-kiosk .badge").first).to_have_text("succeeded")
    go(page, "objects")
    page.get_by_role("checkbox", name="Select mine/kiosk", exact=True).first.click()
    page.get_by_role("group", name="Actions").get_by_role("button", name="Delete…").click()
    expect(asked).to_contain_text("This cannot be undone.")
    asked.get_by_role("button", name="Cancel").click()
    page.evaluate("location.hash = '#/object/mine/kiosk'")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(asked).to_contain_text("1 system")
    assert page_errors.errors == []
    asked.get_by_role("button", name="Delete kiosk").click()
    expect(page.get_by_text("kiosk no longer exists.")).to_be_visible()


def test_a_form_can_be_used_by_everybody(opened: tuple[Page, PageErrors], axe: str) -> None:
    page, page_errors = opened
    go(page, "mci")
    page.evaluate(axe)
    page.get_by_role("button", name="New MCI").click()
    expect(page.locator("#question [name=ns]")).to_be_focused()
    assert page.evaluate(AUDIT) == []
    page.keyboard.press("Escape")
    expect(page.locator("#question")).to_be_hidden()
    assert (page_errors.errors, page_errors.outside, page.evaluate("window.violations")) == ([], [], [])


def test_a_lease_is_made_with_a_form_and_a_click_on_its_bar_tells_all_of_it(opened: tuple[Page, PageErrors]) -> None:
    page, page_errors = opened
    go(page, "leases")
    made(page, "host", ns="mine", name="rack-1")
    made(page, "lease", ns="mine", name="gpu-day")
    bar = page.locator(".gantt .bar")
    expect(page.locator("tr", has_text="gpu-day")).to_contain_text("ACTIVE")
    expect(bar).to_have_count(1)
    bar.focus()
    page.keyboard.press("Enter")
    told = page.locator(".lease")
    expect(told).to_contain_text("active: rack-1")
    expect(told).to_contain_text("end lease")
    page.get_by_role("button", name="update…").click()
    filled(page, "Update", name="gpu-night")
    expect(page.locator("tr", has_text="gpu-night")).to_contain_text("ACTIVE")
    page.evaluate("location.hash = '#/object/mine/host-rack-1'")
    asked = page.locator("#action[open]")
    page.get_by_role("button", name="Fail", exact=True).click()
    expect(asked).to_contain_text("1 lease gets another host, if one is free")
    asked.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(asked.locator(".problem")).to_contain_text("host rack-1 is promised to")
    expect(asked.get_by_role("button", name="Remove rack-1")).to_be_disabled()
    asked.get_by_role("button", name="Cancel").click()
    assert page_errors.errors == []


def test_a_machine_goes_to_the_recycle_bin_with_its_disk_and_comes_back(
    opened: tuple[Page, PageErrors], api: httpx.Client
) -> None:
    page, page_errors = opened
    wanted(api, "nodes", name="node 1")
    account = wanted(api, "accounts", name="acme")
    space = wanted(api, "cloudspaces", name="prod", account=account)
    image = wanted(api, "images", name="tick", account=account)
    go(page, "ovc")
    expect(page.locator(".tree")).to_contain_text("node 1ENABLED")
    made(page, "machine", ns="mine", name="ledger", cloudspace=space, image=image)
    line = page.locator(".tree li > div", has=page.get_by_role("link", name="ledger", exact=True))
    expect(line).to_contain_text("RUNNING")
    line.get_by_role("link").click()
    page.get_by_role("button", name="Delete (can be restored)", exact=True).click()
    page.locator("#action").get_by_role("button", name="Delete ledger").click()
    expect(page.locator(".who-is .badge")).to_have_text("DELETED")
    go(page, "ovc")
    row = page.locator("tr", has=page.get_by_role("link", name="ledger", exact=True))
    expect(row).to_contain_text("then destroy")
    expect(page.locator("tr", has_text="ledger-boot")).to_contain_text("as long as ledger")
    row.get_by_role("button", name="Restore").click()
    expect(page.get_by_text("The bin is empty.")).to_be_visible()
    assert page_errors.errors == []


def test_what_happens_while_a_view_is_being_read_is_shown(opened: tuple[Page, PageErrors], api: httpx.Client) -> None:
    page, page_errors = opened
    node = wanted(api, "nodes", name="node 2")

    def late(route: Route) -> None:
        answer = route.fetch()
        api.post(f"/api/v1/ns/mine/objects/{node}/actions/maintenance", params={"wait": 60}).raise_for_status()
        last = api.get("/api/v1/ns/mine/objects/" + node + "/history").json()["items"][-1]["seq"]
        page.wait_for_function(
            "last => Number(document.querySelector('#live').innerText.replace(/\\D/g, '')) >= last", arg=last
        )
        route.fulfill(response=answer)

    page.route(re.compile(r"/ns/mine/objects\?.*kind=ovc\.node"), late, times=1)
    go(page, "ovc")
    expect(page.locator(".tree")).to_contain_text("node 2MAINTENANCE")
    assert page_errors.errors == []


def wanted(api: httpx.Client, path: str, **body: str) -> str:
    """Create an object of the domain, and return its id when it exists."""
    asked = api.post(f"/api/v1/ovc/mine/{path}", json=body).raise_for_status().json()
    if asked["operation"]:
        with api.stream("GET", f"/api/v1/ns/mine/operations/{asked['operation']}/events") as events:
            assert "succeeded" in events.read().decode()
    found: str = asked["object"]["id"]
    return found


def test_a_cloudlet_waits_for_its_agent_and_says_so_and_what_its_records_refuse_is_told_first(
    opened: tuple[Page, PageErrors], api: httpx.Client
) -> None:
    page, page_errors = opened
    go(page, "edge")
    made(page, "cloudlet", ns="mine", name="oslo")
    row = page.locator("tr", has_text="oslo")
    expect(row).to_contain_text("not connected")
    expect(row).to_contain_text("no agent has connected")
    page.evaluate("location.hash = '#/object/mine/oslo'")
    page.get_by_text("More actions").click()
    page.get_by_role("button", name="Change…").press("Enter")
    filled(page, "Change", missing="leave", orphans="remove")
    asked = page.locator("#action[open]")
    expect(asked.locator(".problem")).to_contain_text("'change'")
    asked.get_by_role("button", name="Cancel").click()
    records = "/api/v1/edge/ns/mine"
    api.put(f"{records}/autoprov/wide", json={"cloudlets": ["oslo"]}).raise_for_status()
    api.put(f"{records}/apps/games", json={"command": "sleep 60", "autoprov": "wide"}).raise_for_status()
    page.evaluate("location.hash = '#/object/mine/autoprov.wide'")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(asked.locator(".problem")).to_contain_text("games")
    expect(asked.get_by_role("button", name="Delete autoprov.wide")).to_be_disabled()
    asked.get_by_role("button", name="Cancel").click()
    page.evaluate("location.hash = '#/object/mine/app.games'")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(asked).to_contain_text("This cannot be undone.")
    asked.get_by_role("button", name="Cancel").click()
    assert page_errors.errors == []


def test_any_object_is_made_with_a_form_and_acted_on_with_arguments(opened: tuple[Page, PageErrors]) -> None:
    page, _ = opened
    go(page, "objects")
    page.get_by_role("button", name="New object", exact=True).click()
    page.get_by_role("searchbox", name="Search kinds").fill("ovc account")
    page.locator("[data-creates='ovc.account']").click()
    page.get_by_role("button", name="Add to labels").click()
    page.get_by_label("name in labels").fill("name")
    page.get_by_label("value in labels").fill("Bank")
    filled(page, "Create", ns="mine", id="bank", spec='{"name": "Bank"}')
    page.evaluate("location.hash = '#/object/mine/bank'")
    expect(page.get_by_role("heading", name="Bank")).to_be_visible()
    expect(page.locator(".who-is .badge")).to_have_text("CONFIRMED")
    page.get_by_text("More actions").click()
    page.get_by_role("button", name="Action with arguments…").click()
    page.locator("#question").get_by_role("button", name="JSON", exact=True).click()
    page.locator("#question [name=args]").fill("{no JSON")
    page.locator("#question").get_by_role("button", name="Continue").click()
    expect(page.locator("#question .complaint:visible")).to_contain_text("must be JSON")
    filled(page, "Continue", action="disable", args="{}")
    expect(page.locator(".who-is .badge")).to_have_text("DISABLED")


def test_a_secret_is_set_and_changed_by_forms_that_never_show_it(
    opened: tuple[Page, PageErrors], api: httpx.Client
) -> None:
    page, page_errors = opened
    go(page, "systems")
    page.get_by_role("button", name="New secret", exact=True).click()
    form = page.locator("#question form")
    for name, value in {"ns": "mine", "name": "db", "value": " hunter2-hunter2 "}.items():
        form.locator(f"[name={name}]").fill(value)
    form.get_by_text("What will be sent").click()
    expect(form.locator("pre").first).to_contain_text("***")
    assert "hunter2" not in form.inner_text()
    form.get_by_role("button", name="Plan", exact=True).click()
    expect(form.locator(".plan")).to_contain_text("Services of the namespace can name it")
    form.get_by_role("button", name="Create", exact=True).click()
    expect(page.locator(".card-secrets [data-column=version]")).to_have_text("1")
    page.locator(".card-secrets").get_by_role("link").first.click()
    page.get_by_role("button", name="Update…").click()
    filled(page, "Update", value="another-hunter2")
    expect(page.locator("main")).to_contain_text('"version": 2')
    assert api.get("/api/v1/systems/mine/-/secrets/db").json()["version"] == 2
    assert "hunter2" not in page.content()
    assert page_errors.errors == []
    page.get_by_role("button", name="Delete").click()
    page.locator("#action[open]").get_by_role("button", name="Delete").last.click()
    expect(page.locator("#action[open]")).to_have_count(0)
    assert api.get("/api/v1/systems/mine/-/secrets").json() == []
