"""Types of resources and policy filters of other packages: found by their entry points."""

from pathlib import Path

import pytest

from stateward.domains.leases.errors import DeniedByPolicy
from stateward.errors import BadInput
from tests.installed_package import install_package
from tests.integration.domains.leases.conftest import ME, LeaseHarness, Opening, hosts
from tests.waiting import until

SOURCE = """
from stateward.domains.leases.errors import DeniedByPolicy

ENDED = []


class Licences:
    name = "acme:licence"

    def read_details(self, given, before):
        return {"product": given.get("product", (before or {}).get("product", "any"))}

    def demand(self, details):
        return None

    async def check(self, ns, spec):
        pass

    async def start_requests(self, task):
        return ()

    async def start(self, task):
        pass

    async def end_requests(self, task):
        return ()

    async def end(self, task):
        pass


def licences(context):
    return Licences()


class NoNights:
    needs_hosts = False
    notifies = True

    async def check(self, question):
        if "night" in question.wanted.name:
            raise DeniedByPolicy("no nights", "leases are for days")

    async def on_end(self, lease, hosts):
        ENDED.append(lease.spec.name)


def no_nights(settings):
    return NoNights()


def half_a_type(context):
    return object()


def failing(settings):
    raise RuntimeError("the policy file is not there")
"""
RESOURCES, FILTERS = "stateward.lease_resources", "stateward.lease_filters"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {
        RESOURCES: {"licence": "acme_leases:licences", "half": "acme_leases:half_a_type", "none": "acme_leases:none"},
        FILTERS: {"no-nights": "acme_leases:no_nights"},
    }
    install_package(tmp_path, monkeypatch, "acme_leases", SOURCE, parts)


@pytest.mark.usefixtures("installed")
async def test_a_type_of_resources_of_another_package_is_reserved(opening: Opening) -> None:
    async with opening() as site:
        lease = await site.lease("day", {"resource_type": "acme:licence", "product": "cad"}, end=3600)
        await site.until(lease, "ACTIVE")
        assert {"acme:licence", "physical:host", "virtual:instance", "mci"} <= set(site.plugin.leases.resource_types)


@pytest.mark.usefixtures("installed")
async def test_a_broken_type_is_told_with_its_reason_where_it_is_asked_for(
    opening: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    async with opening() as site:
        with pytest.raises(BadInput, match=r"acme:licence, mci, .*acme_leases:half_a_type.*must be a ResourcePlugin"):
            await site.lease("day", {"resource_type": "acme:half"})
    told = [record.getMessage() for record in caplog.records if "acme_leases:none" in record.getMessage()]
    assert len(told) == 1
    assert "has no attribute 'none'" in told[0]


@pytest.mark.usefixtures("installed")
async def test_a_filter_of_another_package_denies_and_is_told_of_ends(opening: Opening) -> None:
    async with opening() as site:
        await site.hosts("n1")
        with pytest.raises(DeniedByPolicy, match="leases are for days"):
            await site.lease("a night", hosts())
        lease = await site.lease("a day", hosts())
        await site.until(lease, "ACTIVE")
        await site.plugin.leases.delete(ME, lease.object.id)
        await until(ended)


async def ended() -> bool:
    import acme_leases  # type: ignore[import-not-found]

    return "a day" in acme_leases.ENDED


async def test_a_filter_that_cannot_be_used_denies_all_leases_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opening: Opening
) -> None:
    install_package(tmp_path, monkeypatch, "acme_leases", SOURCE, {FILTERS: {"strict": "acme_leases:failing"}})
    async with opening() as site:
        await site.hosts("n1")
        with pytest.raises(DeniedByPolicy, match="the policy file is not there"):
            await site.lease("a day", hosts())
        assert await leases_of(site) == []


async def leases_of(site: LeaseHarness) -> list[str]:
    return [one.spec.name for one in await site.plugin.leases.list("ns")]
