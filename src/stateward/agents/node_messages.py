"""Messages between controllers and the agents of nodes alone: values of secrets."""

from msgspec import Struct

from stateward.agents.message_types import Name, Number


class SecretRequest(Struct, frozen=True, tag="read secret"):
    """A request of an agent for the value of a secret that an instance on its node needs."""

    request: Number
    notify: Number
    secret: Name


class SecretAnswer(Struct, frozen=True, tag="secret"):
    """The value of a secret, or an error that tells why there is none; with `retry` it may pass."""

    request: int
    notify: int
    value: str = ""
    error: str = ""
    retry: bool = False

    def __repr__(self) -> str:
        """Show no value: messages may be logged."""
        return f"SecretAnswer(request={self.request}, notify={self.notify}, error={self.error!r})"
