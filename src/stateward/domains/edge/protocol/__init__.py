"""A model of the agent protocol for one instance, to be explored: controller, agent, user and clock.

It says in pure functions what the controller and the agent have to do for a ClusterInst to end where both agree, and
`explore` tries it against every order of events. The controller's state changes by the declared table alone.

- A connection is made in one step; that it breaks is the crash of either side, for in memory the controller keeps only
  what belongs to the connection. Messages overtake each other also within a connection, which is harsher than TCP.
- What exists at the site survives the agent, with its generation; work that a crash interrupts may leave pieces.
- The clock may pass any deadline at any moment.
- The decisions on which it all rests are `Rules`; a test can plant a wrong one and see it found.
"""

from stateward.domains.edge.protocol.agent import APPLIED_TWICE, TWO_AT_ONCE
from stateward.domains.edge.protocol.controller import ILLEGAL, ORPHAN
from stateward.domains.edge.protocol.instance import (
    ABSENT_IS_TRUE,
    AT_REST,
    INVARIANTS,
    MISSING_IS_TRUE,
    READY_IS_TRUE,
    Scenario,
    instance_protocol,
    listing,
)
from stateward.domains.edge.protocol.rules import Admission, Rules, admit, all_listed
from stateward.domains.edge.protocol.words import (
    FORCED_DELETE,
    WISHES,
    Agent,
    Bell,
    Book,
    Controller,
    Link,
    Order,
    Wish,
    Work,
    fulfils,
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
    "WISHES",
    "Admission",
    "Agent",
    "Bell",
    "Book",
    "Controller",
    "Link",
    "Order",
    "Rules",
    "Scenario",
    "Wish",
    "Work",
    "admit",
    "all_listed",
    "fulfils",
    "instance_protocol",
    "listing",
]
