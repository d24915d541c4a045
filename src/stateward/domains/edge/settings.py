"""Settings of the domain: `edge_measures` in a file, `STATEWARD_EDGE_MEASURES` in the environment, and so on."""

from typing import Annotated

from msgspec import Meta, Struct

from stateward.config import about

Interval = Annotated[float, Meta(gt=0, le=86_400)]


class EdgeSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What can be set; one line each, with what it means."""

    beat: Annotated[
        Interval, about("seconds between two heartbeats of an agent; after three missed ones it is lost")
    ] = 10.0
    measures: Annotated[Interval, about("seconds between two measurements of an agent")] = 10.0
    policies: Annotated[Interval, about("seconds of an interval of demand, after which policies are applied")] = 30.0
    create: Annotated[Interval, about("seconds without a report after which the create of an instance fails")] = 900.0
    update: Annotated[Interval, about("seconds without a report after which the update of an instance fails")] = 900.0
    delete: Annotated[Interval, about("seconds without a report after which the delete of an instance fails")] = 900.0
    first_agent: Annotated[Interval, about("seconds that a new cloudlet waits for its agent")] = 900.0
    maintenance: Annotated[Interval, about("seconds to move apps away before a maintenance")] = 3600.0
    idle: Annotated[Interval, about("seconds after which an unused cluster of an autocluster is deleted")] = 1800.0
