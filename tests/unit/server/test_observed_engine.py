"""A kind with telemetry differs from the kind itself only in its handlers."""

from msgspec.structs import asdict

from stateward.engine import Handler, Job, Kind
from stateward.engine.handlers import ObservedOutcome
from stateward.server.telemetry.observed_engine import with_telemetry
from stateward.server.telemetry.traces import NoTraces
from tests.integration.engine.pump_kinds import PUMP


async def run(_job: Job) -> None:
    pass


async def look(_job: Job) -> ObservedOutcome:
    return ObservedOutcome.DONE


async def look_at_cancelled(_job: Job) -> ObservedOutcome:
    return ObservedOutcome.NOT_DONE


def test_an_observed_handler_keeps_its_looks_and_its_attempts() -> None:
    handler = Handler(run, look, attempts=3, cancelled=look_at_cancelled)
    (seen,) = with_telemetry(Kind(PUMP, {"pump": handler}), NoTraces()).handlers.values()
    assert {**asdict(seen), "run": run} == asdict(handler)
    assert seen.run is not run
