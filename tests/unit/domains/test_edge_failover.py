"""Where the instances of a cloudlet go before its maintenance."""

import pytest

from stateward.domains.edge.cloudlet_maintenance import FailOver, ProvisionedApp, plan_failover
from stateward.domains.edge.model import AppStatus, AutoprovSpec

WEB = "munich:c:web"


def app(*members: str) -> ProvisionedApp:
    return ProvisionedApp(AutoprovSpec(("munich", "berlin", "turin")), AppStatus(members))


@pytest.mark.parametrize(
    # members of the app             online                tried     goes to
    ("members", "online", "tried", "target"),
    [
        ((WEB,),                     {"berlin", "turin"},  (),       "berlin"),
        ((WEB,),                     {"turin"},            (),       "turin"),
        ((WEB, "berlin:c:web"),      {"berlin", "turin"},  (),       "turin"),
        ((WEB,),                     {"berlin", "turin"},  ("berlin",), "turin"),
        ((WEB,),                     {"oslo"},             (),       None),
        ((WEB,),                     set(),                (),       None),
        ((WEB,),                     {"berlin"},           ("berlin",), None),
    ],
)  # fmt: skip
def test_an_instance_goes_to_the_first_cloudlet_of_its_policy_that_is_online_free_and_untried(
    members: tuple[str, ...], online: set[str], tried: tuple[str, ...], target: str | None
) -> None:
    found = plan_failover([WEB], {"web": app(*members)}, online, [FailOver(WEB, one) for one in tried])
    assert found == ([] if target is None else [FailOver(WEB, target)])


def test_two_instances_of_an_app_go_to_two_cloudlets_and_an_app_without_a_policy_stays() -> None:
    two = [WEB, "munich:d:web", "munich:c:other"]
    assert plan_failover(two, {"web": app(*two[:2])}, {"berlin", "turin"}) == [
        FailOver(WEB, "berlin"),
        FailOver("munich:d:web", "turin"),
    ]
