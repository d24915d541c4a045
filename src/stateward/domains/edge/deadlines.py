"""Deadlines of the lifecycle tables, as the settings have them."""

from functools import cache

from msgspec.structs import replace

from stateward.domains.edge.lifecycle import CLOUDLET, AppInstState, CloudletState
from stateward.domains.edge.settings import EdgeSettings
from stateward.lifecycle import TRANSITIONAL, Lifecycle, Row


def deadlines_by_state(settings: EdgeSettings, kind: str) -> dict[str, float]:
    """Return the deadlines by transitional state; the cluster of an app on an autocluster has a create of its own."""
    if kind == CLOUDLET.kind:
        return {CloudletState.PREPARE_MAINTENANCE: settings.maintenance}
    by_action = {"Creat": settings.create, "Updat": settings.update, "Delet": settings.delete}
    states = {state.word: by_action[state.word[:5]] for state in AppInstState if state.state_class is TRANSITIONAL}
    return {**states, AppInstState.CREATING_DEPENDENCIES: 2 * settings.create}


@cache  # bounded by: the tables and settings of the process; to compile a table takes milliseconds
def with_deadlines(lifecycle: Lifecycle, settings: EdgeSettings) -> Lifecycle:
    """Return a lifecycle with the deadlines of the settings."""
    deadlines = deadlines_by_state(settings, lifecycle.kind)

    def deadline_of(row: Row) -> float | None:
        if row.within is None:
            return None
        if lifecycle.kind == CLOUDLET.kind and row.event == "create":
            return settings.first_agent
        return deadlines.get(str(row.via or row.to), row.within)

    rows = tuple(replace(row, within=deadline_of(row)) for row in lifecycle.rows)
    return Lifecycle(replace(lifecycle.declaration, rows=rows))
