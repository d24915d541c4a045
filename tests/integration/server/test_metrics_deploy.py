"""What `deploy/` says must be true: the metrics that it names exist, and so do the settings and the flags."""

import json
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client import Counter, Gauge, Histogram

from stateward.config import describe
from stateward.plugin.registry import installed
from stateward.server.telemetry.prometheus_metrics import Metrics
from stateward.server.telemetry.snapshot import DeploymentSnapshot
from tests.integration.server.server_processes import run

DEPLOY = Path(__file__).parents[3] / "deploy"
NAMED = re.compile(r"\bstateward_[a-z_]+")


ENDINGS = ("", "_total", "_bucket", "_count", "_sum")


class Named(NamedTuple):
    """A metric."""

    name: str
    labelnames: tuple[str, ...]


async def nothing() -> DeploymentSnapshot:
    return DeploymentSnapshot({}, [], 0, 0, 0, 0.0)


def existing() -> set[str]:
    """Return the names of all series that a server can show."""
    return {one.name + ending for one in metrics() for ending in ENDINGS}


def metrics() -> list[Named]:
    """Return all metrics, with the names of their labels."""
    made = Metrics([], nothing)
    attributes = [*vars(made).values(), *vars(made._present).values()]
    found = [one for one in attributes if isinstance(one, Counter | Gauge | Histogram)]
    return [Named(one._name, tuple(one._labelnames)) for one in found]


@pytest.mark.parametrize("file", ["grafana/stateward.json", "prometheus/stateward-alerts.yml", "postgresql.md"])
def test_every_metric_that_is_named_exists(file: str) -> None:
    named = set(NAMED.findall((DEPLOY / file).read_text()))
    assert named
    assert named - existing() == set()


@pytest.mark.parametrize("file", ["grafana/stateward.json", "prometheus/stateward-alerts.yml"])
def test_every_label_that_is_asked_for_is_one_of_the_metric(file: str) -> None:
    labels = {one.name: {*one.labelnames, "job", "instance", "le"} for one in metrics()}
    asked = re.findall(r"\b(stateward_[a-z_]+)\{([^}]*)\}", (DEPLOY / file).read_text().replace('\\"', '"'))
    assert asked
    for name, chosen in asked:
        known = next(labels[base] for ending in ENDINGS if (base := name.removesuffix(ending)) in labels)
        assert set(re.findall(r"(\w+)=~?\"", chosen)) <= known, name


def test_everything_that_is_counted_is_shown_on_the_dashboard() -> None:
    shown = (DEPLOY / "grafana" / "stateward.json").read_text()
    assert {one.name for one in metrics() if one.name not in shown} == {"stateward_journal_seq"}


def test_the_dashboard_is_json_and_its_panels_do_not_overlap() -> None:
    panels = json.loads((DEPLOY / "grafana" / "stateward.json").read_text())["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert all(x < 24 for x, _ in cells)


def test_the_settings_file_names_every_setting_with_its_default() -> None:
    settings = tomllib.loads((DEPLOY / "stateward.toml").read_text())
    elsewhere = {"data": "/var/lib/stateward", "log_format": "json"}
    assert settings == {name: default for name, default, _ in describe(installed().sections)} | elsewhere


@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").glob("*.service"), key=str), ids=lambda unit: unit.name)
def test_the_commands_of_the_units_exist_with_their_flags(unit: Path) -> None:
    (command,) = re.findall(r"/bin/stateward (\w+)", unit.read_text())
    flags = re.findall(r"--[a-z-]+", next(line for line in unit.read_text().splitlines() if "/bin/stateward" in line))
    shown = run(command, "--help", environ={"COLUMNS": "200"}).stdout
    assert flags
    assert all(flag in shown for flag in flags)
