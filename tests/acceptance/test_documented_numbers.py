"""Numbers in the README and the documentation are those of their sources: constants, settings, tables, figures.

tests/unit/bench/test_figures.py compares docs/figures.md and the table of the README, and
tests/integration/domains/mci/test_tumblebug_endpoints.py the counts of CB-Tumblebug's endpoints.
"""

import re
import tomllib
from pathlib import Path

import pytest

from bench import kept
from bench.figures import shown
from stateward import documents
from stateward.access import tokens
from stateward.agents import agent_requests, connection, messages
from stateward.aio import coalescer
from stateward.config import describe
from stateward.domains.edge import model as edge_model
from stateward.domains.edge.agents import connections as edge_connections
from stateward.domains.edge.agents import controller_lease
from stateward.domains.leases import host_service
from stateward.domains.mci.control import reconciler
from stateward.domains.mci.deployment_records import DEFAULT_LIMIT, LIMITS
from stateward.domains.mci.handlers import cloud_vm_handlers
from stateward.domains.mci.remote import access_keys, vm_shells
from stateward.domains.ovc import model as ovc_model
from stateward.domains.systems.nodes import node_records
from stateward.domains.systems.secrets import secret_model
from stateward.drivers.process import ssh_server
from stateward.engine import provider_calls
from stateward.engine.worker import lease, worker
from stateward.plugin.registry import installed
from stateward.server import run
from stateward.server.live import feeds
from stateward.store.sqlite import connections as sqlite_connections
from tests.acceptance import test_blazar_tempest
from tests.simulation import test_simulation
from tools import setup

ROOT = Path(__file__).parents[2]
DOCS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])
WORDS = {"three": 3, "five": 5, "fifteen": 15}
PYTHON = ".".join(map(str, setup.OLDEST))
CONSOLE_LOGS = (ROOT / "src/stateward/console/ui/log-view.js").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SIMULATED = re.search(r"\(or \$\(SEEDS\),(\d+)\)", (ROOT / "Makefile").read_text("utf-8"))


def console_constant(name: str) -> int:
    found = re.search(rf"const {name} = ([\d_]+);", CONSOLE_LOGS)
    assert found is not None
    return int(found[1])


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", (ROOT / page).read_text("utf-8"))


CLAIMS = [
    ("README.md", "is {} lines, and a package", "fifteen"),
    ("README.md", "`make run` needs Python {} or newer", PYTHON),
    ("README.md", "installs up to {} packages", len(set(setup.PROGRAMS.values()))),
    ("README.md", "all {} API tests of its tempest plugin", test_blazar_tempest.TESTS),
    ("docs/leases.md", "All {} API tests of Blazar's own tempest", test_blazar_tempest.TESTS),
    ("docs/promises.md", "all {} API tests of Blazar's tempest", test_blazar_tempest.TESTS),
    ("docs/promises.md", "the suite runs {}, and", test_simulation.WORLDS),
    ("docs/promises.md", "`make simulate` {} or as many", SIMULATED and SIMULATED[1]),
    ("docs/own-domain.md", "## 1. {} lines", "Fifteen"),
    ("docs/decisions/004-setup.md", "a machine that has Python {} and make", PYTHON),
    ("docs/howto/install.md", "It needs Python {} or newer", PYTHON),
    ("deploy/README.md", "handlers have {} seconds to end", "three"),
    ("deploy/systemd/stateward.service", "handlers {} s to end", worker.SHUTDOWN_GRACE_S),
    ("deploy/systemd/stateward.service", "Calls have {} s to be answered", run.SHUTDOWN_TIMEOUT_S),
    ("docs/cli.md", "runs have {} seconds to end", "three"),
    ("docs/howto/upgrade.md", "cannot finish in {} seconds", "three"),
    ("docs/howto/operate.md", "finishes what it can in {} seconds", "three"),
    ("docs/howto/upgrade.md", "until its lease ({} seconds)", lease.LEASE_S),
    ("docs/howto/operate.md", "after its lease ({} seconds)", lease.LEASE_S),
    ("deploy/README.md", "after its lease ({} seconds)", lease.LEASE_S),
    ("docs/howto/job.md", "cancelled meanwhile (for {} seconds)", coalescer.CALL_END_TIMEOUT_S),
    ("docs/howto/job.md", "The latest {} are kept", provider_calls.MAX_CALLS_KEPT),
    ("docs/decisions/005-engine.md", "the log ({} MiB, then some)", sqlite_connections.LOG_BYTES >> 20),
    ("docs/console.md", "the last {} bytes", console_constant("READ_BYTES")),
    ("docs/console.md", "the newest {} lines", console_constant("MAX_LINES")),
    ("docs/edge.md", "at most the last {} characters", messages.MAX_ANSWER_CHARS),
    ("docs/edge.md", "An agent works on {} such requests", agent_requests.MAX_WAITING),
    ("docs/edge.md", "Each has a lease ({} s)", controller_lease.CONTROLLER_LEASE_S),
    ("docs/edge.md", "names the first {} of them", edge_model.MAX_LISTED_ORPHANS),
    ("docs/edge.md", "the names of the first {} things", edge_model.MAX_LISTED_THINGS),
    ("docs/edge.md", "shows up to {} held agents", edge_connections.MAX_HELD_AGENTS),
    ("docs/leases.md", "the name of a property has at most {} characters", host_service.MAX_KEY_LENGTH),
    *(
        ("docs/mci.md", f"| {name} | {limit.regions} | {{}} |", limit.vms)
        for name, limit in {**LIMITS, "any other": DEFAULT_LIMIT}.items()
    ),
    ("docs/mci.md", "does not show the result within {} seconds", cloud_vm_handlers.CONCLUDE_WITHIN_S),
    ("docs/mci.md", "at least {} random bytes", access_keys.SECRET_BYTES),
    ("docs/mci.md", "have at most {} connections", vm_shells.MAX_SESSIONS),
    ("docs/mci.md", "lists each connection about every {} seconds", reconciler.RECONCILE_INTERVAL_S),
    ("docs/ovc.md", "A machine has at most {} disks", ovc_model.MAX_DISKS),
    ("docs/systems.md", "A file has at most {} values", documents.MOST),
    ("docs/systems.md", "is at most {} levels deep", documents.DEEPEST),
    ("docs/systems.md", "It is a text of at most {} ", secret_model.MAX_CHARS),
    ("docs/systems.md", "(the logs of {} instances of a run)", node_records.MAX_KEPT_LOGS),
    ("docs/systems.md", "An agent works on {} such requests", agent_requests.MAX_WAITING),
    ("docs/systems.md", "(from a node, {} bytes)", messages.MAX_ANSWER_CHARS),
    ("docs/threats.md", "{} random bytes, compared in constant", tokens.SECRET_BYTES),
    ("docs/threats.md", "a token follows {} operations", feeds.FOLLOWED_PER_TOKEN),
    ("docs/threats.md", "and an agent {} requests", agent_requests.MAX_WAITING),
    ("docs/threats.md", "cut off at {} entries", connection.MAX_INVENTORY_ITEMS),
    ("docs/threats.md", "a machine has at most {} connections", ssh_server.MAX_CONNECTIONS),
    ("docs/threats.md", "Up to {} more have not logged in", ssh_server.MAX_STARTUPS),
]


