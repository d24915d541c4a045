"""A model of the agent protocol for one instance, to be explored: controller, agent, user and clock.

`explore` tries every order of events on production code: the controller's fencing, records and reconciliation
(`edge.records`), the agent's admission of orders and its inventory (`agents.order_admission`, `agents.connection`), and
the messages of the wire. Only their environment is a model: a network, a site, a user, a clock.

- A connection is made in one step; that it breaks is the crash of either side, for in memory the controller keeps only
  what belongs to the connection. Messages overtake each other also within a connection, which is harsher than TCP.
- What exists at the site survives the agent, with its generation; work that a crash interrupts may leave pieces.
- The clock may pass any deadline at any moment.
- The decisions on which it all rests are `Rules`; a test can plant a wrong one and see it found.
"""

from tests.models.edge_protocol.agent_side import APPLIED_TWICE, TWO_AT_ONCE
from tests.models.edge_protocol.controller_side import ILLEGAL, ORPHAN
from tests.models.edge_protocol.instance_protocol import (
    ABSENT_IS_TRUE,
    AT_REST,
    INVARIANTS,
    MISSING_IS_TRUE,
    READY_IS_TRUE,
    Scenario,
    instance_protocol,
    listing,
)
from tests.models.edge_protocol.parties import (
    FORCED_DELETE,
    USER_REQUESTS,
    Agent,
    ClockEvent,
    Controller,
    Link,
    Rules,
    UserRequest,
    admit,
)

__all__ = [
    "ABSENT_IS_TRUE",
    "APPLIED_TWICE",
    "AT_REST",
    "FORCED_DELETE",
    "ILLEGAL",
    "INVARIANTS",
    "MISSING_IS_TRUE",
    "ORPHAN",
    "READY_IS_TRUE",
    "TWO_AT_ONCE",
    "USER_REQUESTS",
    "Agent",
    "ClockEvent",
    "Controller",
    "Link",
    "Rules",
    "Scenario",
    "UserRequest",
    "admit",
    "instance_protocol",
    "listing",
]
