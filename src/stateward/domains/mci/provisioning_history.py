"""History of creations: how often VMs of a spec were created, and why they failed; from the stored operations.

The history goes back as far as operations are kept, and at most to the newest creations of each namespace.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from stateward.domains.mci.lifecycle import VM
from stateward.domains.mci.model import vm_of
from stateward.store.filters import OperationFilter
from stateward.store.port import Reader
from stateward.store.records import Key, Status

MAX_CREATIONS = 200
"""How many creations of each namespace are read, newest first."""

HIGH_RATE, MEDIUM_RATE = 0.8, 0.5
"""The shares of failures from which a risk is high, or medium."""


class CreationAttempt(Struct, frozen=True):
    """One VM that was created, or could not be."""

    spec: str
    image: str
    connection: str
    provider: str
    region: str
    succeeded: bool
    error: str
    ended: float


class Risk(Struct, frozen=True):
    """How likely a creation fails, by what has happened before."""

    level: str
    message: str
    rate: float


async def attempts_with(reader: Reader, namespaces: Iterable[str], spec: str) -> list[CreationAttempt]:
    """Return the creations of VMs with a spec, oldest first."""
    attempts: list[CreationAttempt] = []
    for ns in namespaces:
        wanted = OperationFilter(ns, kind=VM.kind, action="create")
        for entry in await reader.list_operations(wanted, None, MAX_CREATIONS):
            parts = [entry, *await reader.children_of(entry.key)]
            ended = [
                operation
                for operation in parts
                if operation.kind == VM.kind and operation.action == "create" and operation.ended is not None
            ]
            objects = await reader.objects([Key(ns, operation.object) for operation in ended])
            for operation in ended:
                created = objects.get(Key(ns, operation.object))
                if created is None or operation.status not in (Status.SUCCEEDED, Status.FAILED):
                    continue
                vm = vm_of(created)
                if vm.spec == spec:
                    good, at = operation.status is Status.SUCCEEDED, operation.ended or 0.0
                    place = vm.connection, vm.provider, vm.region
                    attempts.append(CreationAttempt(vm.spec, vm.csp_image, *place, good, operation.error or "", at))
    return sorted(attempts, key=lambda attempt: attempt.ended)


def risk_of(attempts: Sequence[CreationAttempt]) -> Risk:
    """Return the risk of a further creation."""
    if not attempts:
        return Risk("low", "no VM of this spec was created here before", 0.0)
    failed = sum(not attempt.succeeded for attempt in attempts)
    rate = failed / len(attempts)
    level = "high" if rate >= HIGH_RATE else "medium" if rate >= MEDIUM_RATE else "low"
    return Risk(level, f"{failed} of {len(attempts)} creations with this spec have failed", rate)
