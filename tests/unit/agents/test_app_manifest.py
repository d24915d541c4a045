"""Manifests of apps: what contradicts itself, and what a back end cannot honour, is refused with the field."""

from typing import Any

import pytest

from stateward.agents.messages import SiteBackend
from stateward.domains.edge.sites.app_manifest import (
    AppPart,
    AppProgram,
    PartPort,
    PartResources,
    PartVolume,
    check_backend,
    check_manifest,
    parts_of,
)
from stateward.domains.edge.sites.probe_specs import HttpProbe
from stateward.errors import BadInput


def web(**fields: Any) -> AppProgram:
    return AppProgram(parts=(AppPart("web", **{"image": "web:1", **fields}),))


def test_the_short_form_is_one_part() -> None:
    (part,) = parts_of(AppProgram("sleep 10", "true", 3))
    assert (part.name, part.command, part.setup, part.count) == ("main", "sleep 10", "true", 3)


@pytest.mark.parametrize(
    ("app", "field"),
    [
        (AppProgram(), "command"),
        (AppProgram("sleep 10", parts=(AppPart(image="web:1"),)), "parts"),
        (AppProgram(count=2, parts=(AppPart(image="web:1"),)), "parts"),
        (AppProgram(parts=(AppPart("a", "x"), AppPart("a", "x"))), "parts[1].name"),
        (AppProgram(parts=(AppPart("a"),)), "parts[0].command"),
        (AppProgram(parts=(AppPart("a", "x//y"),)), "parts[0].image"),
        (web(probe=HttpProbe(80, "/" * 500)), "parts[0].probe.path"),
        (AppProgram("run", probe=HttpProbe(80, "/a//b")), "probe.path"),
        (AppProgram(parts=(AppPart("a", "x", count=600), AppPart("b", "x", count=600))), "parts"),
        (web(ports=(PartPort(80), PartPort(80))), "parts[0].ports[1].port"),
        (web(ports=(PartPort(80, host_port=8080),)), "parts[0].ports[0].host_port"),
        (web(count=2, ports=(PartPort(80, published=True, host_port=8080),)), "parts[0].ports[0].host_port"),
        (web(volumes=(PartVolume("/a/../b", "data"),)), "parts[0].volumes[0].path"),
        (web(volumes=(PartVolume("/proc", "data"),)), "parts[0].volumes[0].path"),
        (web(volumes=(PartVolume("/./sys/fs"),)), "parts[0].volumes[0].path"),
        (web(volumes=(PartVolume("/dev/shm"), PartVolume("//dev"))), "parts[0].volumes[1].path"),
        (web(volumes=(PartVolume("/./", "data"),)), "parts[0].volumes[0].path"),
        (web(volumes=(PartVolume("/a", "data", size_mib=1),)), "parts[0].volumes[0].size_mib"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(app: AppProgram, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_manifest(app)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("app", "backend", "field"),
    [
        (AppProgram("sleep 10"), SiteBackend.CONTAINER, "image"),
        (web(setup="true"), SiteBackend.CONTAINER, "parts[0].setup"),
        (web(), SiteBackend.PROCESS, "parts[0].command"),
        (web(command="x"), SiteBackend.PROCESS, "parts[0].image"),
        (web(image="", command="x", read_only=True), SiteBackend.PROCESS, "parts[0].read_only"),
        (web(image="", command="x", resources=PartResources(1.0)), SiteBackend.PROCESS, "parts[0].resources"),
        (web(image="", command="x", volumes=(PartVolume("/a", "a"),)), SiteBackend.PROCESS, "parts[0].volumes"),
        (web(image="", command="x", ports=(PartPort(80),)), SiteBackend.PROCESS, "parts[0].ports[0].host_port"),
    ],
)
def test_what_a_back_end_cannot_honour_is_refused(app: AppProgram, backend: str, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_backend(app, backend)
    assert refused.value.field == field
    assert f"the back end {backend}" in refused.value.allowed


def test_what_a_back_end_can_honour_is_not_refused() -> None:
    ports = (PartPort(8000, published=True, host_port=8000),)
    check_backend(web(image="", command=("sleep", "10"), env={"A": "b"}, ports=ports), SiteBackend.PROCESS)
    check_backend(web(read_only=True, user="1000", volumes=(PartVolume("/tmp"),)), SiteBackend.CONTAINER)
