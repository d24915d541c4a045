"""How agents find a controller."""

from random import Random

import pytest

from stateward.agents.dialer import MAX_DELAY_S, WebSocketDialer, check_controller_url
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
