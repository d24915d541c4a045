from stateward.access import Grant, Role
from stateward.agents.messages import Hello, encode
from stateward.domains.edge.agents.agent_auth import MAX_CLOSE_REASON_BYTES, WRONG_CLOUDLET, refusal_reason
from stateward.domains.edge.api.routes import connect_agent
from stateward.store.records import Key


def agent(*named: str) -> Grant:
    return Grant("0123456789ab", "munich", Role.AGENT, frozenset(named))


def test_an_agent_speaks_for_the_cloudlets_that_its_token_names() -> None:
    assert agent("lab:munich").speaks_for("lab", "munich")
    assert not agent("lab:munich").speaks_for("lab", "berlin")
    assert not agent("lab:munich").speaks_for("other", "munich")
    assert agent("lab:*").speaks_for("lab", "berlin")
    assert not agent("lab:*").speaks_for("other", "berlin")


def test_a_token_for_all_names_names_no_site() -> None:
    assert agent("lab:munich").names_site("lab", "munich")
    assert not agent("lab:*", "*", "lab").names_site("lab", "munich")


def test_a_token_of_before_that_names_a_namespace_speaks_for_nothing_and_says_how_to_renew_it() -> None:
    for named in ("lab", "*"):
        assert not agent(named).speaks_for("lab", "munich")
        assert refusal_reason(agent(named), "lab", "munich").endswith(
            "stateward token create --role agent --ns lab:munich"
        )
    assert refusal_reason(agent("lab:berlin"), "lab", "munich") == WRONG_CLOUDLET


def test_the_reason_of_a_refusal_fits_into_the_frame_that_closes_a_connection() -> None:
    assert len(refusal_reason(agent("l" * 200), "l" * 200, "m" * 60)) <= MAX_CLOSE_REASON_BYTES


class LostSocket:
    """A WebSocket whose peer has sent a hello and was lost since: what it sent can still be read."""

    def __init__(self, token: Grant) -> None:
        self.scope = {"auth": token}
        self.read = 0

    async def accept(self) -> None: ...

    async def close(self, code: int, reason: str) -> None:
        raise OSError("the peer is lost")

    async def receive_text(self) -> str:
        self.read += 1
        return encode(Hello("1.0")).decode()


class StrictHub:
    """A hub that only counts refused tokens."""

    refused = 0

    def refuse_token(self, grant: Grant, site: Key) -> None:
        self.refused += 1


async def test_an_agent_with_a_foreign_token_is_not_heard_though_it_is_lost_while_it_is_refused() -> None:
    socket, hub = LostSocket(agent("lab:berlin")), StrictHub()
    await connect_agent.fn(socket, hub, "lab", "munich")
    assert (hub.refused, socket.read) == (1, 0)
