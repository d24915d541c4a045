"""An MCI of more VMs than a page of the API holds: every figure is the server's, and the pages stay small."""

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.browser import PageErrors
from tests.console.sample_objects import FLEET_NS, LARGE_MCI
from tests.console.server_process import ConsoleServer, run_console_server

VMS = 4_100
MAX_NODES = 5_000
SEEN_PX = 4_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    with run_console_server(tmp_path_factory.mktemp("server") / "data", "--vms", str(VMS)) as found:
        yield found


@pytest.fixture
def api(server: ConsoleServer) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {server.token}"}
    with httpx.Client(base_url=f"{server.url}/api/v1", headers=headers) as client:
        yield client


@pytest.fixture
def card(opened: tuple[Page, PageErrors]) -> Locator:
    """The card of the large MCI."""
    page, _ = opened
    page.evaluate("location.hash = '#/mci'")
    return page.locator(f'[data-mci="{LARGE_MCI}"]')


def counted(api: httpx.Client, by: str, **only: str | list[str]) -> dict[str, int]:
    """Return how many VMs of the MCI the server counts, by the values of a field."""
    query = {"by": by, "kind": "mci.vm", "parent": LARGE_MCI, **only}
    rows = api.get(f"/ns/{FLEET_NS}/counts", params=query).json()["rows"]
    return {"/".join(filter(None, row["values"])): row["count"] for row in rows}


def legend(place: Locator) -> dict[str, int]:
    """Return the numbers of the first legend in a place, by state."""
    entries = place.locator(".legend").first.locator("li").all()
    numbers = [str(one.locator("b").text_content()) for one in entries]
    texts = [str(one.text_content()) for one in entries]
    return {text.replace(number, "").strip(): number_in(number) for text, number in zip(texts, numbers, strict=True)}


def groups(place: Locator) -> dict[str, int]:
    """Return the numbers of VMs in the groups of a list."""
    shown = place.locator(":scope > li").all()
    return {str(one.get_attribute("data-group")): number_in(one.locator(".total").first.inner_text()) for one in shown}


def number_in(text: str) -> int:
    return int(re.sub(r"\D", "", text))


def nodes(page: Page) -> int:
    found: int = page.evaluate("document.querySelectorAll('*').length")
    return found


def test_title_legend_subgroups_and_regions_agree_with_the_server(card: Locator, api: httpx.Client) -> None:
    states = counted(api, "state")
    assert sum(states.values()) == VMS
    expect(card.locator(".status-text")).to_have_text(
        f"Partial-Running:{states['Running']} (R:{states['Running']}/{VMS})"
    )
    assert legend(card) == states
    assert groups(card.locator(".groups").first) == counted(api, "label.subgroup")
    group = card.locator('[data-group="web"]')
    assert legend(group) == counted(api, "state", label="subgroup=web")
    group.locator("summary").first.click()
    expect(group.locator(".groups > li")).to_have_count(8)
    assert groups(group.locator(".groups")) == counted(api, "label.provider,label.region", label="subgroup=web")


def test_a_region_unfolds_to_its_vms_of_which_only_the_visible_ones_are_in_the_page(
    card: Locator, api: httpx.Client, opened: tuple[Page, PageErrors]
) -> None:
    page, page_errors = opened
    group = card.locator('[data-group="web"]')
    group.locator("summary").first.click()
    region = group.locator('[data-group="aws/us-east-1"]')
    region.locator("summary").first.click()
    labels = ["subgroup=web", "provider=aws", "region=us-east-1"]
    (total,) = counted(api, "label.region", label=labels).values()
    expect(region.locator(".vfoot")).to_have_text(f"{total} VMs")
    last = api.get(f"/ns/{FLEET_NS}/objects", params={"parent": LARGE_MCI, "label": labels, "limit": 1_000}).json()
    name = last["items"][-1]["spec"]["name"]
    for _ in range(4):  # each end reads a further page
        region.locator(".vbody").evaluate("body => body.scrollTo(0, body.scrollHeight)")
        page.wait_for_timeout(100)
    expect(region.get_by_text(name, exact=True)).to_be_visible()
    assert region.locator(".vrow").count() < 60
    assert nodes(page) < MAX_NODES
    assert page.evaluate("document.documentElement.scrollHeight") < SEEN_PX
    assert page_errors.errors == []


