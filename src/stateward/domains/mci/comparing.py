"""Comparison of VMs at rest with a listing of their provider's region, for the regular rounds and for readers.

A listing may be shared by many, and be older than the record that it is compared with. So each comparison carries the
time at which the provider was asked, and the engine takes over only what is newer than the VM's last change. All that a
listing changes is one transaction, however many VMs of the region it is about.
"""

from collections.abc import Iterable

from stateward.domains.mci.clouds import Cloud
from stateward.domains.mci.evidence import CANNOT_SAY, Look, drift
from stateward.domains.mci.lifecycle import VmState
from stateward.domains.mci.model import errand_of, seen_of, text
from stateward.drivers import MachineListing
from stateward.engine import Engine
from stateward.engine.external_reports import Sighting
from stateward.store.records import Object

WATCHED = frozenset({VmState.RUNNING, VmState.SUSPENDED, VmState.UNDEFINED})
"""The states of VMs that follow what their providers show."""


async def take_over(engine: Engine, cloud: Cloud, listing: MachineListing, vms: Iterable[Object]) -> int:
    """Bring VMs at rest to what a listing shows of them; returns how many records are to be read again.

    A record that differs from the listing has changed now, by this call or by another one that has the same listing.
    """
    watched = {errand_of(one).uid: one for one in vms if one.state in WATCHED and one.op is None}
    looks = cloud.read(listing, watched)
    events = {uid: event for uid, one in watched.items() if (event := drift(one.state, looks[uid])) is not None}
    if not events:
        return 0
    now = await engine.store.reader.time()  # before the age is taken: a store that answers late must not make it newer
    at = now - (cloud.clock() - listing.requested_at + cloud.driver.caps.listing_lag_s)
    await engine.observe([_sighting(watched[uid], event, looks[uid], at) for uid, event in events.items()])
    return len(events)


def _sighting(vm: Object, event: str, look: Look, at: float) -> Sighting:
    seen = None if look.shown is None else text(seen_of(look.shown))
    reason = None
    if event == CANNOT_SAY and look.silent:
        reason = f"the provider has not shown it for {look.silent:.0f} s: {look.trouble}"
    elif event == CANNOT_SAY:
        reason = "the provider does not show it any more"
    return Sighting(vm.ns, vm.id, event, at, seen, reason)
