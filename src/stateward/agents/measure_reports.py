"""Reports of measures: an agent sends what has changed materially since its last message, and nothing else.

An idle site costs no messages. The controller keeps the last values for as long as the connection lasts, so silence
over a connection means that nothing has changed. A lost connection means that nothing is known.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from stateward.agents.measure_messages import MAX_LOADS, MAX_NODES, Load, Measures, NodeLoad
from stateward.agents.message_types import clip_text
from stateward.agents.messages import Existing
from stateward.agents.site import AgentSite, InstanceMeasure, SiteError

log = logging.getLogger("stateward.agent")

Item = TypeVar("Item")

MIN_CHANGE = 0.1
"""The relative change of a value that is reported."""

MIN_CPU_CHANGE, MIN_MEMORY_CHANGE, MIN_CONNECTIONS_CHANGE = 0.02, 4 * 2**20, 1.0
"""Changes below these are not reported: cores, bytes, connections."""


def differs(before: float | None, now: float | None, least: float) -> bool:
    """Tell whether a value has changed materially."""
    if before is None or now is None:
        return before is not now
    return abs(now - before) >= max(least, MIN_CHANGE * before)


def is_material(before: Load, now: Load) -> bool:
    """Tell whether a load has changed so much that the controller must know."""
    return (
        (before.generation, before.is_healthy, before.requests) != (now.generation, now.is_healthy, now.requests)
        or [(node.key, node.is_up) for node in before.nodes] != [(node.key, node.is_up) for node in now.nodes]
        or differs(before.cpu, now.cpu, MIN_CPU_CHANGE)
        or differs(before.mem, now.mem, MIN_MEMORY_CHANGE)
        or differs(before.connections, now.connections, MIN_CONNECTIONS_CHANGE)
    )


def load_of(name: str, generation: int, measure: InstanceMeasure) -> Load:
    """Return the load that an agent reports for a measure."""
    nodes = tuple(
        NodeLoad(node.key, node.is_up, _rounded(node.cpu), node.memory) for node in islice(measure.nodes, MAX_NODES)
    )
    health = measure.health
    verdict = None if health is None else health.is_healthy
    reason = clip_text(health.reason) if health is not None and verdict is False else ""
    numbers = _rounded(measure.cpu), measure.memory, measure.connections, measure.requests
    return Load(name, generation, *numbers, nodes, verdict, reason)


def _rounded(cpu: float | None) -> float | None:
    return None if cpu is None else round(cpu, 3)


async def measure_site(site: AgentSite) -> tuple[Mapping[str, InstanceMeasure], str]:
    """Return the measures of a site, or why there are none."""
    try:
        return await site.measure(), ""
    except SiteError as error:
        log.warning("agent cannot measure its site and will retry: %s", error)
        return {}, clip_text(str(error))
    except Exception as error:  # a fault of one measurement must not end the agent's connection
        log.exception("agent failed to measure its site and will retry")
        return {}, clip_text(f"{type(error).__name__}: {error}")


class MeasureReporter:
    """Returns the messages due over one connection."""

    def __init__(self, notify: int) -> None:
        self._notify = notify
        self._sent: dict[str, Load] = {}
        self._problem: str | None = None  # the last that was sent

    def messages(
        self, measures: Mapping[str, InstanceMeasure], existing: Mapping[str, Existing], problem: str = ""
    ) -> Iterator[Measures]:
        """Yield what has changed materially; what is not measured any more is unknown.

        `problem` is why nothing can be measured. The first message of a connection is always sent: it ends the alert of
        an earlier one.
        """
        now = {
            name: load_of(name, existing[name].generation, measure)
            for name, measure in measures.items()
            if name in existing and existing[name].generation
        }
        changed = [load for name, load in now.items() if name not in self._sent or is_material(self._sent[name], load)]
        unknown = [name for name in self._sent if name not in now]
        if problem != self._problem and not changed and not unknown:
            yield Measures(self._notify, problem=problem)
        for part in _parts(changed):
            yield Measures(self._notify, loads=tuple(part), problem=problem)
        for names in _parts(unknown):
            yield Measures(self._notify, unknown=tuple(names), problem=problem)
        self._problem = problem
        self._sent = {
            **{name: load for name, load in self._sent.items() if name in now},
            **{load.name: load for load in changed},
        }


def _parts(items: Iterable[Item]) -> Iterator[list[Item]]:
    rest = iter(items)
    while part := list(islice(rest, MAX_LOADS)):
        yield part
