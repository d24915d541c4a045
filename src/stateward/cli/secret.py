"""A token in memory: it is sent, and never shown."""


class Secret:
    """A text that does not appear when it is printed, formatted or found in a traceback."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def hidden_in(self, line: str) -> str:
        """Return a line without the secret, should it have got there."""
        return line.replace(self.text, "(token)") if self.text else line

    def __repr__(self) -> str:
        return "(token)"
