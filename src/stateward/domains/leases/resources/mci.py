"""`mci`: an MCI of our own, created from a template when the lease starts and terminated when it ends.

The leases know nothing of MCIs but the kind's name and what can be asked of it: they are children of the lease's
operation, which waits for them without keeping anybody busy.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stateward.domains.leases.resources.port import Task, text
from stateward.engine import Permanent, Request
from stateward.engine.requests import Birth
from stateward.errors import BadInput
from stateward.lifecycle import FORCE, USER
from stateward.store.records import Key, Object

KIND = "mci.mci"
RUNNING, OVER = "Running", ("Terminated", "Empty")
TERMINATE_FIRST = "option=terminate"


class Mcis:
    """Groups of VMs over many clouds."""

    name = "mci"

    def read(self, given: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
        """Read the template: an object, or one as text; it cannot be changed later."""
        template = given.get("template", (before or {}).get("template"))
        if isinstance(template, str):
            template = _decoded(template)
        if not isinstance(template, dict) or (before is not None and template != before["template"]):
            raise BadInput("template", template, "the spec of an MCI, which stays the same while the lease lives")
        return {"template": template, "mci": text("mci", given, before)}

    def demand(self, details: Mapping[str, Any]) -> None:
        """Ask nothing of the hosts."""

    async def starts_with(self, task: Task) -> Sequence[Request]:
        """Have the MCI created, if it is not there."""
        if await self._found(task) is not None:
            return ()
        labels = msgspec.json.encode({"lease": task.lease.object.id}).decode()
        spec = msgspec.json.encode(task.spec.details["template"]).decode()
        return [self._request(task, "create", spec=spec, birth=Birth(KIND, labels=labels))]

    async def start(self, task: Task) -> None:
        """See whether it runs."""
        found = await self._found(task)
        if found is None or found.state != RUNNING:
            raise Permanent(f"the MCI {self._name(task)} is {_told(found)}")

    async def ends_with(self, task: Task) -> Sequence[Request]:
        """Have the MCI terminated with all of its VMs; one that is doing something is stopped first."""
        found = await self._found(task)
        if found is None or found.state in OVER:
            return ()
        if found.op is not None:
            return [self._request(task, "terminate", facts=frozenset({FORCE}))]
        return [self._request(task, "delete", facts=frozenset({TERMINATE_FIRST}))]

    async def end(self, task: Task) -> None:
        """See whether it is gone."""
        found = await self._found(task)
        if found is not None and found.state not in OVER:
            raise Permanent(f"the MCI {self._name(task)} is {_told(found)}")

    def _request(self, task: Task, action: str, **more: Any) -> Request:  # noqa: ANN401 - fields of Request
        who = f"lease {task.lease.object.id}"
        return Request(task.job.ns, self._name(task), action, op="", actor=USER, who=who, **more)

    def _name(self, task: Task) -> str:
        return task.spec.details["mci"] or f"lease-{task.spec.id}"

    async def _found(self, task: Task) -> Object | None:
        found = await task.engine.store.reader.object(Key(task.job.ns, self._name(task)))
        return None if found is None or found.removed else found


def _told(found: Object | None) -> str:
    return "not there" if found is None else f"{found.state}{f': {found.error}' if found.error else ''}"


def _decoded(template: str) -> object:
    try:
        found: object = msgspec.json.decode(template)
    except (msgspec.DecodeError, RecursionError):
        return template
    return found
