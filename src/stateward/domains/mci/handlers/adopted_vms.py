"""VMs of adopted machines: their specs, from what the providers show, and their release."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from stateward.domains.mci.handlers.adoption_handlers import AdoptionHandlers, wait_until_unlisted
from stateward.domains.mci.model import ADOPTED_KEY, Adoption, CloudConnection, MachineToAdopt, VmSpec, vm_of
from stateward.domains.mci.provider.catalogue import Catalogue, known_images, known_specs
from stateward.domains.mci.provider.provider_pool import ProviderClients
from stateward.domains.mci.vm_placement import deterministic_uid, free_numbers
from stateward.drivers import Observation
from stateward.engine import Job, Permanent
from stateward.errors import StatewardError
from stateward.store.records import Object


class AdoptedVms:
    """Makes the specs of VMs whose machines are adopted, and releases machines."""

    def __init__(self, catalogue: Catalogue, clients: ProviderClients, adoptions: AdoptionHandlers) -> None:
        self._catalogue, self._clients, self._adoptions = catalogue, clients, adoptions

    async def vm_specs(self, job: Job, wanted: Adoption, vms: Callable[[], Awaitable[list[Object]]]) -> Any:  # noqa: ANN401 - JSON
        """Return the specs of the VMs of an adoption, as plain data; a machine that is not shown has no details."""
        taken = [vm_of(vm).name for vm in await vms()]
        shown: dict[str, dict[str, Observation]] = {}
        specs: list[VmSpec] = []
        for adopted in wanted.machines:
            place = await self._connection(adopted)
            if adopted.connection not in shown:
                listing = await (await self._clients.for_connection(place)).list_unmarked()
                shown[adopted.connection] = {machine.native_id: machine for machine in listing.machines}
            (number,) = free_numbers(taken, adopted.group, 1)
            name = f"{adopted.group}-{number}"
            taken.append(name)
            specs.append(_vm_spec(job, adopted, place, name, shown[adopted.connection].get(adopted.native_id)))
        return msgspec.to_builtins(specs)

    async def _connection(self, machine: MachineToAdopt) -> CloudConnection:
        try:
            return await self._catalogue.connection(machine.connection)
        except StatewardError as error:
            raise Permanent(str(error)) from error

    async def release(self, job: Job, ids: Sequence[str]) -> list[str]:
        """Take our keys off the machines of VMs; a VM with a running operation is waited for.

        Returns when listings no longer show the keys: a key that is listed without a record would look like an orphan.
        """
        released = [await self._adoptions.release(job.ns, id_) for id_ in ids]
        await asyncio.gather(*(wait_until_unlisted(key) for key in released if key is not None))
        return list(ids)


def _vm_spec(job: Job, machine: MachineToAdopt, place: CloudConnection, name: str, shown: Observation | None) -> VmSpec:
    details = {} if shown is None else shown.details
    csp_spec, csp_image = details.get("spec", ""), details.get("image", "")
    spec = next((known for known in known_specs(place) if known.csp_name == csp_spec), None)
    image = next((known for known in known_images(place) if known.csp_name == csp_image), None)
    return VmSpec(
        name=name,
        uid=f"{ADOPTED_KEY}{deterministic_uid(job.key.id, name)}",
        mci=job.object,
        group=machine.group,
        connection=place.name,
        provider=place.provider,
        region=place.region,
        zone=details.get("zone", ""),
        spec="" if spec is None else spec.id,
        image="" if image is None else image.id,
        csp_spec=csp_spec,
        csp_image=csp_image,
        cost=0.0 if spec is None else spec.cost,
        user=machine.user,
        label=machine.label,
        description=machine.description,
        adopted=machine.native_id,
    )
