"""What runs, in the console: logs, commands, jobs, nodes and secrets, with real processes of both domains."""

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.console.browser import PageErrors, signed_in
from tests.console.test_accessibility import LAPTOP, misfits, problems
from tests.console.test_domains import filled, go
from tests.console.test_sending import run, shown
from tests.integration.domains.edge.process_deployment import NS, ProcessDeployment, open_deployment
from tests.integration.server.server_processes import PATIENT, Served

MARKUP = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
TALK = rf"""
printf '\033[31mred\033[0m {MARKUP} & \033]0;title\007\342\200\256end\r\n10%%\r99%%\n'
while [ ! -e go ]; do sleep 0.05; done; echo second; exec sleep 600
"""
DEFINITION: dict[str, Any] = {
    "services": {"talker": {"command": ["sh", "-c", TALK], "instances": 2, "drain": 0.05, "grace": 0.05}},
    "jobs": {
        "report": {"command": ["sh", "-c", "echo the report is made"], "schedule": "0 3 * * *"},
        "endless": {"command": ["sleep", "600"], "grace": 0.05},
    },
}
DEFINITION_TEXT = msgspec.json.encode(DEFINITION).decode()
"""JSON is YAML."""

FIRST = rf"red {MARKUP} & \u{{202e}}end"
SHOP = "/api/v1/systems/default/shop"
MUNICH = "/cloudlets/munich"
CLUSTER = f"{MUNICH}/clusterinsts/c1"


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessDeployment]:
    with open_deployment(tmp_path_factory.mktemp("field"), "edge,systems") as opened:
        opened.call("POST", "/cloudlets", {"name": "munich"})
        yield opened
        delete_system(opened.client)


@pytest.fixture(scope="module")
def server(deployment: ProcessDeployment) -> Served:
    return deployment.server


@pytest.fixture(scope="module")
def shared_page(browser: Browser, server: Served) -> Iterator[tuple[Page, PageErrors]]:
    """One page for all tests: a new one takes seconds."""
    with signed_in(browser, server.url, server.token) as (_, page, page_errors):
        yield page, page_errors


@pytest.fixture
def opened(shared_page: tuple[Page, PageErrors], server: Served) -> tuple[Page, PageErrors]:
    """The page, loaded anew."""
    page, page_errors = shared_page
    page.goto("about:blank")
    page.goto(server.url)
    expect(page.locator("#live .dot.live")).to_be_visible()
    page_errors.errors.clear()
    return page, page_errors


@pytest.fixture(scope="module")
def talker(server: Served) -> Iterator[httpx.Client]:
    """A system whose instances write something, and more when they are told to."""
    with server.client() as client:
        client.post("/api/v1/systems/default", json={"name": "shop"}).raise_for_status()
        eventually(lambda: client.get(SHOP).json()["state"] == "stable")
        client.post(f"{SHOP}/deploys", json={"definition": DEFINITION_TEXT}).raise_for_status()
        eventually(lambda: [one["state"] for one in client.get(SHOP).json()["services"]] == ["stable"])
        yield client


def delete_system(client: httpx.Client) -> None:
    """End the processes of the system, if there is one."""
    if client.get(SHOP).status_code == httpx.codes.OK:
        client.delete(SHOP, params={"force": "true"}).raise_for_status()
        eventually(lambda: client.get(SHOP).status_code == httpx.codes.NOT_FOUND)


def eventually(find: Callable[[], Any]) -> Any:
    """Wait until something is found, and return it."""
    end = time.monotonic() + PATIENT
    while not (found := find()):
        assert time.monotonic() < end
        time.sleep(0.03)
    return found


def open_object(page: Page, ns: str, name: str) -> tuple[Locator, Locator]:
    """Open the page of an object; returns its logs and the form for commands."""
    page.evaluate("([ns, id]) => { location.hash = `#/object/${ns}/${encodeURIComponent(id)}` }", [ns, name])
    expect(page.locator("main[data-view=object] h1")).to_have_text(name)
    return page.locator(".card-logs"), page.locator(".card-run-a-command")


def page_faults(page_errors: PageErrors) -> list[str]:
    """Return the errors of the page itself, without those of requests: the page of what was removed reads it again."""
    return [one for one in page_errors.errors if not one.startswith("Failed to load resource")]


# --- a service -------------------------------------------------------------------------------------------------------


