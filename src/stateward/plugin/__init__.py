"""The public API for domains: declare a plug-in, and the whole product serves its kinds.

    from stateward.plugin import DomainPlugin, Kind

Names are imported when they are used, because a process that only reads the tables needs neither the engine nor the
web framework.
"""

from typing import TYPE_CHECKING

from stateward.lazy_names import lazy_names
from stateward.plugin.domain import DomainPlugin

if TYPE_CHECKING:
    from stateward.access import Grant, Right
    from stateward.config import about
    from stateward.engine import (
        Accepted,
        BlockingJob,
        Denied,
        Ending,
        Engine,
        Handler,
        Job,
        Kind,
        KindBuilder,
        NothingToDo,
        ObservedOutcome,
        Permanent,
        Request,
        Route,
        Rules,
        Temporary,
        Throttled,
        Timer,
        Unknown,
        Why,
    )
    from stateward.engine.kinds import Party
    from stateward.engine.privacy import Privacy
    from stateward.engine.unit_of_work import UnitOfWork
    from stateward.errors import BadInput, StatewardError, UnknownName
    from stateward.plugin.request_params import IdempotencyKey, Ns
    from stateward.plugin.route_options import actor_of, disclosure_of, engine_of, grant_of, needs, open_to_all, reads
    from stateward.plugin.runtime import DomainRuntime, ProcessContext
    from stateward.plugin.templates import Template

__all__ = [
    "Accepted",
    "BadInput",
    "BlockingJob",
    "Denied",
    "DomainPlugin",
    "DomainRuntime",
    "Ending",
    "Engine",
    "Grant",
    "Handler",
    "IdempotencyKey",
    "Job",
    "Kind",
    "KindBuilder",
    "NothingToDo",
    "Ns",
    "ObservedOutcome",
    "Party",
    "Permanent",
    "Privacy",
    "ProcessContext",
    "Request",
    "Right",
    "Route",
    "Rules",
    "StatewardError",
    "Template",
    "Temporary",
    "Throttled",
    "Timer",
    "UnitOfWork",
    "Unknown",
    "UnknownName",
    "Why",
    "about",
    "actor_of",
    "disclosure_of",
    "engine_of",
    "grant_of",
    "needs",
    "open_to_all",
    "reads",
]

__getattr__ = lazy_names(
    __name__,
    {
        "stateward.access": ("Grant", "Right"),
        "stateward.config": ("about",),
        "stateward.engine": (
            *(
                "Accepted",
                "BlockingJob",
                "Denied",
                "Ending",
                "Engine",
                "Handler",
                "Job",
                "Kind",
                "KindBuilder",
                "NothingToDo",
                "ObservedOutcome",
                "Permanent",
                "Request",
                "Route",
                "Rules",
                "Temporary",
                "Throttled",
                "Timer",
                "Unknown",
                "Why",
            ),
        ),
        "stateward.engine.kinds": ("Party",),
        "stateward.engine.privacy": ("Privacy",),
        "stateward.engine.unit_of_work": ("UnitOfWork",),
        "stateward.errors": ("BadInput", "StatewardError", "UnknownName"),
        "stateward.plugin.request_params": ("IdempotencyKey", "Ns"),
        "stateward.plugin.route_options": (
            *("actor_of", "disclosure_of", "engine_of", "grant_of", "needs", "open_to_all", "reads"),
        ),
        "stateward.plugin.runtime": ("DomainRuntime", "ProcessContext"),
        "stateward.plugin.templates": ("Template",),
    },
)


def __dir__() -> list[str]:
    return __all__
