"""The arrows of a drawing: a lifecycle's moves, folded until a person can read them.

A table compiles to hundreds of moves, one per source, event and actor. A drawing has one arrow per pair of states, with
all that may happen on it as its labels. Two things make drawings unreadable, and are folded further: an event that
leads to one state from many others is one arrow out of a bundle, and the way back to where an action began is part of
the arrow that led there.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from msgspec import Struct

from stateward.lifecycle.moves import AllowedEvent
from stateward.lifecycle.render.arrow_labels import Label, Tone, label_of
from stateward.lifecycle.rows import SUCCEEDED, TIMED_OUT, Meaning
from stateward.lifecycle.states import State, States
from stateward.lifecycle.table import Lifecycle

BEGUN = frozenset({Meaning.ACTION, Meaning.REQUEST})
ENDED = frozenset({Meaning.SUCCESS, Meaning.FAILURE, Meaning.CANCEL, Meaning.TIMEOUT})

WORTH_ASKED, WORTH = 4, 3
"""How many arrows a bundle must save: more of what people ask for, since that is what they look for in a drawing."""


class Edge(Struct, frozen=True):
    """One arrow: from a state, or from a bundle of many, to a state; and what leads back along it."""

    sources: States
    target: State
    labels: tuple[Label, ...]
    back: tuple[Label, ...] = ()

    @property
    def tone(self) -> Tone:
        """How loud the arrow is: as its loudest label."""
        return min(label.tone for label in self.labels)

    @property
    def bundled(self) -> bool:
        """Whether this arrow stands for those of many states."""
        return len(self.sources) > 1


class StateEdge(Struct, frozen=True):
    """One event that leads from some states to another; `returns` where it leads back to where the work began."""

    label: Label
    sources: States
    target: State
    meaning: Meaning
    returns: bool = False

    @property
    def way(self) -> tuple[States, State]:
        """From where to where."""
        return self.sources, self.target

    @property
    def likeness(self) -> tuple[object, ...]:
        """What is the same within a bundle; our own work's success is like no other: it is the way through."""
        alone = self.sources if self.label.event == SUCCEEDED else ()
        return self.label.event, self.label.actors, self.label.needs, self.target, alone


Way: TypeAlias = tuple[States, State]
Family: TypeAlias = list[list[StateEdge]]


def edges(lifecycle: Lifecycle) -> tuple[Edge, ...]:
    """Return the arrows of a lifecycle's drawing: first what begins something, then the rest."""
    happened = tuple(dict.fromkeys(_happenings(lifecycle)))
    begun = _bundled(one for one in happened if one.meaning in BEGUN)
    others = [one for one in happened if one.meaning not in BEGUN]
    back = _ways_back(begun, others)
    folded = {one for several in back.values() for one in several}
    rest = _bundled(one for one in others if one not in folded)
    return tuple(_merged((*begun, *rest), back))


def _happenings(lifecycle: Lifecycle) -> Iterator[StateEdge]:
    for source in lifecycle.states:
        for allowed in lifecycle.allowed[source]:
            if _is_drawn(allowed):
                yield _happening(States((source,)), allowed)


def _is_drawn(allowed: AllowedEvent) -> bool:
    """Tell whether something is shown: hidden work is not, nor that any action can be cancelled back to its origin."""
    if allowed.meaning is Meaning.CANCEL:
        return not allowed.origins
    return allowed.meaning is not Meaning.HIDDEN


def _happening(source: States, allowed: AllowedEvent) -> StateEdge:
    returns = allowed.origins == (allowed.target,)
    return StateEdge(label_of(allowed), source, allowed.target, allowed.meaning, returns)


def _bundled(happenings: Iterable[StateEdge]) -> list[StateEdge]:
    """Join what happens alike in many states, where that saves arrows; the largest bundles first."""
    drawn: dict[Way, set[object]] = defaultdict(set)
    alike: dict[object, list[StateEdge]] = defaultdict(list)
    for one in happenings:
        drawn[one.way].add(one.likeness)
        alike[one.likeness].append(one)
    bundled: list[StateEdge] = []
    for family in sorted(_families(alike.values()), key=lambda family: -len(family[0])):
        bundled.extend(_bundle(family, drawn))
    return bundled


def _families(alike: Iterable[list[StateEdge]]) -> Iterable[Family]:
    """Group the events that would share a bundle: from the same states to the same state."""
    families: dict[Way, Family] = defaultdict(list)
    for several in alike:
        families[_sources(several), several[0].target].append(several)
    return families.values()


def _bundle(family: Family, drawn: dict[Way, set[object]]) -> Iterable[StateEdge]:
    """Join a family if that saves enough arrows, those on which nothing else happens; what is joined is drawn."""
    likenesses = {several[0].likeness for several in family}
    saved = sum(drawn[one.way] <= likenesses for one in family[0])
    asked = all(several[0].label.tone is Tone.ASKED for several in family)
    if saved < (WORTH_ASKED if asked else WORTH):
        return [one for several in family for one in several]
    for one in family[0]:
        drawn[one.way] -= likenesses
    return map(_joined, family)


def _joined(several: list[StateEdge]) -> StateEdge:
    loudest = min(several, key=lambda one: one.label.tone)
    return StateEdge(loudest.label, _sources(several), loudest.target, loudest.meaning)


def _sources(several: Iterable[StateEdge]) -> States:
    return States(dict.fromkeys(state for one in several for state in one.sources))


def _ways_back(begun: list[StateEdge], others: list[StateEdge]) -> dict[Way, tuple[StateEdge, ...]]:
    """Find the endings that lead back along the arrow on which the work began."""
    between: dict[Way, list[StateEdge]] = defaultdict(list)
    origins: dict[State, States] = defaultdict(States)
    for one in (*begun, *others):
        between[one.way].append(one)
    for one in begun:
        origins[one.target] |= one.sources
    found: dict[Way, tuple[StateEdge, ...]] = {}
    for sources, target in dict.fromkeys(one.way for one in begun):
        endings = [between.get((States((target,)), source), []) for source in sources if source != target]
        found[sources, target] = _own(endings, origins[target]) if len(sources) == 1 else _common(endings)
    return found


def _own(endings: list[list[StateEdge]], origins: States) -> tuple[StateEdge, ...]:
    """Return what ends where it began, if nothing else leads there."""
    back = [one for several in endings for one in several]
    returns = all(one.meaning in ENDED and (one.returns or origins == (one.target,)) for one in back)
    return tuple(back) if returns else ()


def _common(endings: list[list[StateEdge]]) -> tuple[StateEdge, ...]:
    """Return the endings that take each of the bundled states' work back to its own."""
    shared = set.intersection(*({one.label for one in several if one.returns} for several in endings))
    return tuple(one for several in endings for one in several if one.returns and one.label in shared)


def _merged(happenings: Iterable[StateEdge], back: dict[Way, tuple[StateEdge, ...]]) -> Iterator[Edge]:
    labels: dict[Way, list[Label]] = defaultdict(list)
    for one in happenings:
        labels[one.way].append(one.label)
    for way, several in labels.items():
        returning = (one.label for one in back.get(way, ()))
        yield Edge(*way, _in_order(several), _in_order(returning))


def _in_order(labels: Iterable[Label]) -> tuple[Label, ...]:
    return tuple(sorted(dict.fromkeys(labels), key=lambda label: (label.tone, label.event == TIMED_OUT)))
