"""Agent upgrade: which connection serves a cloudlet, and which one is its successor.

Agents crash and reconnect, so connections are fenced. A message counts by the notify id of its connection, and in an
upgrade also by the agent's version: the acknowledgement counts from the old version, Init and Ready from the new one. A
stale Ready of the old version is ignored. The functions are pure, and the explorer checks them.

The wire protocol and the stored status call the successor `heir`.
"""

from enum import StrEnum
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from stateward.agents import messages
from stateward.domains.edge.lifecycle import MAINTAINED, NEW_AGENT, OLD_AGENT, UPGRADING, CloudletState
from stateward.lifecycle import AGENT, CONTROLLER, NO_FACTS

C = CloudletState

GATHER_FAILED = "gather failed"
IN_UPGRADE = (C.UPDATE_REQUESTED, C.UPDATING)
STARTABLE = (C.OFFLINE, C.READY, C.INIT, C.INIT_OK)

Role: TypeAlias = Literal["serving", "heir"]


class AgentSlots(Struct, frozen=True):
    """A cloudlet's two agent slots (serving and successor), with the versions before and after an upgrade.

    `operation` is the number of the current or last upgrade; `issued` is the last notify id. `is_maintained`: the
    upgrade began in maintenance, and ends there.
    """

    state: str = C.OFFLINE
    version: str = ""
    target: str = ""
    is_upgrading: bool = False
    operation: int = 0
    issued: int = 0
    serving: int = 0
    successor: int = 0
    is_maintained: bool = False

    def __str__(self) -> str:
        return f"{self.state}, version {self.version or '-'}, serving {self.serving}, heir {self.successor}"


class AgentRejection(StrEnum):
    """Reason why an agent, or one of its messages, is rejected."""

    GIVEN_UP = "the upgrade to this version was given up"
    FOREIGN = "an upgrade to another version is under way"
    OLD_CONNECTION = "a newer connection has taken its place"
    OTHER_VERSION = "another version of the agent may report this, not this one"
    OTHER_UPGRADE = "it is about another upgrade"
    TOO_LATE = "it took too long, and is to dial again"
    HELD = "the cloudlet belongs to another installation, until an administrator hands it over"


class CloudletEvent(Struct, frozen=True):
    """An event for the cloudlet's lifecycle table."""

    name: str
    actor: str
    facts: frozenset[str] = NO_FACTS


class SlotsUpdate(Struct, frozen=True):
    """The effect of a message on the slots: the new slots, and the lifecycle event, if any."""

    slots: AgentSlots
    event: CloudletEvent | None = None
    role: Role = "serving"


def is_held(owner: str | None, installation: str, *, is_served: bool, is_heir: bool) -> bool:
    """Tell whether an agent must wait, because the cloudlet belongs to another installation.

    Only a hand-over changes the owner, since a disconnected owner may still run all instances. The owner has started
    the successor, whose version may have no identity. An agent without an identity owns nothing, but no other
    installation replaces it while it serves.
    """
    if owner is None:
        return bool(installation) and is_served and not is_heir
    return installation != owner and not (is_heir and not installation)


def on_connect(slots: AgentSlots, version: str, heir: int = 0) -> SlotsUpdate | AgentRejection:
    """Assign a slot to a new connection: the serving one, or the successor's in an upgrade.

    `heir` is the upgrade for which the agent was started as a successor; it may connect for that upgrade only.
    """
    issued = slots.issued + 1
    if heir and (not slots.is_upgrading or heir != slots.operation):
        return AgentRejection.GIVEN_UP
    if slots.is_upgrading or slots.state == C.UPDATE_ERROR:
        return _on_connect_in_upgrade(replace(slots, issued=issued), version)
    # In other states it does not start the cloudlet, but it is accepted: a delete needs the agent, too.
    starts = CloudletEvent("start", AGENT) if slots.state in STARTABLE else None
    return SlotsUpdate(replace(slots, issued=issued, serving=issued, successor=0, version=version), starts)


