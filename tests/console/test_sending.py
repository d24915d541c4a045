"""What a form will send: the plan, the YAML, and a command that does the same."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml
from playwright.sync_api import Locator, Page, expect

from tests.console.browser import PageErrors
from tests.console.server_process import ROOT
from tests.console.test_any_kind import choose_kind, field, go
from tests.integration.server.server_processes import Served, served
from tests.integration.server.server_processes import run as run_program

NAMES = 'It\'s "quoted" $HOME `date` \\ 日本'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("sending") / "data"
    with served(folder, "--domain", "tests.console.printing:domain", environ={"PYTHONPATH": str(ROOT)}) as found:
        yield found


def shown(form: Locator, name: str) -> str:
    return form.get_by_role("region", name=name).locator("pre").text_content() or ""


def run(command: str, server: Served) -> None:
    """Run a command as a user who has copied it: a shell reads it. One without a document in it runs in a fork."""
    environ = {"STATEWARD_SERVER": server.url, "STATEWARD_TOKEN": server.token}
    if "\n" in command:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = in_shell(command, {**os.environ, "PATH": path, **environ})
    else:
        read = in_shell(f"""stateward() {{ printf '%s\\0' "$@"; }}\n{command}""", dict(os.environ))
        done = run_program(*read.stdout.split("\0")[:-1], environ=environ)
    assert done.returncode == 0, done.stdout + done.stderr


def in_shell(script: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, timeout=60, check=False)


def fill_in(page: Page, name: str) -> Locator:
    """Fill in the form of a printer, with a label that a shell and YAML could take for something else."""
    go(page, "objects")
    form = choose_kind(page, "printing.printer")
    for one, value in {"ns": "office", "id": name, "spec.address": "true", "spec.port": "9101"}.items():
        field(form, one).fill(value)
    form.get_by_role("button", name="Add to labels").click()
    form.get_by_label("name in labels").fill("motto")
    form.get_by_label("value in labels").fill(NAMES)
    return form


def test_the_plan_says_what_would_be_created_and_what_is_in_the_way(
    opened: tuple[Page, PageErrors], api: httpx.Client
) -> None:
    page, _ = opened
    form = fill_in(page, "planned")
    form.get_by_role("button", name="Plan", exact=True).click()
    expect(form.locator(".plan")).to_contain_text("creates the printing.printer planned in the namespace office")
    expect(form.locator(".plan")).to_contain_text("setting up")
    assert api.get("/api/v1/ns/office/objects/planned").status_code == 404
    field(form, "id").fill("-no")
    form.get_by_role("button", name="Plan", exact=True).click()
    expect(form.locator(".complaint:visible")).to_contain_text("Id must be a name of letters, digits")
    expect(field(form, "id")).to_be_focused()
    expect(field(form, "spec.port")).to_have_value("9101")


def test_yaml_and_command_are_exactly_what_the_form_sends(
    opened: tuple[Page, PageErrors], server: Served, api: httpx.Client
) -> None:
    page, page_errors = opened
    form = fill_in(page, "by-command")
    form.get_by_text("What will be sent").click()
    document = yaml.safe_load(shown(form, "YAML"))
    assert (document["id"], document["spec"]["address"], document["labels"]) == ("by-command", "true", {"motto": NAMES})
    run(shown(form, "Command"), server)
    field(form, "id").fill("by-form")
    form.get_by_role("button", name="Create").click()
    expect(page.locator("#question")).to_be_hidden()
    made = [api.get(f"/api/v1/ns/office/objects/{name}").json() for name in ("by-command", "by-form")]
    assert len({str((one["kind"], one["spec"], one["labels"], one["parent"])) for one in made}) == 1
    assert made[0]["labels"] == {"motto": NAMES}
    assert page_errors.errors == []


def test_secrets_are_not_shown_in_what_will_be_sent(opened: tuple[Page, PageErrors]) -> None:
    page, _ = opened
    form = fill_in(page, "secret")
    form.get_by_role("checkbox", name="login").check()
    field(form, "spec.login.user").fill("ann")
    field(form, "spec.login.password").fill("tiger-striped")
    form.get_by_text("What will be sent").click()
    assert yaml.safe_load(shown(form, "YAML"))["spec"]["login"] == {"user": "ann", "password": "***"}
    assert "tiger" not in shown(form, "Command")
