# real time: kills and pauses come at times that a seed draws; each outcome is judged, none is expected
from collections.abc import Callable

import pytest

from tests.chaos.conftest import NewSite
from tests.chaos.report import judged
from tests.chaos.storm import SQLITE, Storm
from tests.seeds import chance

LEASE = 5.0


@pytest.mark.long
async def test_three_workers_on_one_file_are_killed_and_stopped_and_nothing_is_lost_or_doubled(
    new_site: NewSite, say: Callable[[object], None]
) -> None:
    storm = Storm(new_site("sqlite", LEASE), SQLITE, chance("storm"))
    await storm.blow(7)
    report = await judged(storm)
    say(f"sqlite: {report}")
    assert report.faults == []
