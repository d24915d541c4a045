"""The errors of the house: each carries its facts as fields, and its text is built from them in one place."""

from collections.abc import Iterable
from difflib import get_close_matches


class StatewardError(Exception):
    """The base of every error that Stateward raises on purpose."""

    retry = False
    """Whether the same request may succeed later without being changed."""

    def facts(self) -> dict[str, object]:
        """Return the error's public fields, for a machine to read."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


class UnknownName(StatewardError):
    """A name was given that nothing goes by; says what exists and what was probably meant."""

    code = "unknown_name"

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        super().__init__(what, name)
        self.what = what
        self.name = str(name)
        self.known = tuple(str(one) for one in known)
        near = get_close_matches(self.name.lower(), [one.lower() for one in self.known], n=1)
        self.nearest = next((one for one in self.known if near and one.lower() == near[0]), None)

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest!r}?" if self.nearest else "."
        return f"unknown {self.what} {self.name!r}{hint} Known: {', '.join(self.known) or 'none'}"


class BadInput(StatewardError):
    """A value that cannot be used; names the field and what would be allowed."""

    state: str | None = None
    """In what state the object is that it was meant for, if there is one."""

    def __init__(self, field: str, value: object, allowed: str, *, state: str | None = None) -> None:
        super().__init__(field, value, allowed)
        self.field = field
        self.value = value
        self.allowed = allowed
        if state is not None:
            self.state = state

    def __str__(self) -> str:
        return f"{self.field}: {self.value!r} is not {self.allowed}"


class UnknownField(BadInput):
    """A body has a field that nobody reads; says which fields there are, and which was probably meant."""

    def __init__(self, field: str, known: Iterable[str]) -> None:
        meant = UnknownName("field", field.rpartition(".")[2], known)
        self.known, self.nearest = meant.known, meant.nearest
        hint = f"; did you mean {meant.nearest!r}?" if meant.nearest else ";"
        super().__init__(field, None, f"a field of this body{hint} Known: {', '.join(self.known)}")