def test_logs_are_followed_as_text_alone_and_a_command_runs_as_it_was_previewed(
    opened: tuple[Page, PageErrors], talker: httpx.Client, server: Served, axe: str, tmp_path: Path
) -> None:
    page, page_errors = opened
    logs, form = open_object(page, "default", "shop:talker")
    lines = logs.locator(".log-line > span:last-child")
    expect(lines.filter(has_text=FIRST)).to_have_count(2)
    expect(lines.filter(has_text="99%")).to_have_text(["99%", "99%"])
    expect(logs.locator(".log-name:visible").first).to_be_visible()
    page.evaluate(axe)
    assert (problems(page), misfits(page)) == ([], [])
    page.set_viewport_size(LAPTOP)

    first, second = logs.get_by_label("instance").locator("option").all_text_contents()[1:]
    logs.get_by_label("instance").select_option(second)
    expect(lines.filter(has_text=FIRST)).to_have_count(1)
    expect(logs.locator(".log-name:visible")).to_have_count(0)
    logs.get_by_text("As a command").click()
    assert f"--instance {second}" in shown(logs, "Command")

    line = """sh -c 'echo "<b>$0</b>"; echo wrong >&2; touch go; exit 3' "it's \\"here\\"" ''"""
    form.get_by_role("textbox", name="command").fill(f"{line} '")
    expect(form.get_by_text("a ' is not closed")).to_be_visible()
    expect(form.get_by_role("button", name="Run")).to_be_disabled()
    form.get_by_role("textbox", name="command").fill(line)
    words = shlex.split(line)
    expect(form.locator("#command-words code")).to_have_text([one or "''" for one in words])
    form.get_by_label("instance").select_option(second)
    form.get_by_role("button", name="Run").click()
    expect(form).to_contain_text(f"Exit status 3. instance: {second}.")
    expect(form.get_by_role("group", name="Output")).to_have_text('<b>it\'s "here"</b>\n')
    expect(form.get_by_role("group", name="Standard error")).to_have_text("wrong\n")
    expect(lines.last).to_have_text("second")
    assert (problems(page), misfits(page)) == ([], [])
    page.set_viewport_size(LAPTOP)

    form.get_by_role("textbox", name="command").fill("touch 'go'")
    form.get_by_label("instance").select_option(first)
    form.get_by_text("As a command").click()
    run(shown(form, "Command"), server)
    logs.get_by_label("instance").select_option("")
    expect(lines.filter(has_text="second")).to_have_count(2)
    with page.expect_download() as download:
        logs.get_by_role("button", name="Download logs").click()
    download.value.save_as(tmp_path / "saved")
    assert f"{first}  second\n" in (tmp_path / "saved").read_text("utf-8")
    assert (page.evaluate("window.hacked ?? 0"), page.evaluate("window.violations")) == (0, [])
    assert page_faults(page_errors) == []


def test_nothing_is_polled_while_the_tab_is_hidden(opened: tuple[Page, PageErrors], talker: httpx.Client) -> None:
    page, _ = opened
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/logs?" in request.url else None)
    page.evaluate("""() => {
      const [set, counts] = [window.setTimeout, window.rounds = { passed: 0 }];
      window.setTimeout = (act, ms, ...rest) => (ms === 2000 && (counts.passed += 1), set(act, ms, ...rest));
    }""")
    logs, _ = open_object(page, "default", "shop:talker")
    expect(logs.get_by_role("status")).to_have_text("following")
    eventually(lambda: page.evaluate("window.rounds.passed") and len(asked) > 1)
    page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
    counts = [len(asked) for _ in range(2) if wait_for_round(page)]  # the first ends what was being read
    assert counts[0] == counts[1]
    with page.expect_request("**/logs?*"):
        page.evaluate("delete document.hidden")


def wait_for_round(page: Page) -> bool:
    """Wait until the next round of polling has passed, whether it has read something or not."""
    passed = page.evaluate("window.rounds.passed")
    page.wait_for_function("passed => window.rounds.passed > passed", arg=passed)
    return True


def test_only_those_with_the_right_see_the_form_for_commands(
    browser: Browser, talker: httpx.Client, server: Served
) -> None:
    body = {"name": "ops", "role": "operator", "namespaces": ["default"]}
    token = talker.post("/api/v1/tokens", json=body).json()["token"]
    with signed_in(browser, server.url, token) as (_, page, page_errors):
        expect(page.locator("#live .dot.live")).to_be_visible()
        logs, form = open_object(page, "default", "shop:talker")
        expect(logs.locator(".log-line").first).to_be_visible()
        expect(form).to_have_count(0)
        assert page_faults(page_errors) == []


