"""How agents find a controller."""

import logging
from random import Random

import pytest
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.frames import Close
from websockets.http11 import Response

from stateward.agents.agent import Agent
from stateward.agents.agent_ports import FORBIDDEN_MEANS, AgentSocket, Dismissed
from stateward.agents.dialer import MAX_DELAY_S, WebSocketDialer, check_controller_url
from stateward.agents.self_upgrade import NoUpgrade
from stateward.agents.simulation import SimulatedSite
from stateward.errors import BadInput


def caller(*controllers: str) -> WebSocketDialer:
    return WebSocketDialer(controllers or ("ws://127.0.0.1:1",), "/agents", "lab", "munich", "token", Random(1))


@pytest.mark.parametrize("url", ["http://x", "wss://", "x", "ws://user:secret@x", "ws://x?y=1"])
def test_an_address_that_is_none_is_refused_and_never_shown_with_a_password(url: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_controller_url(url)
    assert "secret" not in str(refused.value)


async def test_controllers_are_dialled_in_turn_and_pauses_grow_to_a_limit() -> None:
    one = caller("ws://127.0.0.1:1", "ws://127.0.0.1:2")
    pauses = []
    for _ in range(12):
        with pytest.raises(OSError, match=r"(?i)connect"):
            await one.dial()
        pauses.append(one.retry_delay_s)
    assert max(pauses[:2]) < 1.0
    assert max(pauses) <= MAX_DELAY_S
    assert max(pauses[-3:]) > 1.0
    assert len(set(pauses)) == len(pauses)
    one.reset_backoff()
    assert one.retry_delay_s < 1.0


class RefusedDialer:
    """A dialer that meets one error after the other, until its agent is dismissed."""

    retry_delay_s = 0.0

    def __init__(self, *errors: Exception) -> None:
        self._errors = [*errors, Dismissed("enough")]

    async def dial(self) -> AgentSocket:
        raise self._errors.pop(0)

    def reset_backoff(self) -> None:
        raise AssertionError("it was never connected")


async def test_an_agent_logs_in_plain_words_why_it_is_refused_and_again_only_when_that_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    foreign = Close(4403, "the token is not for this cloudlet")
    forbidden, closed = InvalidStatus(Response(403, "", Headers())), ConnectionClosedError(foreign, foreign, True)
    dialer = RefusedDialer(forbidden, forbidden, closed, closed, OSError("no route"), forbidden)
    with caplog.at_level(logging.INFO, "stateward.agent"):
        await Agent(SimulatedSite(), dialer, "1.0", NoUpgrade()).run()
    status = f"the controller refuses the connection with HTTP status 403: {FORBIDDEN_MEANS}"
    reasons = (status, f"the controller has closed the connection: {foreign.reason}", "no route", status)
    said = [f"agent is not connected and will retry: {why}" for why in reasons]
    assert caplog.messages == [*said, "agent ends, dismissed by the controller: enough"]
