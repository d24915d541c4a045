"""Errors of the edge domain. A refused request has changed nothing."""

from collections.abc import Sequence

from stateward.engine import Denied
from stateward.errors import count_text


def names_text(names: Sequence[str], count: int, most: int = 5) -> str:
    """Return the first of some names, and how many others there are of so many."""
    others = count - min(len(names), most)
    return " and ".join([*filter(None, [", ".join(names[:most])]), *([count_text(others, "other")] if others else [])])


class StillReferenced(Denied, code="in_use"):
    """Other objects still use it."""

    what: str
    by: list[str]

    def __str__(self) -> str:
        return f"{self.what} is in use by {', '.join(self.by[:5])}{' and others' if len(self.by) > 5 else ''}"


class OrphansLeft(Denied, code="orphans_left"):
    """Orphans still run at the cloudlet; after a delete, no agent would report them."""

    cloudlet: str
    orphans: list[str]  # the first by name
    count: int = 0  # of all

    def __str__(self) -> str:
        named = names_text(self.orphans, max(self.count, len(self.orphans)))
        return (
            f"orphans run at cloudlet {self.cloudlet}: {named}. Have its agent remove "
            f"them (edge cloudlet update {self.cloudlet} --orphans remove), or leave them there (--ignore agent)"
        )


class ReferenceBeingDeleted(Denied, code="being_deleted"):
    """The request names an object that is being deleted."""

    what: str
    text = "{what} is being deleted"


class DependencyNotReady(Denied, code="not_ready"):
    """The request needs an object that does not exist, or is not Ready."""

    what: str
    state: str
    text = "{what} is {state}, and must be Ready"


class ActionInProgress(Denied, code="in_the_way", retry=True):
    """An action runs on the instance's cluster, or on one of its apps."""

    what: str
    state: str
    op: str | None

    def __str__(self) -> str:
        return f"{self.what} is {self.state}" + (f": blocked by operation {self.op}" if self.op else "")


class Upgrading(Denied, code="upgrading"):
    """The cloudlet is being upgraded, or its upgrade has failed; its instances cannot be changed."""

    after = 30.0
    """Seconds before a timer tries again."""

    def __init__(self, cloudlet: str, state: str, *, patient: bool = False) -> None:
        super().__init__(cloudlet, state)
        self.cloudlet, self.state = cloudlet, state
        self.retry = patient or state != "UpdateError"

    def __str__(self) -> str:
        why = "its upgrade has failed and has to be settled" if self.state == "UpdateError" else "it is being upgraded"
        return f"cloudlet {self.cloudlet} is {self.state}: {why}, and its instances are left alone until then"


class RestartDelayed(Denied, code="restart_delayed", retry=True):
    """The instance was re-created a short time ago, and ended again."""

    instance: str
    restarts: int
    after: float
    text = "{instance} was re-created {restarts} times in a row, and is re-created again in {after:.0f} s"


class InMaintenance(Denied, code="maintenance", retry=True):
    """The cloudlet is in maintenance, or is prepared for it; it gets no new instances."""

    cloudlet: str
    state: str
    text = "cloudlet {cloudlet} is {state}: it gets no new instances until the maintenance ends (edge cloudlet resume)"


class AdminOnly(Denied, code="forbidden"):
    """The caller uses an override, and is no administrator."""

    facts_asked: list[str]
    text = "only an administrator may say: {facts_asked}"


class AgentConnectionChanged(Denied, code="agent_moved", retry=True):
    """The agent has connected or disconnected since the caller read the cloudlet."""

    cloudlet: str
    text = "the agent of cloudlet {cloudlet} has connected or left just now: ask again"


class LimitReached(Denied, code="limit"):
    """A policy or a cloudlet has reached its maximum or minimum number."""

    what: str
    bound: str
    limit: int
    text = "{what} has to have {bound} {limit}"


class CapacityExceeded(Denied, code="capacity"):
    """The cloudlet has not enough left of what the request asks for."""

    cloudlet: str
    resource: str
    asked: float
    used: float
    free: float

    def __str__(self) -> str:
        asked, used, free = (f"{amount:,g}" for amount in (self.asked, self.used, self.free))
        return f"cloudlet {self.cloudlet} has too few {self.resource}: {asked} asked, {used} used, {free} free"


class Reserved(Denied, code="reserved"):
    """The cluster is reserved for another organisation."""

    cluster: str
    by: str

    def __str__(self) -> str:
        return f"cluster {self.cluster} is reserved by {self.by or 'nobody yet, and only for apps on an autocluster'}"


class AgentNotHere(Denied, code="agent_absent", retry=True):
    """The agent is connected to no controller, or to one that this one cannot reach."""

    cloudlet: str
    controller: str

    def __str__(self) -> str:
        if not self.controller:
            return f"the agent of cloudlet {self.cloudlet} is not connected"
        return (
            f"the agent of cloudlet {self.cloudlet} is connected to another server, {self.controller}, which has no "
            "address that this one knows: set server_url there, or ask there"
        )


class AgentCannotAnswer(Denied, code="agent_refused"):
    """The agent has refused a request for logs or a command, or has not answered it."""

    cloudlet: str
    why: str
    text = "the agent of cloudlet {cloudlet}: {why}"