# --- jobs, nodes and secrets -----------------------------------------------------------------------------------------


def test_jobs_are_run_suspended_resumed_and_cancelled_and_a_run_has_logs(
    opened: tuple[Page, PageErrors], talker: httpx.Client
) -> None:
    page, page_errors = opened
    go(page, "systems")
    jobs = page.locator(".card-jobs-of-shop")
    talker.post(f"{SHOP}/jobs/resume", json={"path": "/report"})
    report, endless = (jobs.locator("tbody tr", has_text=name) for name in ("report", "endless"))
    expect(report.locator("[data-column=schedule]")).to_have_text("0 3 * * *")
    expect(report.locator("[data-column=next]")).to_contain_text("in ")
    report.get_by_role("button", name="Suspend").click()
    expect(report.locator("[data-column=state]")).to_contain_text("suspended")
    expect(report.locator("[data-column=next]")).to_have_text("none")
    report.get_by_role("button", name="Resume").click()
    expect(report.locator("[data-column=state]")).to_contain_text("active")
    for row in (report, endless):
        row.get_by_role("button", name="Run", exact=True).click()
    expect(report.locator("[data-column='last runs']")).to_contain_text("succeeded")
    endless.get_by_role("button", name="Cancel").first.click()
    expect(endless.locator("[data-column='last runs']")).to_contain_text("cancelled")
    report.locator("[data-column='last runs']").get_by_role("link").first.click()
    logs = page.locator(".card-logs")
    expect(logs.locator(".log-line")).to_contain_text("the report is made")
    expect(logs.get_by_role("status")).to_have_text("not followed")
    expect(page.locator(".card-run-a-command")).to_have_count(0)
    assert page_faults(page_errors) == []


def test_nodes_and_secrets_are_tables_with_their_actions_and_no_value_stays_in_the_page(
    opened: tuple[Page, PageErrors], talker: httpx.Client, axe: str
) -> None:
    page, page_errors = opened
    base = "/api/v1/systems/default/-"
    talker.delete(f"{base}/nodes/host-1")
    talker.delete(f"{base}/secrets/db")
    talker.post(f"{base}/nodes", json={"name": "host-1", "labels": {"zone": "a"}}).raise_for_status()
    talker.post(f"{base}/secrets", json={"name": "db", "value": "tiger-striped"}).raise_for_status()
    go(page, "systems")
    node, secret = (page.get_by_role("table", name=name).locator("tbody tr") for name in ("Nodes", "Secrets"))
    expect(node.locator("[data-column=labels]")).to_have_text("zone=a")
    expect(node.locator("[data-column=agent]")).to_have_text("not connected")
    expect(node.locator("button")).to_have_text(["Delete"])  # it has never connected
    expect(secret.locator("[data-column=version]")).to_have_text("1")
    expect(secret.locator("[data-column='used by']")).to_have_text("none")
    expect(page.locator(".toast, .notice")).to_have_count(0)
    page.evaluate(axe)
    assert (problems(page), misfits(page)) == ([], [])
    page.set_viewport_size(LAPTOP)

    secret.get_by_role("button", name="Update…").click()
    value = page.locator("#question [name=value]")
    assert [value.get_attribute(one) for one in ("type", "autocomplete")] == ["password", "new-password"]
    filled(page, "Update", value="lion-maned")
    expect(secret.locator("[data-column=version]")).to_have_text("2")
    assert "lion" not in page.content()
    page.get_by_role("button", name="Rotate the key of default").click()
    page.locator("#question").get_by_role("button", name="Rotate the key").click()
    page.get_by_role("link", name="see how it goes").click()
    expect(page.locator(".who-is .badge")).to_have_text("rotated")
    page.go_back()
    for row in (secret, node):
        row.get_by_role("button", name="Delete").click()
        page.locator("#action[open] button.primary").click()
        expect(row).to_have_count(0)
    assert page_faults(page_errors) == []


# --- an app instance -------------------------------------------------------------------------------------------------


def run_app(deployment: ProcessDeployment, sign: Path) -> None:
    """Have an app run that writes something, and more when a file is there."""
    if deployment.agent is None or deployment.agent.process.poll() is not None:
        deployment.work()
    deployment.until(MUNICH, "Ready")
    if deployment.has(f"{CLUSTER}/appinsts/web"):
        return
    command = f"echo '{MARKUP}'; while [ ! -e {sign} ]; do sleep 0.05; done; echo second; sleep 1000"
    deployment.call("PUT", "/apps/web", {"command": command}, 200)
    deployment.call("POST", f"{MUNICH}/clusterinsts", {"name": "c1"})
    deployment.until(CLUSTER, "Ready")
    deployment.call("POST", f"{CLUSTER}/appinsts", {"app": "web"})
    deployment.until(f"{CLUSTER}/appinsts/web", "Ready")