def test_figures_follow_what_happens_to_the_vms(card: Locator, api: httpx.Client) -> None:
    expect(card.locator(".status-text")).to_contain_text(f"/{VMS})")
    before = legend(card)["Running"]
    running = api.get(f"/ns/{FLEET_NS}/objects", params={"parent": LARGE_MCI, "state": "Running", "limit": 3}).json()
    for one in running["items"]:
        assert api.post(f"/ns/{FLEET_NS}/objects/{one['id']}/actions/suspend", json={}).status_code == 202
    number = card.locator(".legend").first.locator("li", has_text="Running").locator("b")
    expect(number).to_have_text(f"{before - 3:,}")
    expect(card.locator(".status-text")).to_contain_text(f"(R:{before - 3}/{VMS})")


def test_vms_without_an_mci_are_counted_by_the_server(opened: tuple[Page, PageErrors], card: Locator) -> None:
    page, _ = opened
    expect(card).to_be_visible()
    expect(page.get_by_text("400 VMs belong to no MCI")).to_be_visible()


FAILED = {"Failed", "ERROR", "UpdateError", "failed", "degraded"}
UNKNOWN = {"Undefined", "Offline"}


def test_the_overview_counts_what_has_not_ended_and_agrees_with_its_map(
    opened: tuple[Page, PageErrors], api: httpx.Client
) -> None:
    page, page_errors = opened
    final = {(kind["kind"], one["state"]) for kind in api.get("/kinds").json() for one in kind["states"]
             if one["state_class"] == "final"}  # fmt: skip
    rows = [row for ns in ("demo", FLEET_NS) for row in api.get(f"/ns/{ns}/counts").json()["rows"]]
    living = [row for row in rows if tuple(row["values"]) not in final]
    ended = sum(row["count"] for row in rows) - sum(row["count"] for row in living)
    assert ended > 1, "the sample has ended objects: terminated VMs, a finished deploy"
    page.evaluate("location.hash = '#/overview'")
    expect(page.locator("canvas[data-loaded]")).to_be_visible()
    names, numbers = (page.locator(f".number > {part}").all_inner_texts() for part in ("span", "b"))
    tiles = dict(zip(names, numbers, strict=True))
    shown = legend(page.locator(".card-fleet-map"))
    assert number_in(tiles["objects"]) == sum(row["count"] for row in living)
    assert shown["ended"] == ended
    for name, states in (("failed", FAILED), ("unknown", UNKNOWN)):
        expected = sum(row["count"] for row in living if row["values"][1] in states)
        assert (number_in(tiles[name]), shown[name]) == (expected, expected)
    assert number_in(tiles["healthy"]) == shown["healthy"]
    assert page.locator("canvas").get_attribute("data-cells") == str(sum(row["count"] for row in rows))
    assert page_errors.errors == []


def test_the_overview_has_the_last_hour_when_it_opens(opened: tuple[Page, PageErrors]) -> None:
    page, _ = opened
    page.evaluate("location.hash = '#/overview'")
    page.reload()
    expect(page.locator(".card-latest .line")).to_have_count(13)
    expect(page.locator(".spark .hour")).to_have_text(re.compile(r"^[1-9][\d,]* in the last hour$"))


def test_the_page_of_an_object_with_many_parts_has_the_numbers_of_the_server(
    opened: tuple[Page, PageErrors], api: httpx.Client
) -> None:
    page, _ = opened
    page.evaluate(f"location.hash = '#/object/{FLEET_NS}/{LARGE_MCI}'")
    children = page.locator(".card-children")
    expect(children.get_by_text("and 4,050 more")).to_be_visible()
    assert legend(children) == counted(api, "state")
    assert nodes(page) < MAX_NODES


def test_views_of_domains_count_with_the_server(opened: tuple[Page, PageErrors], api: httpx.Client) -> None:
    page, _ = opened
    page.evaluate("location.hash = '#/ovc'")
    disks = {"by": "state", "kind": "ovc.disk"}
    rows = api.get("/ns/demo/counts", params=disks).json()["rows"]
    expect(page.locator(".card-disks .about")).to_have_text(str(sum(row["count"] for row in rows)))
    assert legend(page.locator(".card-disks")) == {row["values"][0]: row["count"] for row in rows}
    page.evaluate("location.hash = '#/edge'")
    oslo = page.locator("tr", has=page.get_by_role("link", name="oslo", exact=True))
    expect(oslo).to_contain_text("1 cluster, 1 app")
