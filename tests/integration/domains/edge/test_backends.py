"""Back ends: the cloudlet says which one, the agent must offer it, and a manifest must fit it."""

import msgspec
import pytest

from stateward.agents.messages import SiteBackend
from stateward.agents.simulation import SimulatedSite
from stateward.domains.edge.api.schemas import AppInstChange, ClusterChange, view
from stateward.domains.edge.errors import StillReferenced
from stateward.domains.edge.guards import CHANGEABLE_FIELDS
from stateward.domains.edge.lifecycle import APP, APPINST, CLOUDLET, CLUSTERINST
from stateward.domains.edge.model import AppInst, AppSpec, CloudletSpec, ClusterInst, cloudlet_status, read_spec
from stateward.domains.edge.sites.app_manifest import AppPart
from stateward.errors import BadInput, UnknownField
from stateward.store.records import Object
from tests.integration.domains.edge.conftest import ANN, NS, AgentRunner, EdgeHarness

PARTS = (AppPart("web", "registry.example.com/web:1", count=2),)
BOTH = (SiteBackend.CONTAINER, SiteBackend.PROCESS)


def runner(*backends: SiteBackend) -> AgentRunner:
    return AgentRunner("munich", SimulatedSite(), backends=backends)


async def change_backend(harness: EdgeHarness, backend: SiteBackend) -> None:
    await harness.service.act(NS, "munich", CLOUDLET.kind, "change", ANN, args={"change": {"backend": backend}})


async def test_an_agent_that_does_not_offer_the_back_end_is_refused_with_the_reason(harness: EdgeHarness) -> None:
    created = await harness.service.create_cloudlet(NS, "munich", CloudletSpec(backend=SiteBackend.CONTAINER), ANN)
    harness.start(runner(SiteBackend.PROCESS))
    found = await harness.until_true("munich", lambda one: cloudlet_status(one).refused != "")
    why = "the cloudlet needs the back end container, and its agent offers process"
    assert view(found).conditions.refused.startswith(why)
    assert len([one for one in await harness.history("munich") if one.reason and why in one.reason]) == 1
    assert found.state == "Init"
    harness.start(runner(*BOTH))
    assert (await harness.ended(created)).status == "succeeded"
    assert cloudlet_status(await harness.get("munich")).refused == ""


async def test_the_back_end_changes_while_nothing_is_there_alone(harness: EdgeHarness) -> None:
    serving = await harness.cloudlet(runner=runner(*BOTH))
    await harness.cluster()
    with pytest.raises(StillReferenced, match="munich:c1"):
        await change_backend(harness, SiteBackend.CONTAINER)
    await harness.ended(await harness.service.delete(NS, "munich:c1", CLUSTERINST.kind, ANN))
    before = serving.agent.notify
    await change_backend(harness, SiteBackend.CONTAINER)

    def serves_anew(found: Object) -> bool:
        return found.state == "Ready" and cloudlet_status(found).serving > before

    await harness.until_true("munich", serves_anew)
    await harness.app("web", command="", parts=PARTS)
    await harness.cluster()
    assert (await harness.deployed()).status == "succeeded"


async def test_a_manifest_that_does_not_fit_the_back_end_is_refused_when_it_is_deployed(harness: EdgeHarness) -> None:
    await harness.cloudlet(runner=runner(*BOTH), backend=SiteBackend.CONTAINER)
    await harness.cluster()
    await harness.app("old")
    with pytest.raises(BadInput, match="image: '' must be an image on a cloudlet with the back end container"):
        await harness.deployed("old")
    with pytest.raises(BadInput, match="setup"):
        await harness.cluster("c2", setup="true")
    with pytest.raises(BadInput, match=r"parts: given|parts: must be given"):
        await harness.app("mixed", command="sleep 10", parts=PARTS)
    await harness.app("web", command="", parts=PARTS)
    assert (await harness.deployed()).status == "succeeded"
    assert read_spec(await harness.get("munich:c1:web"), AppInst).parts == PARTS
    for change, field in (({"command": "x"}, "parts"), ({"parts": [{"name": "web", "command": "x"}]}, "image")):
        with pytest.raises(BadInput, match=field):
            await harness.service.update(NS, "munich:c1:web", APPINST.kind, change, ANN)
    change = {"parts": [{"name": "web", "image": "other:2"}]}
    await harness.ended(await harness.service.update(NS, "munich:c1:web", APPINST.kind, change, ANN))
    assert read_spec(await harness.get("munich:c1:web"), AppInst).parts == (AppPart("web", "other:2"),)
    await harness.service.put_record(NS, APP.kind, "web", AppSpec("sleep 10"), ANN)
    with pytest.raises(BadInput, match="image"):
        await harness.service.refresh(NS, "munich:c1:web", ANN)


async def test_an_argument_that_would_be_ignored_is_refused(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.cluster()
    await harness.app()
    await harness.deployed()
    for id_, args in (("munich:c1", {"nodes": 2}), ("munich:c1:web", {"parts": []}), ("munich:c1:web", {"refesh": 1})):
        with pytest.raises(UnknownField, match="change, refresh") as refused:
            await harness.engine.act(NS, id_, "update", args=args, actor=ANN.actor, who=ANN.who)
        assert refused.value.field == f"args.{next(iter(args))}"
    assert (await harness.get("munich:c1:web")).op is None


async def test_creating_a_cloudlet_again_does_not_change_the_back_end_of_its_instances(harness: EdgeHarness) -> None:
    serving = await harness.cloudlet()
    await harness.cluster()
    await serving.kill()
    await harness.until("munich", "Offline")
    with pytest.raises(StillReferenced, match="munich:c1"):
        await harness.service.create_cloudlet(NS, "munich", CloudletSpec(backend=SiteBackend.CONTAINER), ANN)
    for action in ("maintain", "delete"):
        spec = CloudletSpec(backend=SiteBackend.CONTAINER)
        with pytest.raises(BadInput, match="these actions take one: create, change"):
            await harness.engine.act(NS, "munich", action, spec=spec, actor=ANN.actor, who=ANN.who)
    assert read_spec(await harness.get("munich"), CloudletSpec).backend is SiteBackend.PROCESS


async def test_an_update_leaves_an_instance_where_it_is_and_whose_it_is(harness: EdgeHarness) -> None:
    assert {*ClusterChange.__struct_fields__, "setup"} == {*CHANGEABLE_FIELDS[ClusterInst]}
    assert AppInstChange.__struct_fields__ == CHANGEABLE_FIELDS[AppInst]
    await harness.cloudlet()
    await harness.cluster()
    await harness.app()
    await harness.deployed()
    for id_, change, field in (
        ("munich:c1", {"reservable": True}, "reservable"),
        ("munich:c1", {"cores": 0.1, "nodes": 2}, "cores"),
        ("munich:c1:web", {"organization": "another"}, "organization"),
        ("munich:c1:web", {"cluster": "c2", "count": 2}, "cluster"),
        ("munich:c1:web", {"auto_delete": True}, "auto_delete"),
    ):
        found = await harness.get(id_)
        whole = {**msgspec.json.decode(found.spec), **change}
        for how in ({"args": {"change": change}}, {"spec": whole}):
            with pytest.raises(BadInput, match="left as it is: only ") as refused:
                await harness.engine.act(NS, id_, "update", actor=ANN.actor, who=ANN.who, **how)
            assert refused.value.field == field
        assert (await harness.get(id_)).spec == found.spec
