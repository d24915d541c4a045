"""Definitions in YAML: their meaning, and their errors."""

import json
import posixpath
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.domains.systems.backends.backend_fields import check_backend_fields
from stateward.domains.systems.cron import parse_cron, time_zone
from stateward.domains.systems.definition import (
    BadDefinition,
    HealthCheck,
    NodePool,
    Resources,
    Rollout,
    SecretRef,
    Service,
    read,
    revision_of,
)
from stateward.errors import BadInput

ROOT = Path(__file__).parents[4]

SHOP = """\
node_pools:
  main: {nodes: 2, slots: 4}
services:
  web:
    command: python3 web.py --title 'a shop'
    instances: 3
    env: {COUNTRY: no, VERSION: 1.10, PORT_RANGE: 1:30}
    health: {http: /health, interval: 0.5}
    rollout: {max_surge: 2, max_unavailable: 1}
    node_pool: main
  store:
    services:
      api: {command: [./api, --level, 3], folder: api}
"""


def wrong(text: str) -> BadDefinition:
    with pytest.raises(BadDefinition) as caught:
        read(text, "shop.yaml")
    return caught.value


def test_a_tree_of_services_is_read_by_paths() -> None:
    tree = read(SHOP, "shop.yaml", "/srv")
    assert tree.pools == {"main": NodePool(nodes=2, slots=4)}
    assert list(tree.services) == ["/web", "/store/api"]
    assert tree.services["/web"] == Service(
        command=("python3", "web.py", "--title", "a shop"),
        instances=3,
        env={"COUNTRY": "no", "VERSION": "1.10", "PORT_RANGE": "1:30"},
        health=HealthCheck(http="/health", interval=0.5),
        rollout=Rollout(2, 1),
        node_pool="main",
    )


def test_a_folder_is_meant_from_where_the_file_stands() -> None:
    assert read(SHOP, "shop.yaml", "/srv").services["/store/api"].folder == "/srv/api"
    assert read(SHOP, "shop.yaml").services["/store/api"].folder == "api"


@pytest.mark.parametrize(("base", "allowed"), [("/srv\0", "without a NUL"), ("/" + "x" * 9_999, "at most 10000")])
def test_a_base_that_no_folder_can_have_is_refused_by_its_field(base: str, allowed: str) -> None:
    with pytest.raises(BadInput, match=allowed) as caught:
        read(SHOP, "shop.yaml", base)
    assert caught.value.field == "base"


def test_a_single_service_is_a_definition_too() -> None:
    assert read("command: ./api").services == {"/": Service(command=("./api",))}


def test_what_other_readers_guess_is_text_here() -> None:
    service = read("{command: [echo, yes, 0x10, 1e3, null, '2'], env: {A: true, B: ~}}").services["/"]
    assert service.command == ("echo", "yes", "0x10", "1e3", "null", "2")
    assert service.env == {"A": "true", "B": "~"}


