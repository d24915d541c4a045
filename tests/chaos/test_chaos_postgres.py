# real time: kills and pauses come at times that a seed draws; each outcome is judged, none is expected
from collections.abc import Callable

from tests.chaos.conftest import NewSite
from tests.chaos.report import judged
from tests.chaos.storm import POSTGRES, Storm
from tests.seeds import chance
from tests.servers import PostgresServer

LEASE = 5.0


async def test_three_workers_and_their_postgres_are_mistreated_and_nothing_is_lost_or_doubled(
    new_site: NewSite, postgres_server: PostgresServer, say: Callable[[object], None]
) -> None:
    storm = Storm(new_site("postgres", LEASE), POSTGRES, chance("storm"), postgres_server)
    await storm.blow(7)
    report = await judged(storm)
    say(f"postgres: {report}")
    assert report.faults == []