def _on_connect_in_upgrade(slots: AgentSlots, version: str) -> SlotsUpdate | AgentRejection:
    if version == slots.version:
        event = CloudletEvent("serve on", OLD_AGENT) if slots.state == C.UPDATE_ERROR else None
        return SlotsUpdate(replace(slots, serving=slots.issued), event)
    if version != slots.target:
        return AgentRejection.FOREIGN
    if slots.state == C.UPDATE_ERROR:
        return AgentRejection.GIVEN_UP
    event = CloudletEvent("acknowledge", CONTROLLER) if slots.state in IN_UPGRADE else None
    return SlotsUpdate(replace(slots, successor=slots.issued), event, "heir")


def on_inventory(slots: AgentSlots, notify: int, version: str) -> SlotsUpdate | AgentRejection:
    """Apply a complete inventory: its agent becomes ready, and a successor becomes the serving agent."""
    if not slots.is_upgrading:
        if notify != slots.serving:
            return AgentRejection.OLD_CONNECTION
        if slots.state == C.OFFLINE:
            return AgentRejection.TOO_LATE
        return SlotsUpdate(slots, CloudletEvent("ready", AGENT) if slots.state == C.INIT_OK else None)
    if notify == slots.serving and version == slots.version:
        return SlotsUpdate(slots)  # the old agent has reconnected; the upgrade waits for the new one
    if version != slots.target:
        return AgentRejection.OTHER_VERSION
    if notify != slots.successor:
        return AgentRejection.OLD_CONNECTION
    facts = frozenset({UPGRADING}) if slots.state == C.INIT_OK else NO_FACTS
    facts |= {MAINTAINED} if slots.is_maintained else NO_FACTS
    after = replace(slots, serving=notify, successor=0, version=version, is_upgrading=False)
    return SlotsUpdate(after, CloudletEvent("ready", NEW_AGENT, facts))


def on_agent_report(
    slots: AgentSlots, notify: int, version: str, event: str, operation: int
) -> SlotsUpdate | AgentRejection:
    """Apply a report about the agent itself: upgrade started, upgrade failed, or inventory failed."""
    if notify not in (slots.serving, slots.successor):
        return AgentRejection.OLD_CONNECTION
    if event == GATHER_FAILED:
        counts = notify == slots.serving and not slots.is_upgrading
        return SlotsUpdate(slots, CloudletEvent(event, AGENT) if counts else None)
    if not slots.is_upgrading or operation != slots.operation:
        return AgentRejection.OTHER_UPGRADE
    if notify != slots.serving or version != slots.version:
        return AgentRejection.OTHER_VERSION
    if event == messages.UPGRADING:
        return SlotsUpdate(slots, CloudletEvent(event, OLD_AGENT) if slots.state == C.UPDATE_REQUESTED else None)
    facts = frozenset({UPGRADING}) if slots.state == C.INIT_OK else NO_FACTS
    failure = CloudletEvent(messages.UPGRADE_FAILED, OLD_AGENT, facts)
    return SlotsUpdate(replace(slots, successor=0, is_upgrading=False), failure)


def on_disconnect(slots: AgentSlots, notify: int) -> SlotsUpdate:
    """Apply the loss of a connection; the cloudlet goes offline unless a newer one is there."""
    if notify == slots.successor:
        return SlotsUpdate(replace(slots, successor=0))
    if notify != slots.serving:
        return SlotsUpdate(slots)
    after = replace(slots, serving=0)
    online = slots.state in (C.READY, C.INIT, C.INIT_OK) and not slots.is_upgrading
    return SlotsUpdate(after, CloudletEvent("disconnected", CONTROLLER) if online else None)


def is_upgrade_due(slots: AgentSlots, notify: int) -> bool:
    """Tell whether the agent of a connection must be ordered to start its successor."""
    return slots.is_upgrading and notify == slots.serving and not slots.successor and slots.state in IN_UPGRADE


def must_disconnect(slots: AgentSlots, notify: int) -> bool:
    """Tell whether a connection must be closed: its start timed out, or another one has replaced it."""
    return notify not in (slots.serving, slots.successor) or (slots.state == C.OFFLINE and notify == slots.serving)
