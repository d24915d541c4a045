"""An administrator's overrides: they reach what goes along, and what they leave at a site is noticed at once."""

import pytest
from msgspec.structs import replace

from stateward.agents.messages import AgentOrder
from stateward.agents.site import ReportProgress, SiteError
from stateward.domains.edge.api.schemas import accepted_view
from stateward.domains.edge.errors import OrphansLeft
from stateward.domains.edge.lifecycle import APPINST, CLUSTERINST, IGNORE_AGENT, IGNORE_AGENT_ERRORS, IGNORE_TRANSIENT
from stateward.domains.edge.model import ClusterInst, cloudlet_status, instance_status
from tests.integration.domains.edge.conftest import ADA, ANN, NS, House, hold

C1, WEB = "munich:c1", "munich:c1:web"
WITHOUT_AGENT = replace(ADA, facts=frozenset({IGNORE_AGENT}))
AT_ANY_TIME = replace(ADA, facts=frozenset({IGNORE_TRANSIENT}))
DESPITE_ERRORS = replace(ADA, facts=frozenset({IGNORE_AGENT_ERRORS}))


async def with_app(house: House) -> None:
    await house.cluster()
    await house.app(auto_delete=True)
    await house.deployed()


async def test_a_cluster_and_its_apps_are_deleted_without_an_agent(house: House) -> None:
    hand = await house.cloudlet()
    await with_app(house)
    await hand.kill()
    await house.until("munich", "Offline")
    operation = await house.ended(await house.service.delete(NS, C1, CLUSTERINST.kind, WITHOUT_AGENT))
    assert operation.status == "succeeded", operation.error
    assert [await house.state(one) for one in (C1, WEB)] == ["NotPresent"] * 2
    assert [one.who for one in await house.history(WEB) if one.event == "delete"] == ["edge"]


async def test_a_cloudlet_and_what_goes_along_are_deleted_without_an_agent(house: House) -> None:
    hand = await house.cloudlet()
    await house.app(auto_delete=True)
    await house.deployed(cluster="autocluster1")
    await hand.kill()
    await house.until("munich", "Offline")
    operation = await house.ended(await house.service.delete_cloudlet(NS, "munich", WITHOUT_AGENT))
    assert operation.status == "succeeded", operation.error
    for one in ("munich:autocluster1:web", "munich:reservable0"):
        assert await house.state(one) == "NotPresent"


async def test_a_cluster_is_deleted_with_an_app_on_which_something_is_under_way(house: House) -> None:
    hand = await house.cloudlet()
    await house.cluster()
    await house.app(auto_delete=True)
    gate = hold(hand)
    begun = await house.service.create_app(NS, "munich", "c1", "web", ANN)
    await house.until(WEB, "Creating")
    accepted = await house.service.delete(NS, C1, CLUSTERINST.kind, AT_ANY_TIME)
    await house.until(WEB, "DeleteRequested")
    gate.set()
    operation = await house.ended(accepted)
    assert operation.status == "succeeded", operation.error
    assert (await house.ended(begun)).status == "cancelled"
    assert [await house.state(one) for one in (C1, WEB)] == ["NotPresent"] * 2
    assert hand.site.things == {}


async def test_a_cluster_is_deleted_with_an_app_that_its_agent_cannot_delete(house: House) -> None:
    hand = await house.cloudlet()
    await with_app(house)
    do = hand.site.execute

    async def fail(order: AgentOrder, report_progress: ReportProgress) -> None:
        if order.work == "delete":
            raise SiteError("it cannot be deleted")
        await do(order, report_progress)

    hand.site.execute = fail  # type: ignore[method-assign]
    operation = await house.ended(await house.service.delete(NS, C1, CLUSTERINST.kind, DESPITE_ERRORS))
    assert operation.status == "succeeded", operation.error
    assert [await house.state(one) for one in (C1, WEB)] == ["NotPresent"] * 2


async def test_the_cluster_of_an_autocluster_is_made_without_an_agent_too(house: House) -> None:
    hand = await house.cloudlet()
    await hand.kill()
    await house.until("munich", "Offline")
    await house.app()
    operation = await house.ended(await house.service.create_app(NS, "munich", "autocluster1", "web", WITHOUT_AGENT))
    assert operation.status == "succeeded", operation.error
    assert await house.state("munich:reservable0") == "Ready"


async def test_what_is_deleted_without_its_agent_is_an_orphan_at_once(house: House) -> None:
    hand = await house.cloudlet()
    await with_app(house)
    before = hand.agent.notify
    await house.ended(await house.service.delete(NS, C1, CLUSTERINST.kind, WITHOUT_AGENT))
    await house.until_true("munich", lambda one: cloudlet_status(one).orphans == ("c1", "c1:web"))
    assert hand.agent.notify != before


async def test_what_is_deleted_without_its_agent_is_removed_where_orphans_are(house: House) -> None:
    hand = await house.cloudlet(orphans="remove")
    await house.cluster()
    await house.ended(await house.service.delete(NS, C1, CLUSTERINST.kind, WITHOUT_AGENT))
    await house.until_true("munich", lambda _: hand.site.things == {})


async def test_what_is_made_without_its_agent_is_missing_at_once(house: House) -> None:
    await house.cloudlet(missing="leave")
    await house.ended(await house.service.create_cluster(NS, "munich", "c1", ClusterInst(), WITHOUT_AGENT))
    await house.until_true(C1, lambda one: one.state == "Ready" and instance_status(one).missing)


async def test_an_app_that_is_deleted_alone_without_its_agent_is_an_orphan_too(house: House) -> None:
    await house.cloudlet()
    await with_app(house)
    await house.ended(await house.service.delete(NS, WEB, APPINST.kind, WITHOUT_AGENT))
    await house.until_true("munich", lambda one: cloudlet_status(one).orphans == ("c1:web",))


async def with_orphan(house: House) -> None:
    """Have a cloudlet with an orphan that is known."""
    await house.cluster()
    await house.ended(await house.service.delete(NS, C1, CLUSTERINST.kind, WITHOUT_AGENT))
    await house.until_true("munich", lambda one: cloudlet_status(one).orphans == ("c1",))
    await house.online()


async def test_a_cloudlet_with_orphans_is_deleted_only_when_its_agent_has_removed_them(house: House) -> None:
    hand = await house.cloudlet()
    await with_orphan(house)
    with pytest.raises(OrphansLeft, match=r"orphans run at cloudlet munich: c1\. .*--orphans remove.*--ignore agent"):
        await house.service.delete_cloudlet(NS, "munich", ANN)
    assert hand.site.things.keys() == {"c1"}
    await house.service.change_cloudlet(NS, "munich", {"orphans": "remove"}, ANN)
    await house.until_true("munich", lambda one: cloudlet_status(one).orphans == ())
    await house.online()
    assert (await house.ended(await house.service.delete_cloudlet(NS, "munich", ANN))).status == "succeeded"
    assert hand.site.things == {}


async def test_an_administrator_may_leave_orphans_and_is_told_their_names(house: House) -> None:
    await house.cloudlet()
    await with_orphan(house)
    await house.app(auto_delete=True)
    await house.deployed(cluster="autocluster1")
    accepted = await house.service.delete_cloudlet(NS, "munich", WITHOUT_AGENT)
    left = ("autocluster1:web", "c1", "reservable0")
    assert accepted_view(accepted).object.conditions.orphans == left
    assert (await house.ended(accepted)).status == "succeeded"
    (line,) = [one for one in await house.history("munich") if one.event == "orphans left"]
    assert (line.reason, line.who) == (", ".join(left), "ada")
