"""Deadlines of the edge domain: the default settings are the tables, and other settings change them."""

import pytest

from stateward.domains.edge.deadlines import with_deadlines
from stateward.domains.edge.lifecycle import APPINST, CLOUDLET, CLUSTERINST
from stateward.domains.edge.settings import EdgeSettings
from stateward.lifecycle import Lifecycle, check


@pytest.mark.parametrize("lifecycle", [CLUSTERINST, APPINST, CLOUDLET], ids=lambda one: one.kind)
def test_the_default_settings_are_the_deadlines_of_the_tables(lifecycle: Lifecycle) -> None:
    assert with_deadlines(lifecycle, EdgeSettings()).rows == lifecycle.rows


def test_other_settings_change_the_deadlines_and_nothing_else() -> None:
    settings = EdgeSettings(create=1, update=2, delete=3, first_agent=4, maintenance=5)
    found = {row.event: row.within for row in with_deadlines(CLUSTERINST, settings).rows if row.within is not None}
    assert found == {
        "create": 1, "creating": 1, "re-create": 1, "update": 2, "updating": 2,
        "delete": 3, "expire": 3, "prepared": 3, "deleting": 3,
    }  # fmt: skip
    cloudlet = with_deadlines(CLOUDLET, settings)
    assert {row.event: row.within for row in cloudlet.rows if row.event in ("create", "maintain", "upgrade")} == {
        "create": 4, "maintain": 5, "upgrade": 900,
    }  # fmt: skip
    assert not list(check(cloudlet))