def test_an_app_shows_its_logs_runs_commands_and_tells_when_its_agent_is_gone(
    opened: tuple[Page, PageErrors], deployment: ProcessDeployment
) -> None:
    page, _ = opened
    sign = deployment.shown / "written"
    run_app(deployment, sign)
    logs, form = open_object(page, NS, "munich:c1:web")
    expect(logs.locator(".log-line").filter(has_text=MARKUP).first).to_be_visible()
    health = page.locator(".card-health-and-load")
    expect(health).to_contain_text("No alerts.")
    expect(health).to_contain_text("MiB", timeout=20_000)  # it is read again every ten seconds
    form.get_by_role("textbox", name="command").fill("sh -c 'echo here; exit 3'")
    form.get_by_role("button", name="Run").click()
    expect(form).to_contain_text("Exit status 3.")
    expect(form.get_by_role("group", name="Output")).to_have_text("here\n")
    form.get_by_role("textbox", name="command").fill(f"test -e '{deployment.shown}'")
    form.get_by_text("As a command").click()
    run(shown(form, "Command"), deployment.server)
    sign.touch()
    expect(logs.locator(".log-line").last).to_contain_text("second")
    deployment.kill_agent()
    expect(health).to_contain_text("load unknown")
    expect(logs.get_by_role("alert")).to_contain_text("the agent of cloudlet munich is not connected")
    expect(logs.get_by_role("status")).to_have_text("not available now")
    expect(logs.locator(".log-line").last).to_contain_text("second")  # what was read stays
    form.get_by_role("button", name="Run").click()
    expect(form.get_by_role("alert")).to_contain_text("is not connected")
    assert page.evaluate("window.hacked ?? 0") == 0


# --- the parts -------------------------------------------------------------------------------------------------------

QUOTED = ("", "  ls   -l ", r"a\ b 'c d' \"", r'"a\"b\\c\$d\n" e""f', "''", "'a'\"b\"c", "a#b", "日本 'é'\tx")
PLAIN = "$HOME * | ; && >x"
ODD = ("'", 'a "', "a\\")


def test_a_line_is_split_as_a_shell_does_it_and_nothing_is_expanded(opened: tuple[Page, PageErrors]) -> None:
    page, _ = opened
    split = """async (lines) => {
      const { splitWords } = await import("/console/core/shell-words.js");
      return lines.map(splitWords);
    }"""
    by_shell = [{"words": words_of_shell(one), "error": ""} for one in QUOTED]
    assert page.evaluate(split, QUOTED) == by_shell
    assert page.evaluate(split, [PLAIN]) == [{"words": PLAIN.split(), "error": ""}]
    assert all(one["error"] for one in page.evaluate(split, ODD))


def words_of_shell(line: str) -> list[str]:
    """Return the words that a shell finds in a line."""
    script = f"""for one in {line}; do printf '%s\\0' "$one"; done"""
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def test_the_page_keeps_the_newest_lines_alone_and_joins_what_comes_in_pieces(opened: tuple[Page, PageErrors]) -> None:
    page, _ = opened
    kept = page.evaluate("""async () => {
      const { outputCards } = await import("/console/ui/log-view.js");
      const texts = ["begun\\x1b[3", "1mred\\n".repeat(1), "line\\n".repeat(9_000), "x".repeat(4_500)];
      const signal = new AbortController().signal;
      let poll;
      const read = async ({ after, most }) => most === 1
        ? [{ name: "a", text: "", next: texts.length }]
        : [{ name: "a", text: texts[after ?? 0] ?? "", next: Math.min(texts.length, (after ?? 0) + 1) }];
      const source = { ns: "n", name: "p", noun: "part", read, command: () => ({ command: "x" }) };
      const [card] = outputCards({ signal, every: (_, act) => { poll = act; } }, source);
      const log = card.querySelector(".log");
      await poll();
      const first = log.textContent;
      for (let turn = 0; turn < 8; turn += 1) await poll();
      return [first, log.childElementCount, log.lastElementChild.textContent.length];
    }""")
    assert kept == ["a  begun\x1b[3".replace("\x1b[", ""), 3_000, len("a  ") + 4_500]
