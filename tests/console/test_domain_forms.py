"""The domains' own forms: errors beside the field, the plan, and a command that creates the same as the button."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import yaml
from msgspec import Struct
from playwright.sync_api import Locator, Page, expect

from tests.console.browser import PageErrors
from tests.console.test_domains import go
from tests.console.test_sending import run, shown
from tests.integration.server.server_processes import Served, served

CREATED_ANEW = ("uid", "revision", "id")
"""Fields that differ between two objects of the same request."""
LONG = "x" * 101
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBjpzVSrWOpirOhVBUmrBzGEbmD2uiwg99Zdk0SRZNuK ann"


class Form(Struct, frozen=True):
    """A form with values, one that is wrong, and what is said then."""

    what: str
    kind: str
    values: dict[str, str]
    names: tuple[str, str]
    plan: str = "Nothing has been created yet."
    wrong: tuple[str, str, str] | None = None
    name: str = "name"


NAME_RULE = "Name must be a name of small letters, digits and "
OVC_RULE = ("name", LONG, "Name must be 1 to 100 characters long")
EDGE = (
    Form(
        "cloudlet", "edge.cloudlet", {"missing": "leave", "orphans": "remove"}, ("oslo", "bergen"),
        "waits there until an agent connects", ("name", "Not a name", NAME_RULE),
    ),
    Form(
        "cluster", "edge.clusterinst", {"cloudlet": "oslo", "nodes": "2"}, ("k1", "k2"),
        "The agent of oslo then starts 2 nodes.", ("name", "-k", NAME_RULE),
    ),
    Form("app instance", "edge.appinst", {"cluster": "oslo:ready"}, ("app.one", "app.two"), "starts it.", name="app"),
)  # fmt: skip
OVC = (
    Form("node", "ovc.node", {"driver": "simulated"}, ("node 1", "it's 2"), wrong=OVC_RULE),
    Form("account", "ovc.account", {"days": "3"}, ("acme", "-dash"), wrong=("days", "9999999", "Days in the recycle")),
    Form("cloudspace", "ovc.cloudspace", {"account": "acme (*"}, ("prod", "test"), wrong=OVC_RULE),
    Form("image", "ovc.image", {"account": "acme (*", "source": "tick"}, ("guest", "other"), wrong=OVC_RULE),
    Form("disk", "ovc.disk", {"account": "acme (*", "gib": "2"}, ("data", "$HOME"), wrong=OVC_RULE),
    Form(
        "machine", "ovc.vm", {"cloudspace": "prod (*", "image": "guest (*", "gib": "2", "size": "small"}, ("db", "web"),
        "its boot disk of 2 GiB is created", ("size", "vast", "Size must be"),
    ),
)  # fmt: skip
LEASES = (
    Form(
        "host", "leases.host", {"vcpus": "4", "memory_mb": "512"}, ("rack-1", "rack 2"),
        wrong=("name", "rack/1", "Name must be a text"),
    ),
    Form(
        "lease", "leases.lease",
        {"start_date": "2031-01-01T10:00", "end_date": "2031-01-01T12:00", "properties": '[">=", "$vcpus", "2"]'},
        ("day", "night"), "It fits: rack", ("properties", "[nonsense", "Required properties must be"),
    ),
)  # fmt: skip
SYSTEMS = (
    Form(
        "system", "systems.system", {"backend": "simulated"}, ("billing", "sales"),
        "It has no services until", ("name", "Not a name", NAME_RULE),
    ),
)  # fmt: skip
MCI = (
    Form(
        "MCI", "mci.mci",
        {"publicKey": KEY, "group": "web", "subGroupSize": "2", "commonSpec": "aws+ap-northeast-2+t3.nano"},
        ("shop", "mall"), "Then its 2 VMs in 1 subgroup are created",
        ("name", "1shop", "Name must be 1 to 100 letters, digits, - and +, of which the first is a letter"),
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("forms") / "data") as found:
        yield found


def enter(form: Locator, name: str, value: str) -> None:
    """Fill in a field; a choice by its value, or by the beginning of its text."""
    found = form.locator(f"[name={name}]")
    if found.evaluate("one => one.tagName") != "SELECT":
        found.fill(value)
    elif value.endswith("*"):
        option = found.locator("option").filter(has_text=value[:-1])
        found.select_option(option.get_attribute("value"))
    else:
        found.select_option(value)


def objects(api: httpx.Client, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(f"/api/v1/ns/default/objects?kind={kind}&limit=1000").json()["items"]
    return found


def spec_of(one: dict[str, Any], name: str) -> Any:
    """Return the spec of an object as if it had another name, without what is created anew each time."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items() if key not in CREATED_ANEW}
        if isinstance(value, list):
            return [plain(each) for each in value]
        return "NAME" if value == name else value

    return plain(one["spec"]), {key: plain(value) for key, value in one["labels"].items()}


