"""Errors of input that the clients of OpenStack Blazar know by a certain sentence.

Programs look for these sentences in `error_message`, and Blazar's own API tests do too. The facts beside the sentence
are the same as for any other bad input: the field, its value, and what would be allowed.
"""

from stateward.errors import BadInput


class Rejected(BadInput):
    """Bad input, told by Blazar's own sentence."""

    def __init__(self, sentence: str, field: str, value: object, allowed: str, *, state: str | None = None) -> None:
        super().__init__(field, value, allowed, state=state)
        self.sentence = sentence

    def __str__(self) -> str:
        return self.sentence