@pytest.mark.parametrize(("page", "claim", "value"), CLAIMS, ids=lambda value: str(value)[:60])
def test_a_number_is_that_of_its_source(page: str, claim: str, value: object) -> None:
    number = f"{value:,.10g}" if isinstance(value, int | float) else str(value)
    assert claim.format(number) in text_of(page)


def test_handlers_have_as_long_to_end_as_the_pages_say_in_words() -> None:
    assert WORDS["three"] == worker.SHUTDOWN_GRACE_S


@pytest.mark.parametrize(("page", "language"), [("README.md", "python"), ("docs/own-domain.md", "python acme_lamp.py")])
def test_the_shortest_domain_has_as_many_lines_as_the_pages_say(page: str, language: str) -> None:
    found = re.search(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    assert len([line for line in found[1].splitlines() if line]) == WORDS["fifteen"]


def test_there_are_as_many_built_in_domains_as_the_readme_says() -> None:
    listed = re.findall(r"^\| (\w+) \| [^|]+, \*", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    entry_points = PROJECT["entry-points"]["stateward.domains"]
    assert sorted(listed) == sorted(entry_points)
    assert len(listed) == WORDS["five"]


def test_the_oldest_python_is_the_one_that_the_package_requires() -> None:
    assert PROJECT["requires-python"] == f">={PYTHON}"


def test_defaults_of_settings_are_those_of_the_tables() -> None:
    defaults = {name: default for name, default, _ in describe(installed().sections)}
    found = 0
    for page in DOCS:
        for names, number in re.findall(
            r"^\| ((?:`\w+`(?:, )?)+) \|[^|]*\(([\d.]+)[;)]", page.read_text("utf-8"), re.MULTILINE
        ):
            for name in re.findall(r"`(\w+)`", names):
                if str(defaults.get(name, "")).replace(".", "").isdigit():
                    found += 1
                    assert float(number) == float(str(defaults[name])), (page.name, name)
    assert found >= 10


def test_figures_in_the_text_are_those_that_are_kept() -> None:
    figures = [one.value for run in kept.load().runs.values() for one in run.figures]
    known = {shown(value) for value in figures} | {f"{value * 100:.1f} percent" for value in figures}
    linked = [
        (page.name, number)
        for page in DOCS
        for number in re.findall(r"\[(\d[\d.,]*(?: percent)?)[^]]*\]\([^)]*figures\.md\)", page.read_text("utf-8"))
    ]
    assert linked
    assert [one for one in linked if one[1] not in known] == []