@pytest.mark.parametrize(
    ("text", "line", "path", "says"),
    [
        (SHOP.replace("instances: 3", "instances: three"), 6, "services.web.instances", "a whole number, not a text"),
        (SHOP.replace("instances: 3", "instances: -1"), 6, "services.web.instances", "a whole number from 0 to"),
        (SHOP.replace("instances: 3", "instanes: 3"), 6, "services.web.instanes", "did you mean 'instances'"),
        (SHOP.replace("interval: 0.5", "interval: 0"), 8, "services.web.health.interval", "0.05"),
        (SHOP.replace("http: /health", "http: health"), 8, "services.web.health.http", "begins with /"),
        (SHOP.replace("http: /health", "tcp: true, http: /"), 8, "services.web.health", "exactly one of http, tcp"),
        (SHOP.replace("{http: /health, interval: 0.5}", "{interval: 1}"), 8, "services.web.health", "exactly one of"),
        (SHOP.replace("2, max_unavailable: 1", "0"), 9, "services.web.rollout", "max_surge and max_unavailable are 0"),
        (SHOP.replace("--title 'a shop'", "'a shop"), 5, "services.web.command", "no closing quotation"),
        (SHOP.replace("command: [./api, --level, 3], ", ""), 13, "services.store.services.api.command", "be given"),
        (SHOP.replace("api: {command", "Api: {command"), 13, "services.store.services.Api", "small letters"),
        (SHOP.replace("main: {nodes: 2", "main: {nodes: 0"), 2, "node_pools.main.nodes", "from 1 to"),
        (SHOP + "  web: {command: x}\n", 14, "services.web", "twice"),
        (SHOP.replace("      api", "      <<: {}\n      api"), 13, "services.store.services", "plain name"),
        (SHOP.replace("  store:\n", "  store:\n    node_pools: {}\n"), 12, "services.store.node_pools", "at the top"),
        (SHOP.replace("  store:\n", "  store:\n    command: x\n"), 12, "services.store.command", "field of a group"),
        ("instances: 3", 1, "instances", "says its command or image too"),
        ("command: ''", 1, "command", "given, unless there is an image"),
        ("{image: 'UP:1'}", 1, "image", "an image, such as"),
        ("{image: a, pinned: {id: b}}", 1, "pinned", "left out"),
        ("{image: a, registry_login: 'pass word'}", 1, "registry_login", "env:PREFIX"),
        ("{image: a, volumes: {data: here}}", 1, "volumes", "an absolute path"),
        ("{image: a, volumes: {data: /a/../b}}", 1, "volumes.data", "without an empty part, . and .."),
        ("{image: a, volumes: {data: /proc}}", 1, "volumes.data", "not in /dev (except /dev/shm), /proc or /sys"),
        ("{image: a, volumes: {data: /sys/fs/cgroup}}", 1, "volumes.data", "not in /dev (except /dev/shm), /proc"),
        ("{image: a, volumes: {data: /a, more: /a}}", 1, "volumes.more", "a path of its own: data has it"),
        ("{image: 'a//b'}", 1, "image", "a name of small letters"),
        ("{command: a, env: {A: " + "x" * 30_001 + "}}", 1, "env.A", "at most 30000 characters"),
        (SHOP.replace("http: /health", "http: " + "/" * 500), 8, "services.web.health.http", "and empty parts"),
        (SHOP.replace("http: /health", "http: /" + "a" * 500), 8, "services.web.health.http", "at most 500"),
        ("{image: a, user: root}", 1, "user", "the number of a user"),
        ("{image: a, capabilities: [SYS_ADMIN]}", 1, "capabilities", "CHOWN"),
        ("services: [a]", 1, "services", "services by name"),
        ("services: {a: 3}", 1, "services.a", "a mapping"),
        ("[]", 1, "", "a definition"),
        ("services:\n  a: {command: [x], instances: " + "9" * 5_000 + "}", 2, "services.a.instances", "18 characters"),
        ("services:\n  a: {command: [x], deadline: 1.0e999}", 2, "services.a.deadline", "a finite number"),
        ("", 1, "", "a definition"),
        (SHOP.replace("COUNTRY: no", r'COUNTRY: "a\0b"'), 7, "services.web.env.COUNTRY", "without a NUL"),
        (SHOP.replace("COUNTRY: no", r'"A\0B": no'), 7, "services.web.env", "without a NUL"),
        (SHOP.replace("folder: api", r'folder: "a\0"'), 13, "services.store.services.api.folder", "without a NUL"),
        (SHOP.replace("node_pool: main", r'node_pool: "\0"'), 10, "services.web.node_pool", "without a NUL"),
        (SHOP.replace("command: python3 web.py --title", r'command: "a\0" #'), 5, "services.web.command", "a NUL"),
        (SHOP.replace("http: /health", r'http: "/\n"'), 8, "services.web.health.http", "begins with /"),
        (SHOP.replace("COUNTRY: no", r'"COUNTRY\n": no'), 7, "services.web.env", "a variable's name"),
        ("a: [", 1, "", "YAML"),
        ("\tx: 1", 1, "", "YAML"),
        ("services:\n  a: &a {services: {b: *a}}", 2, "", "alias 'a' is part of what it stands for"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_by_file_line_and_field(text: str, line: int, path: str, says: str) -> None:
    error = wrong(text)
    assert error.file == "shop.yaml"
    assert error.line == line, str(error)
    assert error.path.startswith(path), str(error)
    assert says in str(error)
    assert f"shop.yaml, line {line}" in str(error)


SECRETS = """\
command: ./web
env: {MODE: fast}
secrets:
  PASSWORD: {secret: db}
  TLS_KEY: {secret: tls, as: file, path: tls.pem}
resources: {cpu: 0.5, memory: 256, pids: 20}
"""


def test_secrets_and_resources_are_read() -> None:
    found = read(SECRETS).services["/"]
    assert found.secrets == {"PASSWORD": SecretRef("db"), "TLS_KEY": SecretRef("tls", "file", "tls.pem")}
    assert found.resources == Resources(0.5, 256, 20)


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "allowed"),
    [
        ("PASSWORD:", "MODE:", 4, "secrets.MODE", "env does not set"),
        ("{secret: db}", "{secret: db, path: x}", 4, "secrets.PASSWORD.path", "as: file"),
        ("{secret: db}", "{secret: db, as: file, path: tls.pem}", 5, "secrets.TLS_KEY", "a file of its own"),
        ("path: tls.pem", "path: ../tls.pem", 5, "secrets.TLS_KEY.path", "a file name"),
        ("as: file", "as: volume", 5, "secrets.TLS_KEY.as", "env"),
        ("secret: db", "secret: DB", 4, "secrets.PASSWORD.secret", "a name of small letters"),
        ("{secret: db}", "db", 4, "secrets.PASSWORD", "an object"),
        ("cpu: 0.5", "cpu: 0", 6, "resources.cpu", "0.01"),
        ("memory: 256", "memory: 256Mi", 6, "resources.memory", "whole number"),
    ],
)
def test_a_bad_secret_or_resource_is_told_by_line_and_field(
    old: str, new: str, line: int, field: str, allowed: str
) -> None:
    error = wrong(SECRETS.replace(old, new, 1))
    assert (error.line, error.path) == (line, field)
    assert re.search(allowed, error.allowed), error.allowed


def test_the_versions_of_secrets_are_a_part_of_the_revision_if_that_is_asked_for() -> None:
    quiet = Service(command=("a",), secrets={"A": SecretRef("db")})
    asking = Service(command=("a",), secrets={"A": SecretRef("db")}, redeploy_on_secret_change=True)
    assert revision_of(quiet, {"db": 1}) == revision_of(quiet, {"db": 2})
    assert revision_of(asking, {"db": 1, "x": 1}) == revision_of(asking, {"db": 1, "x": 2})
    assert revision_of(asking, {"db": 1}) != revision_of(asking, {"db": 2})


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_and_never_breaks_the_reader(text: str) -> None:
    with suppress(BadDefinition):
        read(text)


near_path = st.text("/a.?#% é\t", max_size=12).map("/".__add__) | st.integers(490, 510).map(lambda n: "/" + "a" * n)
near_image = st.text("aA0._:/@-", max_size=20) | st.integers(120, 135).map(lambda n: "a:" + "t" * n)
near_definition = st.fixed_dictionaries(
    {"image": st.just("a") | near_image},
    optional={
        "health": st.fixed_dictionaries({"http": near_path}),
        "env": st.dictionaries(st.text("A0_-é=", max_size=4), st.text() | st.just("x" * 40_000), max_size=2),
        "volumes": st.dictionaries(st.sampled_from(["a", "b", "C"]), near_path, max_size=3),
        "user": st.text("01:", max_size=12),
        "folder": st.text(max_size=5),
        "registry_login": st.text("env:file#A/ ", max_size=10),
        "command": st.lists(st.text(max_size=5), max_size=3),
    },
)


@given(near_definition)
def test_what_is_accepted_can_be_used_and_is_stored_as_it_is_read(service: dict[str, Any]) -> None:
    try:
        found = read(json.dumps(service, ensure_ascii=False)).services["/"]
    except BadDefinition:
        return
    assert msgspec.json.decode(msgspec.json.encode(found), type=Service) == found
    repository, _, tag = (found.image or "").partition("@")[0].rpartition("/")[2].partition(":")
    assert repository
    assert len(tag) <= 128
    if found.health is not None:
        path = str(found.health.http)
        assert len(path) <= 500
        assert "//" not in path.partition("?")[0]
    assert all(len(f"{name}={value}".encode()) < 131_072 for name, value in found.env.items())
    assert all(path == posixpath.normpath(path) != "/" for path in found.volumes.values())
    assert len(set(found.volumes.values())) == len(found.volumes)


@given(st.text("0123456789*/,- \tjanmo\n", max_size=30), st.text("UTCEuropeBlin/._", max_size=20))
def test_a_schedule_is_accepted_if_it_has_a_next_time_in_its_zone(schedule: str, zone: str) -> None:
    with suppress(BadDefinition):
        job = read(json.dumps({"job": {"command": ["a"], "schedule": schedule, "time_zone": zone}})).jobs["/"]
        assert job.schedule is not None
        assert job.schedule.isprintable()
        assert parse_cron(job.schedule).next_after(0.0, time_zone(job.time_zone)) is not None


def test_instances_of_the_same_making_have_one_revision() -> None:
    one = Service(command=("a",), instances=1)
    assert revision_of(one) == revision_of(Service(command=("a",), instances=5, address=80, deadline=9))
    assert revision_of(one) != revision_of(Service(command=("a",), env={"A": "1"}))
    assert revision_of(one) != revision_of(Service(command=("b",)))


def test_the_definitions_of_the_documentation_and_the_example_can_be_read() -> None:
    page = (ROOT / "docs" / "systems.md").read_text("utf-8")
    documented = read(page.partition("```yaml\n")[2].partition("```")[0])
    shop = read((ROOT / "examples" / "shop" / "shop.yaml").read_text("utf-8"))
    assert set(documented.services) == {"/web", "/store/stock"}
    assert set(shop.services) == {"/web", "/store/stock", "/store/orders", "/clock"}
    assert documented.services["/web"].address == shop.services["/web"].address


@pytest.mark.parametrize(
    ("backend", "service", "field"),
    [
        ("local", Service(image="shop:1"), "command"),
        ("local", Service(command=("x",), image="shop:1"), "image"),
        ("local", Service(command=("x",), volumes={"data": "/data"}), "volumes"),
        ("local", Service(command=("x",), port=80), "port"),
        ("container", Service(command=("x",)), "image"),
        ("container", Service(image="shop:1", folder="/srv"), "folder"),
        ("nodes", Service(), "command"),
        ("nodes", Service(command=("x",), volumes={"data": "/data"}), "volumes"),
        ("nodes", Service(image="shop:1", folder="/srv"), "folder"),
    ],
)
def test_what_a_backend_cannot_use_is_refused_with_its_field(backend: str, service: Service, field: str) -> None:
    with pytest.raises(BadInput, match=f"^services/web.{field}: must be"):
        check_backend_fields(backend, {"/web": service})
    check_backend_fields("simulated", {"/web": service})


# --- jobs ------------------------------------------------------------------------------------------------------------

JOBS = """\
services:
  store:
    jobs:
      report:
        command: ./report --all
        schedule: "0 3 * * mon-fri"
        time_zone: Europe/Berlin
        retries: 3
        node_pool: main
        env: {LEVEL: 3}
        secrets: {PASSWORD: {secret: db}}
jobs:
  migrate: {command: ./migrate, hook: before-deploy, folder: tools}
"""


def test_jobs_stand_beside_services_with_the_fields_of_a_service() -> None:
    tree = read(JOBS, "shop.yaml", "/srv")
    assert not tree.services
    assert list(tree.jobs) == ["/store/report", "/migrate"]
    report, migrate = tree.jobs.values()
    assert (report.schedule, report.time_zone, report.retries) == ("0 3 * * mon-fri", "Europe/Berlin", 3)
    assert report.program == Service(
        command=("./report", "--all"),
        env={"LEVEL": "3"},
        secrets={"PASSWORD": SecretRef(secret="db")},
        node_pool="main",
    )
    assert (migrate.hook, migrate.program.folder) == ("before-deploy", "/srv/tools")


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("{command: x, schedule: '0 3 * *'}", "jobs.a.schedule: must be five fields"),
        ("{command: x, schedule: '61 * * * *'}", "jobs.a.schedule: must be a schedule whose minute"),
        ("{command: x, schedule: 5}", "jobs.a.schedule: must be a text"),
        ("{command: x, time_zone: Europe/Berlim}", "jobs.a.time_zone: must be a time zone of the tz database"),
        ("{command: x, hook: never}", "jobs.a.hook: must be one of after-deploy, before-deploy"),
        ("{command: x, hook: after-deploy, schedule: '* * * * *'}", "jobs.a.hook: must be given without a schedule"),
        ("{command: x, hook: after-deploy, deadline: 8000}", "jobs.a.deadline: must be at most 3600"),
        ("{command: x, concurrency: never}", "jobs.a.concurrency: must be one of allow, forbid, replace"),
        ("{command: x, retries: -1}", "jobs.a.retries: must be a whole number from 0"),
        ("{command: x, instances: 2}", "jobs.a.instances: must be left out: only a service has it"),
        ("{command: x, program: {}}", "jobs.a.program"),
        ("{schedule: '* * * * *'}", "jobs.a.command: must be given"),
        ("5", "jobs.a: must be a job: a mapping"),
    ],
)
def test_a_wrong_job_is_told_by_line_and_field(job: str, said: str) -> None:
    error = wrong(f"services: {{}}\njobs:\n  a: {job}")
    assert error.line == 3
    assert said in str(error)


