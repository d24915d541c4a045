"""`mci`: an MCI that is created from a template when the lease starts and removed when it ends.

This domain does not know the domain of MCIs: that one passes in what a template must look like (`plugin.templates`).
The MCI is created and removed by child operations of the lease's operation, which waits without a worker. Only an MCI
whose labels name this reservation is used and removed. Its record is removed too, however far the start had come:
otherwise the next lease of the same template would find its name taken.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from stateward.domains.leases.model import ReservationSpec
from stateward.domains.leases.resources.port import ReservationTask, read_text
from stateward.engine import Permanent, Request
from stateward.engine.requests import Creation
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.lifecycle import USER
from stateward.plugin.templates import Template
from stateward.store.records import Key, Object, to_json

RUNNING = "Running"
LEASE, RESERVATION = "lease", "reservation"
"""The labels of an MCI that say which reservation of which lease it was made for."""


class LeasedMcis:
    """MCIs as resources; `templates` gets the template of MCIs when their domain is loaded."""

    name = "mci"

    def __init__(self, templates: Mapping[str, Template]) -> None:
        self._templates = templates

    def read_details(self, given: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
        """Read the template (an object, or JSON text) and the name; neither can be changed later."""
        template = given.get("template", (before or {}).get("template"))
        if isinstance(template, str):
            template = _decode_template(template)
        if not isinstance(template, dict):
            raise BadInput("template", template, "an object with the field groups, the subgroups of the MCI")
        details = {"template": template, "mci": read_text("mci", given, before)}
        for field, value in details.items():
            if before is not None and value != before[field]:
                raise BadInput(field, value, "what it was: it cannot change while the lease exists")
        return details

    def demand(self, details: Mapping[str, Any]) -> None:
        """Return nothing: an MCI needs no hosts of this domain."""

    async def check(self, ns: str, spec: ReservationSpec) -> None:
        """Refuse a template from which no MCI could be created."""
        template = self._templates.get(self.name)
        if template is None:
            raise BadInput(
                "resource_type", self.name, "a type that is available here: the domain of MCIs is not installed"
            )
        try:
            await template.check(ns, self._spec(spec))
        except BadInput as error:
            field = f"template.{error.field.removeprefix('spec.')}"
            raise BadInput(field, error.value, error.allowed) from error

    async def start_requests(self, task: ReservationTask) -> Sequence[Request]:
        """Return the request that creates the MCI, if it does not exist."""
        if await self._find_mci(task) is not None:
            return ()
        spec = self._spec(task.spec)
        labels = {**spec.get("label", {}), LEASE: task.lease.object.id, RESERVATION: task.spec.id}
        birth = Creation(self._templates[self.name].kind, labels=to_json(labels))
        return [self._request(task, "create", spec=to_json(spec), creates=birth)]

    async def start(self, task: ReservationTask) -> None:
        """Raise if the MCI does not run."""
        mci = await self._find_mci(task)
        if mci is None or mci.state != RUNNING or not _is_made_for(task.lease.object, task.spec, mci):
            raise Permanent(f"the MCI {_name(task.spec)} is {_describe_mci(task, mci)}")

    async def end_requests(self, task: ReservationTask) -> Sequence[Request]:
        """Return the next requests that remove the MCI with all of its VMs."""
        mci, template = await self._find_mci(task), self._templates.get(self.name)
        if mci is None or template is None or not _is_made_for(task.lease.object, task.spec, mci):
            return ()
        return await template.removal(task.engine.store.reader, mci, _who(task))

    async def end(self, task: ReservationTask) -> None:
        """Raise if the MCI still exists."""
        mci = await self._find_mci(task)
        if mci is not None and _is_made_for(task.lease.object, task.spec, mci):
            raise Permanent(f"the MCI {_name(task.spec)} is {_describe_mci(task, mci)}")

    async def removed_objects(self, uow: UnitOfWork, lease: Object, spec: ReservationSpec) -> Sequence[Object]:
        """Return the MCI of a reservation, if there is one."""
        mcis = await uow.peek([Key(lease.ns, _name(spec))])
        return [mci for mci in mcis if mci is not None and not mci.removed and _is_made_for(lease, spec, mci)]

    def _spec(self, spec: ReservationSpec) -> dict[str, Any]:
        """Return the spec of a reservation's MCI: the same for each call, with a uid of its own."""
        uid = blake2b(spec.id.encode(), digest_size=16).hexdigest()
        return self._templates[self.name].read(_name(spec), uid, spec.details["template"])

    def _request(self, task: ReservationTask, action: str, **more: Any) -> Request:  # noqa: ANN401 - fields of Request
        return Request(task.job.ns, _name(task.spec), action, op="", actor=USER, who=_who(task), **more)

    async def _find_mci(self, task: ReservationTask) -> Object | None:
        mci = await task.engine.store.reader.object(Key(task.job.ns, _name(task.spec)))
        return None if mci is None or mci.removed else mci


def _name(spec: ReservationSpec) -> str:
    """Return the name of a reservation's MCI: from the request, from the template, or from the reservation's id."""
    return str(spec.details["mci"] or spec.details["template"].get("name") or f"lease-{spec.id}")


def _who(task: ReservationTask) -> str:
    return f"lease {task.lease.object.id}"


def _is_made_for(lease: Object, spec: ReservationSpec, mci: Object) -> bool:
    """Tell whether an MCI was created for a reservation; earlier versions labelled it with the lease alone."""
    labels: dict[str, str] = msgspec.json.decode(mci.labels)
    return (labels.get(LEASE), labels.get(RESERVATION, spec.id)) == (lease.id, spec.id)


def _describe_mci(task: ReservationTask, mci: Object | None) -> str:
    if mci is None:
        return "not there"
    if not _is_made_for(task.lease.object, task.spec, mci):
        return "there already, and was not made for this reservation"
    return f"{mci.state}{f': {mci.error}' if mci.error else ''}"


def _decode_template(template: str) -> object:
    try:
        decoded: object = msgspec.json.decode(template)
    except (msgspec.DecodeError, RecursionError):
        return template
    return decoded