@pytest.mark.parametrize(
    ("view", "forms"), [("edge", EDGE), ("ovc", OVC), ("leases", LEASES), ("systems", SYSTEMS), ("mci", MCI)]
)
def test_a_domains_form_complains_plans_and_shows_a_command_that_does_what_its_button_does(
    opened: tuple[Page, PageErrors], server: Served, api: httpx.Client, view: str, forms: tuple[Form, ...]
) -> None:
    page, page_errors = opened
    api.post("/tumblebug/ns", json={"name": "default"})
    for app in ("one", "two"):
        api.put(f"/api/v1/edge/ns/default/apps/{app}", json={"command": "sleep 60"})
    go(page, view)
    for one in forms:
        if one.name == "app":  # it needs a cluster, which without an agent only an administrator can create
            ready = {"name": "ready"}
            path = "/api/v1/edge/ns/default/cloudlets/oslo/clusterinsts?ignore=agent&ignore=transient"
            api.post(path, json=ready).raise_for_status()
        page.get_by_role("button", name=f"New {one.what}", exact=True).click()
        form = page.locator("#question form")
        expect(form.locator("[name=ns]")).to_have_value("default")
        for name, value in {**one.values, one.name: one.names[0]}.items():
            enter(form, name, value)
        if one.wrong:
            name, value, said = one.wrong
            before = form.locator(f"[name={name}]").input_value()
            enter(form, name, value)
            form.get_by_role("button", name="Create", exact=True).click()
            expect(form.locator(".complaint:visible")).to_have_text(re.compile("^" + re.escape(said)))
            expect(form.locator(f"[name={name}]")).to_be_focused()
            expect(form.locator(f"[name={name}]")).to_have_attribute("aria-invalid", "true")
            enter(form, name, before)
        form.get_by_role("button", name="Plan", exact=True).click()
        expect(form.locator(".plan")).to_contain_text(one.plan)
        expect(form.locator(".plan")).to_contain_text(f"This creates the {one.kind} ")
        assert objects(api, one.kind) == []
        form.get_by_text("What will be sent").click()
        document = yaml.safe_load(shown(form, "YAML"))
        command = shown(form, "Command")
        assert command.startswith("stateward ")
        run(command, server)
        (by_command,) = objects(api, one.kind)
        enter(form, one.name, one.names[1])
        with page.expect_request(lambda asked: asked.method == "POST") as sent:
            form.get_by_role("button", name="Create", exact=True).click()
        expect(page.locator("#question")).to_be_hidden()
        made = next(each for each in objects(api, one.kind) if each["id"] != by_command["id"])
        last = [name.removeprefix("app.") for name in one.names]
        assert spec_of(made, last[1]) == spec_of(by_command, last[0])
        assert spec_of({"spec": sent.value.post_data_json, "labels": {}}, last[1]) == spec_of(
            {"spec": document, "labels": {}}, last[0]
        )
    refused = [text for text in page_errors.errors if "status of 4" not in text]
    assert refused == []


def test_an_error_in_a_repeated_part_stands_beside_its_field_and_a_new_namespace_is_created_by_the_command(
    opened: tuple[Page, PageErrors], server: Served, api: httpx.Client
) -> None:
    page, _ = opened
    go(page, "mci")
    page.get_by_role("button", name="New MCI", exact=True).click()
    form = page.locator("#question form")
    form.get_by_role("button", name="Add a subgroup").click()
    for name, value in {"ns": "fresh", "name": "wide", "group": "a", "group-2": "1b"}.items():
        enter(form, name, value)
    for name in ("commonSpec", "commonSpec-2"):
        enter(form, name, "aws+ap-northeast-2+t3.nano")
    form.get_by_role("button", name="Plan", exact=True).click()
    expect(form.locator(".plan")).to_contain_text("The namespace fresh does not exist yet.")
    expect(form.locator(".plan")).to_contain_text("the MCI wide with 3 VMs in 2 subgroups")
    assert "fresh" not in api.get("/tumblebug/ns?option=id").json()["output"]
    form.get_by_role("button", name="Create", exact=True).click()
    expect(form.locator(".complaint:visible")).to_have_text(re.compile("^Subgroup must be "))
    expect(form.locator("[name=group-2]")).to_be_focused()
    expect(form.locator("[name=name]")).to_have_value("wide")
    for name, value in {"ns": "fresher", "group-2": "b"}.items():
        enter(form, name, value)
    form.get_by_text("What will be sent").click()
    run(shown(form, "Command"), server)
    assert [one["id"] for one in api.get("/api/v1/ns/fresher/objects?kind=mci.mci").json()["items"]] == ["wide"]


def test_a_name_that_exists_is_told_beside_the_name(opened: tuple[Page, PageErrors], api: httpx.Client) -> None:
    page, _ = opened
    api.post("/api/v1/systems/names", json={"name": "taken", "backend": "simulated"}).raise_for_status()
    go(page, "systems")
    page.get_by_role("button", name="New system", exact=True).click()
    form = page.locator("#question form")
    enter(form, "ns", "names")
    enter(form, "name", "taken")
    form.get_by_role("button", name="Plan", exact=True).click()
    expect(form.locator(".complaint:visible")).to_contain_text("'taken' exists in namespace 'names' already")
    expect(form.locator("[name=name]")).to_be_focused()
    form.get_by_role("button", name="Cancel").click()
    api.post("/api/v1/edge/ns/names/cloudlets", json={"name": "taken-too"}).raise_for_status()
    go(page, "edge")
    page.get_by_role("button", name="New cloudlet", exact=True).click()
    enter(form, "ns", "names")
    enter(form, "name", "taken-too")
    for button in ("Plan", "Create"):
        form.get_by_role("button", name=button, exact=True).click()
        expect(form.locator(".complaint:visible")).to_have_text("taken-too exists already, and is Init")
    enter(form, "name", "free")
    form.get_by_role("button", name="Create", exact=True).click()
    expect(page.locator(".toast")).to_have_text("cloudlet free is being created.")