@pytest.mark.parametrize("words", ["[]", "''"])
def test_a_health_check_by_command_has_a_word(words: str) -> None:
    error = wrong(f"services:\n  a: {{command: x, health: {{command: {words}}}}}")
    assert "line 2, services.a.health.command: must be a command of at least one word" in str(error)


@pytest.mark.parametrize("value", ["[]", "''", "0", "false", "null", "~", ""])
@pytest.mark.parametrize("field", ["services", "jobs", "node_pools"])
def test_a_group_whose_members_are_no_mapping_is_refused(field: str, value: str) -> None:
    error = wrong(
        f"services: {{web: {{command: x}}}}\n{field}: {value}" if field != "services" else f"services: {value}"
    )
    assert f"{field}: must be" in str(error)
    assert "by name" in str(error)


@pytest.mark.parametrize("value", ["[]", "''", "0", "false"])
def test_a_node_pool_that_is_no_mapping_is_refused(value: str) -> None:
    assert "node_pools.main" in str(wrong(f"services: {{web: {{command: x}}}}\nnode_pools: {{main: {value}}}"))


def test_a_job_has_a_name_of_its_own() -> None:
    assert "jobs.web: must be a name that no service" in str(
        wrong("services: {web: {command: x}}\njobs: {web: {command: x}}")
    )


def test_a_job_alone_stands_below_its_field() -> None:
    tree = read("job: {command: report v1, schedule: '0 3 * * *'}")
    assert (list(tree.services), list(tree.jobs), tree.pools) == ([], ["/"], None)
    assert tree.jobs["/"].program.command == ("report", "v1")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{command: x, schedule: '0 3 * * *'}", "schedule: must be a field of a service; a job alone stands below job"),
        ("{job: {command: x}, services: {}}", "services: must be left out beside job"),
        ("job: {command: x, port: 80}", "job.port: must be left out"),
        ("job: x", "job: must be a job"),
    ],
)
def test_what_is_no_job_alone_is_told(text: str, told: str) -> None:
    with pytest.raises(BadInput, match=re.escape(told)):
        read(text)
