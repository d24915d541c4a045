"""The declared types of a kind: requests are checked with them, and stored specs of earlier versions are upgraded.

A stored spec outlives the program that wrote it. A kind whose specs have changed counts their versions, and the stored
specs carry theirs, from version 2 on. Whoever reads a spec reads it in the present version: jobs, responses, exports.

Invariant: an object whose spec cannot be upgraded can still be listed, shown and deleted. The work on an object whose
spec is of a later version is left to processes that know this version (see `Kinds.pass_over_unknown`).
"""

import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stateward.engine import typed_values
from stateward.engine.requests import EMPTY, Request
from stateward.engine.tracebacks import format_traceback
from stateward.errors import BadInput, StatewardError
from stateward.store.records import to_json

log = logging.getLogger("stateward.engine")

Upgrade: TypeAlias = Callable[[dict[str, Any], int], dict[str, Any]]
"""Returns a spec of an earlier version, which is given, in the present one."""


class UnfitValue(BadInput):
    """A spec, or arguments, that are not of the type that the kind declares; with the facts of the error."""

    def __init__(self, error: BadInput) -> None:
        super().__init__(error.field, None, error.allowed, state=error.state)
        self.known, self.nearest = getattr(error, "known", None), getattr(error, "nearest", None)


def require_known_fields(given: Any, spec: Struct, request: Request, state: str) -> None:  # noqa: ANN401 - plain JSON
    """Refuse a requested spec, in plain JSON, with a field that its record does not have.

    A guard calls this if its kind declares no type of specs, for example because an action may give a part of one.
    """
    try:
        typed_values.refuse_unknown_fields(given, spec, "spec", None if request.creates is not None else state)
    except BadInput as error:
        raise UnfitValue(error) from error


VERSION_STAMP = '{"$version":'
"""The beginning of a stored spec of a version above 1, which no spec in a request can have."""

_STAMP = re.compile(r'\{"\$version":(\d{1,9})(?:,|(?=\}))')


class UnreadableSpec(StatewardError):
    """A stored spec cannot be read: its version is unknown, or it does not have the form of the present version."""

    version: int
    why: str
    text = "the stored spec, of version {version}, cannot be read: {why}"


