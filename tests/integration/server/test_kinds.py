from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stateward.config import Config
from stateward.server.run import open_application
from tests.integration.engine.record_kinds import RecordWork
from tests.integration.server.server_harness import ServerHarness, open_server

MADE_OVER_THE_GENERAL_API = {
    *("edge.app", "edge.appinst", "edge.autoprov", "edge.autoscale", "edge.cloudlet", "edge.clusterinst"),
    *("edge.flavor", "leases.host", "leases.lease", "leases.property", "mci.image", "mci.mci", "mci.securitygroup"),
    *("mci.spec", "mci.sshkey", "mci.vm", "mci.vnet", "ovc.account", "ovc.cloudspace", "systems.system"),
}


@pytest.fixture
async def site() -> AsyncIterator[ServerHarness]:
    async with open_server(also=[RecordWork().kind()]) as opened:
        yield opened


async def test_only_kinds_that_no_domain_makes_itself_are_made_over_the_general_api(tmp_path: Path) -> None:
    async with open_application(Config(data=str(tmp_path), worker=False)) as parts:
        assert {kind.name for kind in parts.engine.kinds if kind.general} == MADE_OVER_THE_GENERAL_API


async def test_a_kind_tells_the_schemas_of_its_specs_and_arguments(site: ServerHarness) -> None:
    told = (await site.get("/kinds/dns.record")).json()
    assert told in (await site.get("/kinds")).json()
    assert told["spec"]["properties"]["ttl"]["minimum"] == 1
    assert sorted(told["args"]) == ["change", "check"]
    assert told["args"]["change"]["properties"]["token"]["anyOf"][0]["writeOnly"]
    assert (told["columns"], told["creatable"]) == (["spec.address", "labels.team"], True)


async def test_a_kind_without_types_tells_none(site: ServerHarness) -> None:
    told = (await site.get("/kinds/test.pump")).json()
    assert (told["spec"], told["args"], told["columns"], told["creatable"]) == (None, {}, [], True)
