"""The base of all errors, and the errors of input.

An error carries its facts as fields, and its text is built from them in one place. Most errors need no more than that,
so they are declared like a record:

    class NotReady(Denied, code="not_ready", retry=True):
        cluster: str
        state: str
        text = "cluster {cluster} is {state}, and must be Ready"

    raise NotReady("k8s", state="Creating")

The annotated fields, in their order, are the parameters of the constructor and the facts for a machine; a field with a
value has it as its default. `text` is a format string of the fields, in which a list is shown with commas. An error
whose text depends on more than its fields defines `__str__`, and one whose fields are computed defines `__init__`.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from inspect import get_annotations
from typing import Any, ClassVar, dataclass_transform, get_origin

_MISSING = object()


@dataclass_transform()
class StatewardError(Exception):
    """The base of every error that Stateward raises on purpose."""

    retry = False
    """Whether the same request may succeed later without being changed."""

    text: ClassVar[str] = ""
    """The message of a declared error, as a format string of its fields."""

    _fields: ClassVar[Mapping[str, object]] = {}

    def __init_subclass__(cls, *, code: str | None = None, retry: bool | None = None) -> None:
        super().__init_subclass__()
        if code is not None:
            cls.code = code  # type: ignore[attr-defined]
        if retry is not None:
            cls.retry = retry
        own = [name for name, of in get_annotations(cls).items() if not _is_class_variable(of)]
        if own and "__init__" not in vars(cls):
            cls._fields = {**cls._fields, **{name: vars(cls).get(name, _MISSING) for name in own}}
            cls.__init__ = _init_from_fields  # type: ignore[method-assign, assignment]

    def __str__(self) -> str:
        if not self.text:
            return super().__str__()
        return self.text.format(**{name: _shown(value) for name, value in vars(self).items()})

    def facts(self) -> dict[str, object]:
        """Return the error's public fields, for a machine to read."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


def _init_from_fields(self: StatewardError, *given: object, **named: object) -> None:
    """Set the fields of a declared error, from arguments in their order or by name."""
    fields, name = type(self)._fields, type(self).__name__
    if len(given) > len(fields):
        raise TypeError(f"{name} has {len(fields)} fields, but {len(given)} values were given")
    ordered = dict(zip(fields, given, strict=False))
    if wrong := (named.keys() - fields.keys()) | (named.keys() & ordered.keys()):
        raise TypeError(f"{name} was given an unknown field, or a field twice: {', '.join(sorted(wrong))}")
    values = {**fields, **ordered, **named}
    if missing := [field for field, value in values.items() if value is _MISSING]:
        raise TypeError(f"{name} needs {', '.join(missing)}")
    Exception.__init__(self, *values.values())
    vars(self).update(values)


def _is_class_variable(annotation: Any) -> bool:  # noqa: ANN401 - annotations have no type in common
    return get_origin(annotation) is ClassVar


def _shown(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value


MOST_NAMES = 20
"""How many known names a message lists if one of them is near; the facts of the error have them all."""


def describe_known(known: Sequence[str], nearest: str | None) -> str:
    """Return the end of a message about an unknown name: the probable one, and those that exist."""
    if nearest and len(known) > MOST_NAMES:
        return f"; did you mean {nearest!r}?"
    return f"{f'; did you mean {nearest!r}?' if nearest else '.'} Known: {', '.join(known) or 'none'}"


def count_text(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, such as `1 object` and `4,050 objects`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


class UnknownName(StatewardError):
    """A name was given that nothing goes by; says what exists and what was probably meant."""

    code = "unknown_name"

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        super().__init__(what, name)
        self.what = what
        self.name = str(name)
        self.known = tuple(str(candidate) for candidate in known)
        near = get_close_matches(self.name.lower(), [candidate.lower() for candidate in self.known], n=1)
        self.nearest = next((candidate for candidate in self.known if near and candidate.lower() == near[0]), None)

    def __str__(self) -> str:
        return f"unknown {self.what} {self.name!r}{describe_known(self.known, self.nearest)}"


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
        given = "" if self.value is None else f"{self.value!r} "
        return f"{self.field}: {given}must be {self.allowed}"


class UnknownField(BadInput):
    """A body or a query has a field that nobody reads; says which there are, and which was probably meant."""

    def __init__(self, field: str, known: Iterable[str], what: str = "field of this body") -> None:
        meant = UnknownName("field", field.rpartition(".")[2], known)
        self.known, self.nearest = meant.known, meant.nearest
        super().__init__(field, None, f"a {what}" + (describe_known(self.known, self.nearest) if self.known else ""))


class UnknownValue(BadInput):
    """A field has a name that nothing goes by, such as a state that no object can have."""

    def __init__(self, field: str, what: str, name: str, known: Iterable[str]) -> None:
        meant = UnknownName(what, name, known)
        self.known, self.nearest = meant.known, meant.nearest
        known_ones = f"a known {what}, and {meant.name!r} is none{describe_known(self.known, self.nearest)}"
        super().__init__(field, None, known_ones)


class NotOffered(StatewardError, code="not_offered"):
    """A request that is well known, and that this server does not offer on purpose."""

    what: str
    why: str
    text = "{what} is not offered: {why}"