class KindTypes:
    """The types of a kind's specs, and of the arguments of its actions."""

    __slots__ = ("_failed_upgrades", "_kind", "_secret_names", "_upgrade", "args", "has_secrets", "spec", "version")

    def __init__(
        self,
        kind: str,
        spec: type[Struct] | None,
        args: Mapping[str, type[Struct]],
        version: int = 1,
        upgrade: Upgrade | None = None,
    ) -> None:
        if version < 1 or (spec is None and version > 1):
            raise BadInput(f"spec_version of kind {kind}", version, "1 or more, with a type of specs")
        if (version > 1) is (upgrade is None):
            raise BadInput(f"upgrade of kind {kind}", upgrade, "a function for earlier specs if spec_version is over 1")
        self.spec = None if spec is None else typed_values.declared_type(kind, "spec", spec)
        self.args = {
            action: typed_values.declared_type(kind, f"args of {action}", struct) for action, struct in args.items()
        }
        self.version, self._upgrade = version, upgrade
        self._kind, self._failed_upgrades = kind, set[int]()  # bounded by: the versions of a kind
        types = [*self.args.values(), *([] if self.spec is None else [self.spec])]
        self._secret_names = frozenset(name for declared in types for name in declared.secret_names)
        self.has_secrets = any(declared.has_secrets for declared in types)

    def check(self, request: Request, state: str) -> Request:
        """Return a request with its spec and arguments as they are stored; raises if they are not of their types."""
        try:
            at = None if request.creates is not None else state
            spec, args = request.spec, request.args
            if self.spec is not None and (spec is not None or request.creates is not None):
                spec = self.spec.normalize(spec or EMPTY, "spec", at)
            if (typed := self.args.get(request.action)) is not None:
                args = typed.normalize(args, "args", at)
            elif self.args and args != EMPTY:
                raise BadInput("args", None, f"left out: {request.action} takes no arguments", state=at)
            return replace(request, spec=spec, args=args)
        except BadInput as error:
            raise UnfitValue(error) from error

    def stamp(self, request: Request) -> Request:
        """Return a request whose spec carries its version."""
        if self.version == 1 or request.spec is None:
            return request
        rest = request.spec.removeprefix("{")
        return replace(request, spec=f'{{"$version":{self.version}{"" if rest == "}" else ","}{rest}')

    def read_spec(self, text: str) -> Any:  # noqa: ANN401 - the kind's struct, or any JSON
        """Return a stored spec in the present version."""
        if self.spec is None:
            return msgspec.json.decode(text)
        try:
            return self.spec.read(self._upgraded(self.spec, text), "spec")
        except BadInput as error:
            raise UnreadableSpec(_unstamped(text)[0], str(error)) from error

    def read_args(self, action: str, text: str) -> Any:  # noqa: ANN401 - the action's struct, or any JSON
        """Return stored arguments of an action."""
        typed = self.args.get(action)
        return msgspec.json.decode(text) if typed is None else typed.read(text, "args")

    def show_spec(self, text: str) -> tuple[str, str | None]:
        """Return a stored spec in the present version, without secrets; and why it cannot be read, if so."""
        if self.spec is None:
            return text, None
        version, bare = _unstamped(text)
        try:
            present = self._upgraded(self.spec, text)
            return self._without_secrets(self.spec, present) if self.has_secrets else present, None
        except UnreadableSpec as error:
            return mask_all(bare) if self.has_secrets else bare, str(error)
        except BadInput as error:
            return mask_all(bare), str(UnreadableSpec(version, str(error)))

    def show_args(self, action: str, text: str) -> str:
        """Return stored arguments without secrets; where a kind has secrets, arguments of no known type may be one."""
        if not self.has_secrets:
            return text
        if (typed := self.args.get(action)) is None:
            return mask_all(text)
        try:
            return self._without_secrets(typed, text)
        except BadInput:  # masked arguments of an ended operation need not be of their type
            return text if typed.mask(text) == text else mask_all(text)

    @staticmethod
    def _without_secrets(typed: typed_values.ValueType, text: str) -> str:
        """Return a stored value without secrets; raises if it is of another type, whose secrets nobody knows."""
        typed.read(text, "spec")
        return typed.mask(text)

    def show_other(self, text: str) -> str:
        """Return other JSON of a kind's records, such as a result, without fields of the names of its secrets."""
        if not any(f'"{name}"' in text for name in self._secret_names):
            return text
        return to_json(_masked(msgspec.json.decode(text), self._secret_names))

    def mask_args(self, action: str, text: str) -> str:
        """Return stored arguments with the secrets of their type masked, and all other values as they are."""
        typed = self.args.get(action)
        return typed.mask(text) if typed is not None and typed.has_secrets else text

    def mask_in(self, message: str, spec: str, action: str, args: str) -> str:
        """Return a message in which the secrets of a stored spec and of stored arguments are masked."""
        return typed_values.mask_texts(message, self._secret_texts(spec, action, args))

    def mask_result(self, result: str, spec: str, action: str, args: str) -> str:
        """Return a result, as JSON text, in which the secrets of a stored spec and of stored arguments are masked."""
        secrets = self._secret_texts(spec, action, args)
        return to_json(typed_values.mask_texts_in(msgspec.json.decode(result), secrets)) if secrets else result

    def show_seen(self, seen: str, spec: str) -> str:
        """Return the observed state of an object without the secrets of its stored spec."""
        return self.show_other(self.mask_result(seen, spec, "", "{}"))

    def _secret_texts(self, spec: str, action: str, args: str) -> set[str]:
        texts = self.args[action].secret_texts(args) if action in self.args else set()
        if self.spec is not None and self.spec.has_secrets:
            with suppress(UnreadableSpec):  # then no handler has read it
                texts = texts | self.spec.secret_texts(self._upgraded(self.spec, spec))
        return texts

    def _upgraded(self, spec: typed_values.ValueType, text: str) -> str:
        """Return a stored spec in the present version, without its version."""
        version, bare = _unstamped(text)
        if version == self.version:
            return bare
        if version > self.version or self._upgrade is None:
            raise UnreadableSpec(version, f"this program knows version {self.version}")
        try:
            return spec.normalize(to_json(self._upgrade(msgspec.json.decode(bare), version)), "spec")
        except BadInput as error:
            raise UnreadableSpec(version, str(error)) from error
        except Exception as error:  # the function of a plug-in may raise anything, and the text may have a secret
            self._log_failed_upgrade(version, bare, error)
            why = type(error).__name__ if self.has_secrets else f"{type(error).__name__}: {error}"
            raise UnreadableSpec(version, f"its upgrade to version {self.version} failed ({why})") from error

    def _log_failed_upgrade(self, version: int, spec: str, error: Exception) -> None:
        """Log the traceback of an upgrade, once for each version: every reader of the object meets the error."""
        if version in self._failed_upgrades:
            return
        self._failed_upgrades.add(version)
        text = format_traceback(error, __file__)
        if self.has_secrets:  # those of an earlier version may have other names than now
            text = typed_values.mask_texts(text, set(typed_values.texts_in(msgspec.json.decode(spec))))
        what = (self._kind, version, self.version)
        log.error("a spec of kind %s was not upgraded from version %d to %d (logged once):\n%s", *what, text)


def spec_version_of(text: str) -> int:
    """Return the version of a stored spec."""
    return _unstamped(text)[0] if text.startswith(VERSION_STAMP) else 1


def _unstamped(text: str) -> tuple[int, str]:
    """Return the version of a stored spec, and the spec without it."""
    stamp = _STAMP.match(text)
    return (1, text) if stamp is None else (int(stamp[1]), "{" + text[stamp.end() :])


def _masked(value: Any, names: frozenset[str]) -> Any:  # noqa: ANN401 - plain JSON
    if isinstance(value, dict):
        return {
            name: typed_values.MASK if name in names and part is not None else _masked(part, names)
            for name, part in value.items()
        }
    return [_masked(part, names) for part in value] if isinstance(value, list) else value


def mask_all(text: str) -> str:
    """Return JSON text with the names of its fields only."""
    return to_json(_names_of(msgspec.json.decode(text)))


def _names_of(value: Any) -> Any:  # noqa: ANN401 - plain JSON
    if isinstance(value, dict):
        return {name: _names_of(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_names_of(part) for part in value]
    return value if value is None else typed_values.MASK
