"""The decisions on which the protocol rests, each by itself, so that a test can plant a wrong one and see it found."""

from collections.abc import Callable

from stateward.agents import admission
from stateward.agents.admission import Admission
from stateward.agents.listing import all_listed, of_this_connection
from stateward.agents.messages import End, Item, Order
from stateward.domains.edge import book
from stateward.domains.edge.protocol.words import Agent, Link


def admit(agent: Agent, order: Order) -> Admission:
    """Let the agent's own guard decide."""
    return admission.admit(agent.site, agent.mind, order)


class Rules(book.Rules, frozen=True):
    """The right decisions; a variant replaces some of them."""

    heeds: Callable[[Link, Item | End], bool] = of_this_connection
    listed: Callable[[Link], bool] = all_listed
    admit: Callable[[Agent, Order], Admission] = admit
