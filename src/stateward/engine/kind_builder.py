"""A kind by decorators, for the ordinary case: create it, act on it, delete it.

    lamp = KindBuilder("example.lamp")

    @lamp.creates(to="off")
    async def make(job: Job) -> None: ...

    @lamp.acts("off", to="on")
    async def light(job: Job) -> None: ...

    @lamp.deletes()
    async def remove(job: Job) -> None: ...

    kind = lamp.build()

Each function is the handler of the action of its name. States are words; while an action runs, the object is in a
transitional state of its own, "lighting". The result is a `Kind` with a table like any other, which `check` has proved.
Other actors, steps, requests and facts need a table.
"""

from collections.abc import Callable
from typing import Any, cast

from msgspec import Struct

from stateward.engine.job import Run
from stateward.engine.kinds import HandlerFunction, Kind
from stateward.errors import BadInput, UnknownName
from stateward.lifecycle import (
    BACK,
    GONE,
    MINUTE,
    NEW,
    STABLE,
    TRANSITIONAL,
    DeclarationError,
    State,
    States,
    action,
    check,
    declare,
)

NORMAL_TIME_S = 5 * MINUTE
"""How many seconds an action has unless it says so."""


class _Action(Struct, frozen=True):
    """An action as a decorator declares it; no sources: a creation, and None: all stable states."""

    name: str
    sources: tuple[str, ...] | None
    to: str | None  # None: back
    is_last: bool
    error: str | None
    through: str
    within: float
    run: Run
    how: dict[str, Any]


class KindBuilder:
    """Collects the actions of a kind; `options` are those of `Kind`, such as `spec` and `columns`.

    `unknown` is the state of an object of which nobody knows whether an action on it was done; without it, the action
    ends as if it had failed.
    """

    def __init__(self, name: str, *, about: str = "", unknown: str | None = None, **options: Any) -> None:  # noqa: ANN401
        self._name, self._about, self._unknown, self._options = name, about, unknown, options
        self._actions: dict[str, _Action] = {}  # bounded by: the actions of a kind

    def creates(
        self,
        *,
        to: str,
        error: str | None = None,
        through: str | None = None,
        within: float = NORMAL_TIME_S,
        **how: Any,  # noqa: ANN401 - `observe`, `attempts`, `args`
    ) -> Callable[[HandlerFunction], HandlerFunction]:
        """Declare the action that creates an object; if it fails, the object is gone, unless `error` names a state."""
        return self._add((), to, error, through, within, how)

    def acts(
        self,
        *sources: str,
        to: str | None = None,
        error: str | None = None,
        through: str | None = None,
        within: float = NORMAL_TIME_S,
        **how: Any,  # noqa: ANN401 - `observe`, `attempts`, `args`
    ) -> Callable[[HandlerFunction], HandlerFunction]:
        """Declare an action in these states; without `to`, and on an error, the object goes back where it was."""
        if not sources:
            raise BadInput("sources", None, f"the states in which an action of {self._name} is possible")
        return self._add(sources, to, error, through, within, how)

    def deletes(
        self,
        *sources: str,
        error: str | None = None,
        through: str | None = None,
        within: float = NORMAL_TIME_S,
        **how: Any,  # noqa: ANN401 - `observe`, `attempts`, `args`
    ) -> Callable[[HandlerFunction], HandlerFunction]:
        """Declare the action that removes an object, in these states, or in all that are not transitional."""
        return self._add(sources or None, None, error, through, within, how, is_last=True)

    def _add(
        self,
        sources: tuple[str, ...] | None,
        to: str | None,
        error: str | None,
        through: str | None,
        within: float,
        how: dict[str, Any],
        *,
        is_last: bool = False,
    ) -> Callable[[HandlerFunction], HandlerFunction]:
        def register(function: HandlerFunction) -> HandlerFunction:
            name = getattr(function, "__name__", "")
            if not name.isidentifier() or name in self._actions:
                raise BadInput("function", name, f"a function whose name no other action of {self._name} has")
            word, run = through or progressive(name), cast("Run", function)
            self._actions[name] = _Action(name, sources, to, is_last, error, word, within, run, how)
            return function

        return register

    def build(self) -> Kind:
        """Return the kind; raises with the faults of its table."""
        actions = list(self._actions.values())
        named = [
            word
            for declared in actions
            for word in (*(declared.sources or ()), declared.to, declared.error)
            if word is not None
        ]
        named += [] if self._unknown is None else [self._unknown]
        reached = {
            word for declared in actions for word in (declared.to, declared.error, self._unknown) if word is not None
        }
        for word in named:
            if word not in reached:  # `check` takes each state to which something goes back for reached
                raise UnknownName(f"state of {self._name}", word, sorted(reached))
        resting = {word: (word, STABLE) for word in named}
        working = {declared.through: (declared.through, TRANSITIONAL) for declared in actions}
        if both := resting.keys() & working.keys():
            raise BadInput("through", ", ".join(sorted(both)), f"a state of its own of {self._name}, not a stable one")
        words = {f"state {word}": value for word, value in {**resting, **working}.items()}
        states = cast("Any", State)(f"{self._name} state", words)
        every = States(states(word) for word in resting)
        rows = [
            action(
                declared.name,
                source=every if declared.sources is None else States(map(states, declared.sources)) or NEW,
                through=states(declared.through),
                to=GONE if declared.is_last else BACK if declared.to is None else states(declared.to),
                error=BACK if declared.error is None else states(declared.error),
                within=declared.within,
            )
            for declared in actions
        ]
        unknown = None if self._unknown is None else states(self._unknown)
        lifecycle = declare(self._name, states, rows, unknown=unknown, about=self._about)
        if faults := check(lifecycle):
            raise DeclarationError(self._name, faults)
        kind = Kind(lifecycle, **self._options)
        for declared in actions:
            kind.handles(declared.name, **declared.how)(declared.run)
        return kind


VOWELS = "aeiou"


def progressive(name: str) -> str:
    """Return the word for the state in which an action runs: of `light` `lighting`, of `put_out` `putting_out`."""
    verb, mark, rest = name.partition("_")
    is_short = sum(letter in VOWELS for letter in verb) == 1 and verb[-2:-1] in tuple(VOWELS)
    if verb.endswith("ie"):
        verb = f"{verb[:-2]}y"
    elif verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")):
        verb = verb[:-1]
    elif is_short and verb[-1] not in f"{VOWELS}wxy":
        verb += verb[-1]
    return f"{verb}ing{mark}{rest}"
