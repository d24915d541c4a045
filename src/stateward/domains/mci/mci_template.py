"""Template of MCIs: converts a fleet description into the spec of an MCI.

Other domains create and remove MCIs with it. Fields have the short names of a fleet file or the names of the Tumblebug
API. An unknown field is refused: the author of a template would see its effect much later.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from stateward.domains.mci.api.lenient_json import Fields
from stateward.domains.mci.api.mci_bodies import parse_mci
from stateward.domains.mci.fleet_fields import COMMAND, GROUP, HEAD
from stateward.domains.mci.guards.spec_validation import check_mci_spec
from stateward.domains.mci.guards.subgroups import WITH_MCI
from stateward.domains.mci.lifecycle import MCI, TERMINATE_FIRST, VM, MciState
from stateward.domains.mci.model import MciSpec
from stateward.domains.mci.provider.catalogue import Catalogue
from stateward.domains.mci.vm_placement import place_subgroup
from stateward.engine import Request
from stateward.engine.queries import list_all
from stateward.errors import BadInput, StatewardError
from stateward.lifecycle import FORCE, USER
from stateward.store.filters import Selector
from stateward.store.port import Reader
from stateward.store.records import Object
from stateward.validation_texts import bad_input

Names = Mapping[str, str]


class MciTemplate:
    """Makes specs of MCIs from fleets."""

    kind = MCI.kind

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def read(self, name: str, uid: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the spec of an MCI from a fleet, or from a stored spec, which has a `uid`."""
        wanted = replace(_converted(given), name=name, uid=uid) if "uid" in given else _wanted(name, uid, given)
        check_mci_spec(wanted)
        plain: dict[str, Any] = msgspec.to_builtins(wanted)
        return plain

    async def check(self, ns: str, spec: Mapping[str, Any]) -> None:
        """Refuse subgroups whose spec, image or connection does not exist or is not granted to the namespace."""
        for number, group in enumerate(_converted(spec).groups):
            try:
                await place_subgroup(self._catalogue, ns, group)
            except StatewardError as error:
                raise BadInput(f"groups[{number}]", group.name, f"a subgroup that can be made: {error}") from error

    async def removal(self, reader: Reader, mci: Object, who: str) -> Sequence[Request]:
        """Return the next requests that remove an MCI: stop its operation, terminate its VMs, delete it."""

        def ask(id_: str, action: str, *facts: str) -> Request:
            return Request(mci.ns, id_, action, op="", actor=USER, who=who, facts=frozenset(facts))

        if mci.op is not None:
            return [ask(mci.id, "terminate", FORCE)]
        if mci.state not in (MciState.TERMINATED, MciState.EMPTY):
            return [ask(mci.id, "delete", TERMINATE_FIRST)]
        vms = [vm.id async for vm in list_all(reader, Selector(mci.ns, VM.kind, mci.id))]
        return [*(ask(vm, "remove", WITH_MCI) for vm in vms), ask(mci.id, "delete")]


def _converted(given: Mapping[str, Any]) -> MciSpec:
    try:
        return msgspec.convert(dict(given), MciSpec)
    except msgspec.ValidationError as error:
        problem = bad_input(error, MciSpec, "")
        problem.field = problem.field or "spec"
        raise problem from error


def _wanted(name: str, uid: str, given: Mapping[str, Any]) -> MciSpec:
    """Read a fleet; errors use the author's field names."""
    written: dict[str, str] = {}
    fleet = _renamed("", "", given, HEAD, written)
    groups, path = fleet.get("subGroups"), written.get("subGroups", "groups")
    if not isinstance(groups, list):
        raise BadInput(path, groups, "a list of at least one subgroup")
    fleet["subGroups"] = [
        _renamed(f"{path}[{number}]", f"subGroups[{number}]", group, GROUP, written)
        for number, group in enumerate(groups)
    ]
    if fleet.get("postCommand") is not None:
        fleet["postCommand"] = _renamed("postCommand", "postCommand", fleet["postCommand"], COMMAND, written)
    try:
        return parse_mci(Fields({**fleet, "name": name}), uid, dynamic=True, least=1)
    except BadInput as error:
        # the path has the author's names; an index or key at its end stays
        within = (path for path in written if error.field == path or error.field.startswith((f"{path}.", f"{path}[")))
        known = max(within, key=len, default="")
        field = written.get(known, "") + error.field.removeprefix(known)
        raise BadInput(field, error.value, error.allowed) from error


def _renamed(path: str, wire_path: str, given: object, names: Names, written: dict[str, str]) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise BadInput(path, given, "an object with fields")
    written[wire_path] = path
    renamed: dict[str, Any] = {}
    for name, value in given.items():
        wire, field = names.get(name), f"{path}.{name}" if path else name
        if wire is None:
            raise BadInput(field, value, f"one of {', '.join(names)}")
        if wire in renamed:
            raise BadInput(field, value, "given once: its other name is given too")
        renamed[wire] = value
        written[f"{wire_path}.{wire}" if wire_path else wire] = field
    return renamed
